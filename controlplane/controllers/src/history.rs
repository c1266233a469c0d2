//! ControllerRevisions: the past templates of a DaemonSet or StatefulSet, for rolling updates and rollbacks.

use super::adoption::{self, Adoption};
use coracle_fields::apps::v1::ControllerRevision;
use coracle_fields::core::v1::PodTemplateSpec;
use coracle_fields::meta::OwnerReference;
use coracle_fields::{Made, Schema as _, make};
use coracle_informer::index::Owned;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::Failure;
use coracle_informer::selector::Selector;
use coracle_informer::template;
use coracle_kinds::object::Object;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// One revision.
#[derive(Debug, Clone)]
pub struct Revision {
    /// The whole object.
    pub object: Arc<Object>,
    /// Its number.
    pub number: i64,
    /// The patch that restores it.
    pub data: Value,
}

impl Revision {
    /// Reads a ControllerRevision.
    pub fn read(object: &Arc<Object>) -> Self {
        let doc = object.doc();
        let revision = doc.view::<ControllerRevision>();
        Self { object: object.clone(), number: revision.revision().or(0), data: revision.data().to_value() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.object.meta.name
    }

    /// The pod template it holds.
    pub fn template(&self) -> Value {
        let mut template = self.data["spec"]["template"].clone();
        if let Some(map) = template.as_object_mut() {
            map.remove("$patch");
        }
        template
    }
}

/// The patch that brings an owner's template back. Its keys are sorted: clients compare its bytes with those of the patch
/// that they would make.
pub fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = json!("replace");
    sorted(&json!({"spec": {"template": template}}))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            Value::Object(names.into_iter().map(|name| (name.clone(), sorted(&fields[name]))).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Which revision holds the owner's template.
#[derive(Debug, PartialEq, Eq)]
pub enum Newest {
    /// The newest one.
    Is(usize),
    /// An older one, which becomes the newest under a new number: a rollback.
    Raise(usize, i64),
    /// None yet.
    Create(i64),
}

/// Finds the revision of some data; `revisions` are sorted by number.
pub fn newest(revisions: &[Revision], data: &Value) -> Newest {
    let next = revisions.last().map_or(0, |r| r.number).saturating_add(1);
    match revisions.iter().rposition(|r| template::same(&r.data, data)) {
        Some(at) if at + 1 == revisions.len() => Newest::Is(at),
        Some(at) => Newest::Raise(at, next),
        None => Newest::Create(next),
    }
}

/// Unused revisions beyond the limit, oldest first.
pub fn beyond<'a>(revisions: &'a [Revision], live: &BTreeSet<String>, limit: usize) -> Vec<&'a Revision> {
    let idle: Vec<&Revision> = revisions.iter().filter(|r| !live.contains(r.name())).collect();
    let excess = idle.len().saturating_sub(limit);
    idle.into_iter().take(excess).collect()
}

/// The revisions of one kind of owner.
pub struct History {
    revisions: Resource,
    owned: Owned,
    /// The label that carries the hash.
    label: &'static str,
}

/// An owner of this name goes away, and gets no more revisions.
#[derive(Debug, thiserror::Error)]
#[error("{0} is being deleted")]
struct OwnerDeleted(String);

/// An owner, as far as its revisions are concerned.
pub struct Subject<'a> {
    /// Where owners are.
    pub owners: &'a Resource,
    /// The owner.
    pub object: &'a Arc<Object>,
    /// Which revisions may be its own.
    pub selector: &'a Selector,
    /// The reference to it.
    pub reference: Made<OwnerReference>,
    /// Its pod template.
    pub template: &'a Value,
    /// How often a hash collided.
    pub collisions: i64,
}

impl History {
    /// The history of owners whose revisions carry their hash in `label`.
    pub fn new(revisions: Resource, label: &'static str) -> Self {
        let owned = Owned::by_owner(revisions.cache.clone());
        Self { revisions, owned, label }
    }

