//! Deletion of namespaces: deletes the pods first, then all other objects; reports the remaining ones in conditions; then removes
//! the finalizer.

use super::gc::graph::{FOREGROUND, ORPHAN};
use async_trait::async_trait;
use coracle_client::Client;
use coracle_client::aggregated::AggregatedObjects;
use coracle_client::user::User;
use coracle_fields::core::v1::Namespace;
use coracle_informer::all_kinds::{ObjectHandler, kinds};
use coracle_informer::conditions::{self, Condition};
use coracle_informer::informer::{Change, Name};
use coracle_informer::queue::Queue;
use coracle_informer::resource::{Resource, same_uid};
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::cache::Cache;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "namespace-controller";
/// Interval of the check for objects of aggregated API servers: there is no watch on them.
const AGAIN: SignedDuration = SignedDuration::from_secs(8);

struct Namespaces {
    client: Client,
    namespaces: Resource,
    extensions: Option<Arc<dyn AggregatedObjects>>,
}

/// Queues a namespace that is ending whenever something in it changes.
struct Content {
    namespaces: Arc<Cache>,
    queue: Arc<Queue<Name>>,
}

impl ObjectHandler for Content {
    fn on_change(&self, _: &Arc<Kind>, change: Change<'_>) {
        let Some(object) = change.object().filter(|o| !o.meta.namespace.is_empty()) else { return };
        let namespace = self.namespaces.get("", &object.meta.namespace);
        if namespace.is_some_and(|n| n.meta.deletion_timestamp.is_some()) {
            self.queue.add(Name::new("", &object.meta.namespace));
        }
    }

    fn on_resync(&self, _: &Arc<Kind>, _: &Cache) {
        let ending = self.namespaces.list(None).into_iter().filter(|n| n.meta.deletion_timestamp.is_some());
        ending.for_each(|n| self.queue.add(Name::of(&n)));
    }

    fn on_kind_removed(&self, kind: &Arc<Kind>) {
        // A kind that is no longer served holds no namespace back.
        let _ = kind;
        self.namespaces.list(None).iter().for_each(|n| self.queue.add(Name::of(n)));
    }
}

/// Starts the controller; returns what listens to every object for it.
pub fn start(
    setup: &mut Setup<'_>,
    extensions: Option<Arc<dyn AggregatedObjects>>,
) -> Arc<dyn ObjectHandler> {
    let client = setup.client(NAME);
    let namespaces = setup.resource(NAME, "", "namespaces");
    let queue = setup.enqueue_on_change(&namespaces).queue.clone();
    let content = Content { namespaces: namespaces.cache.clone(), queue: queue.clone() };
    setup.run(Namespaces { client, namespaces, extensions }, &queue, 5);
    Arc::new(content)
}

/// What is left in a namespace after a turn.
#[derive(Debug, Default, PartialEq, Eq)]
struct Remains {
    /// How many objects, by `resource.group`.
    resources: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// Groups and versions of others that do not say what they have.
    stale: Vec<String>,
    /// Whether some of it is with others.
    elsewhere: bool,
    /// What went wrong.
    errors: Vec<String>,
}

impl Remains {
    /// Discovery that failed, in the words of upstream's client.
    fn undiscovered(&self) -> Option<String> {
        let mut each: Vec<String> =
            self.stale.iter().map(|of| format!("{of}: stale GroupVersion discovery: {of}")).collect();
        each.sort();
        let list = each.join(", ");
        let text = format!("unable to retrieve the complete list of server APIs: {list}");
        (!each.is_empty()).then_some(text)
    }