    /// The owner's revisions, oldest first; the last one holds its template. Returns the count of collisions too. An owner
    /// that is being deleted gets none: its revisions are on their way out, or were let go on purpose.
    pub async fn sync(&self, subject: &Subject<'_>) -> Result<(Vec<Revision>, i64), Failure> {
        let list = || {
            let mut all: Vec<Revision> =
                self.owned.of(&subject.object.meta.uid).iter().map(Revision::read).collect();
            all.sort_by(|a, b| (a.number, a.name()).cmp(&(b.number, b.name())));
            all
        };
        let data = data(subject.template);
        let mut collisions = subject.collisions;
        if subject.object.meta.deletion_timestamp.is_some() {
            return Ok((list(), collisions));
        }
        self.adopt(subject).await?;
        loop {
            let all = list();
            match newest(&all, &data) {
                Newest::Is(_) => return Ok((all, collisions)),
                Newest::Raise(at, number) => {
                    let mut body = all[at].object.copy::<ControllerRevision>();
                    body.edit().revision().set(number);
                    self.revisions.update(body).await?;
                }
                Newest::Create(number) => {
                    let body = self.body(subject, &data, number, collisions);
                    let namespace = &subject.object.meta.namespace;
                    let name = Name::new(namespace, body.view().metadata().name().text());
                    match self.revisions.create(namespace, body).await {
                        Ok(_) => {}
                        // The name belongs to other data: draw another.
                        Err(error) if error.is_already_exists() => {
                            self.revisions.fresh(&name).await?;
                            collisions += 1;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
    }

    /// Adopts orphaned revisions, so that the pods that belong to them are not replaced.
    async fn adopt(&self, subject: &Subject<'_>) -> Result<(), Failure> {
        let meta = &subject.object.meta;
        let mut orphans = self.owned.orphans(&meta.namespace);
        orphans.retain(|o| adoption::plan_adoption(meta, subject.selector, o) == Adoption::Adopt);
        if orphans.is_empty() {
            return Ok(());
        }
        // An owner that went away meanwhile must not get children.
        let fresh = subject.owners.fresh(&Name::of(subject.object)).await?;
        if fresh.meta.uid != meta.uid || fresh.meta.deletion_timestamp.is_some() {
            return Err(Failure::of(OwnerDeleted(meta.name.clone())));
        }
        for orphan in orphans {
            match adoption::adopt(&self.revisions, &orphan, subject.reference.clone(), None).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    fn body(
        &self,
        subject: &Subject<'_>,
        data: &Value,
        number: i64,
        collisions: i64,
    ) -> Made<ControllerRevision> {
        let hash = template::hash(data, (collisions > 0).then_some(collisions));
        let meta = &subject.object.meta;
        let prefix: String = meta.name.chars().take(223).collect();
        let mut body = make!(ControllerRevision {
            metadata: {
                name: format!("{prefix}-{hash}"),
                namespace: &meta.namespace,
                labels: PodTemplateSpec::of(subject.template).metadata().labels(),
                owner_references: [&subject.reference],
            },
            data,
            revision: number,
        });
        body.edit().metadata().labels().insert(self.label, hash);
        body
    }

    /// Deletes revisions beyond the limit that no pod uses.
    pub async fn limit(
        &self,
        revisions: &[Revision],
        live: &BTreeSet<String>,
        limit: Option<i64>,
    ) -> Result<(), Failure> {
        let limit = limit.and_then(|l| usize::try_from(l).ok()).unwrap_or(10);
        for revision in beyond(revisions, live, limit) {
            self.revisions.delete(&revision.object).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;

    fn revision(number: i64, image: &str) -> Revision {
        Revision::read(&object(json!({"metadata": {"name": format!("r{number}")}, "revision": number,
            "data": data(&json!({"spec": {"image": image}}))})))
    }

    #[test]
    fn the_patch_has_the_bytes_that_clients_make() {
        let template =
            json!({"spec": {"b": [{"z": 1, "a": 2}], "a": {}}, "metadata": {"labels": {"l": "1"}}});
        let bytes = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"l":"1"}},"spec":{"a":{},"b":[{"a":2,"z":1}]}}}}"#;
        assert_eq!(data(&template).to_string(), bytes);
    }

    #[test]
    fn a_rollback_raises_the_old_revision() {
        let all = [revision(1, "a"), revision(2, "b")];
        let of = |image: &str| data(&json!({"spec": {"image": image}}));
        assert_eq!(newest(&all, &of("b")), Newest::Is(1));
        assert_eq!(newest(&all, &of("a")), Newest::Raise(0, 3));
        assert_eq!(newest(&all, &of("c")), Newest::Create(3));
        assert_eq!(newest(&[], &of("c")), Newest::Create(1));
        assert_eq!(all[0].template(), json!({"spec": {"image": "a"}}));
        let live = BTreeSet::from(["r2".to_owned()]);
        assert_eq!(beyond(&all, &live, 0).len(), 1);
        assert_eq!(beyond(&all, &live, 1).len(), 0);
    }
}