    fn count(&mut self, kind: &Kind, object: &Object) {
        *self.resources.entry(format!("{}.{}", kind.plural, kind.group)).or_default() += 1;
        for finalizer in &object.meta.finalizers {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
    }

    /// The five conditions that tell how far the deletion is.
    fn conditions(&self, now: Timestamp) -> Vec<Condition> {
        let list = |map: &BTreeMap<String, usize>, verb: &str, noun: &str| {
            let each: Vec<String> = map.iter().map(|(k, n)| format!("{k} {verb} {n} {noun}")).collect();
            each.join(", ")
        };
        let mut errors = self.errors.clone();
        errors.sort();
        let failed =
            format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
        let resources = list(&self.resources, "has", "resource instances");
        let finalizers = list(&self.finalizers, "in", "resource instances");
        let row = |kind, bad: bool, (bad_reason, bad_message), (good_reason, good_message): (&str, &str)| {
            let (reason, message): (&str, String) =
                if bad { (bad_reason, bad_message) } else { (good_reason, good_message.into()) };
            Condition::new(kind, bad, reason, message, now)
        };
        let never = || ("", String::new());
        let undiscovered = self.undiscovered().unwrap_or_default();
        let undiscovered =
            format!("Discovery failed for some groups, {} failing: {undiscovered}", self.stale.len());
        vec![
            row(
                "NamespaceDeletionDiscoveryFailure",
                !self.stale.is_empty(),
                ("DiscoveryFailed", undiscovered),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            row(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                never(),
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            row(
                "NamespaceDeletionContentFailure",
                !self.errors.is_empty(),
                ("ContentDeletionFailed", failed),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            row(
                "NamespaceContentRemaining",
                !self.resources.is_empty(),
                ("SomeResourcesRemain", format!("Some resources are remaining: {resources}")),
                ("ContentRemoved", "All content successfully removed"),
            ),
            row(
                "NamespaceFinalizersRemaining",
                !self.finalizers.is_empty(),
                (
                    "SomeFinalizersRemain",
                    format!("Some content in the namespace has finalizers remaining: {finalizers}"),
                ),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// What kept the content of a namespace from being deleted.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join(", "))]
struct NotEmptied(Vec<String>);

#[async_trait]
impl Controller for Namespaces {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let Some(namespace) = self.namespaces.get(name) else { return Ok(Requeue::No) };
        if namespace.meta.deletion_timestamp.is_none() {
            return Ok(Requeue::No);
        }
        if !namespace.doc().view::<Namespace>().spec().finalizers().has("kubernetes") {
            return Ok(Requeue::No);
        }
        let remains = self.delete_content(&name.name).await;
        self.tell(&namespace, &remains, now).await?;
        let failed: Vec<String> = remains.undiscovered().into_iter().chain(remains.errors).collect();
        if !failed.is_empty() {
            return Err(Failure::of(NotEmptied(failed)));
        }
        if remains.resources.is_empty() {
            self.finalize(name).await?;
        }
        Ok(if remains.elsewhere { Requeue::At(now + AGAIN) } else { Requeue::No })
    }
}

impl Namespaces {
    /// Deletes pods; when there are none left, everything else. Returns what is still there.
    async fn delete_content(&self, namespace: &str) -> Remains {
        let mut remains = Remains::default();
        let kinds = kinds(&self.client);
        let namespaced = kinds.values().filter(|k| k.namespaced());
        let (pods, others): (Vec<_>, Vec<_>) =
            namespaced.partition(|k| k.group.is_empty() && k.plural == "pods");
        for kind in pods {
            self.delete_kind(kind, namespace, &mut remains).await;
        }
        if remains.resources.is_empty() {
            for kind in others {
                self.delete_kind(kind, namespace, &mut remains).await;
            }
            self.delete_elsewhere(namespace, &mut remains).await;
        }
        remains
    }

    /// What others keep goes, too.
    async fn delete_elsewhere(&self, namespace: &str, remains: &mut Remains) {
        let Some(extensions) = &self.extensions else { return };
        // A leader that was suspended may know a namespace of that name that is gone.
        if let Err(why) = self.client.check_fence() {
            remains.errors.push(why.to_string());
            return;
        }
        let left =
            extensions.delete_in_namespace(namespace, &User::service_account("kube-system", NAME)).await;
        remains.elsewhere = !left.resources.is_empty();
        for (resource, count) in left.resources {
            *remains.resources.entry(resource).or_default() += count;
        }
        for (finalizer, count) in left.finalizers {
            *remains.finalizers.entry(finalizer).or_default() += count;
        }
        remains.errors.extend(left.errors);
        remains.stale = left.stale;
    }

    async fn delete_kind(&self, kind: &Arc<Kind>, namespace: &str, remains: &mut Remains) {
        let Some(cache) = self.client.find_whole_cache(kind) else { return };
        for object in cache.list(Some(namespace)) {
            // One that waits for its dependents, or to let them go, need not: everything here goes.
            let waits = object.meta.finalizers.iter().any(|f| f == FOREGROUND || f == ORPHAN);
            if object.meta.deletion_timestamp.is_none() || waits {
                let mut options = same_uid(&object);
                options.propagation_policy = Some("Background".into());
                match self.client.delete(kind, namespace, &object.meta.name, options).await {
                    Ok(_) => {}
                    Err(error) if error.is_not_found() || error.is_conflict() => {}
                    Err(error) => remains.errors.push(error.to_string()),
                }
            }
        }
        if let Err(error) = self.client.delete_unreadable(kind, namespace).await {
            remains.errors.push(error.to_string());
        }
        cache.list(Some(namespace)).iter().for_each(|object| remains.count(kind, object));
    }

    async fn tell(&self, namespace: &Arc<Object>, remains: &Remains, now: Timestamp) -> Result<(), Failure> {
        let mut body = namespace.copy::<Namespace>();
        let mut list: Vec<Condition> = body.view().status().conditions().read().unwrap_or_default();
        for condition in remains.conditions(now) {
            conditions::put(&mut list, condition);
        }
        body.edit().status().phase().set("Terminating");
        body.edit().status().conditions().set(list);
        self.namespaces.set_status(namespace, body.view().status().to_value()).await?;
        Ok(())
    }

    async fn finalize(&self, name: &Name) -> Result<(), Failure> {
        let Some(namespace) = self.namespaces.get(name) else { return Ok(()) };
        let mut body = namespace.copy::<Namespace>();
        body.edit().spec().finalizers().retain(|finalizer| finalizer != "kubernetes");
        match self.namespaces.write("finalize", body).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn conditions_name_what_remains() {
        let mut remains = Remains::default();
        let pod = object(json!({"metadata": {"name": "a", "finalizers": ["x.io/hold"]}}));
        remains.count(&Kind::new("", "v1", "Pod", "pods"), &pod);
        let now = Timestamp::UNIX_EPOCH;
        let all = remains.conditions(now);
        let text =
            |kind: &str| conditions::find(&all, kind).map(|c| (c.status.clone(), c.message.clone())).unwrap();
        assert_eq!(
            text("NamespaceContentRemaining"),
            ("True".into(), "Some resources are remaining: pods. has 1 resource instances".into())
        );
        assert_eq!(
            text("NamespaceFinalizersRemaining").1,
            "Some content in the namespace has finalizers remaining: x.io/hold in 1 resource instances"
        );
        assert_eq!(text("NamespaceDeletionContentFailure").0, "False");
        assert!(Remains::default().conditions(now).iter().all(|c| c.status == "False"));
        let remains = Remains { stale: vec!["demo.io/v1".into()], ..Remains::default() };
        let all = remains.conditions(now);
        let failure = conditions::find(&all, "NamespaceDeletionDiscoveryFailure").unwrap();
        let message = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
            demo.io/v1: stale GroupVersion discovery: demo.io/v1";
        assert_eq!((failure.status.as_str(), failure.message.as_str()), ("True", message));
    }
}
