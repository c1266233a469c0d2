//! Applies the documents of a file, and removes what is no longer in it. What is going to be applied is recorded first, so that
//! nothing is forgotten when the server ends in between.

use super::LEASE;
use super::documents::{Document, Identity, Place, group_of};
use super::record::{self, Entry, NAMESPACE, Record};
use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_client::patch::Patch;
use coracle_fields::Schema as _;
use coracle_fields::apiextensions::v1::CustomResourceDefinition;
use coracle_fields::make;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::{Kind, Scope};
use coracle_proto::status::ApiError;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long the kinds of definitions that were just applied may take to be served, before their objects are tried.
const SERVED: Duration = Duration::from_secs(5);

/// Which document an error is about.
#[derive(Debug)]
pub(super) struct About {
    place: Place,
    identity: Identity,
}

impl About {
    fn of(document: &Document) -> Box<Self> {
        Box::new(Self { place: document.place, identity: document.identity.clone() })
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.identity)
    }
}

/// Why an object is not applied, or not removed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("{}: there is no kind {} in {}", .0, .0.identity.kind, .0.identity.api_version)]
    NoKind(Box<About>),
    #[error("{0}: objects of this kind cannot be applied")]
    NotApplicable(Box<About>),
    #[error("{0}: metadata.namespace is set, but the kind is cluster-scoped")]
    ClusterScoped(Box<About>),
    #[error("{0}: {1} has it, too")]
    Elsewhere(Box<About>, String),
    #[error("{0}")]
    Refused(Box<About>, #[source] ApiError),
    #[error("remove {0}")]
    Remove(Box<Entry>, #[source] ApiError),
    #[error("remove {0}: its kind is defined, but not served")]
    NotServed(Box<Entry>),
    #[error("record what is applied")]
    Record(#[source] ApiError),
    #[error("record what is applied")]
    Unwritable(#[source] serde_json::Error),
}

/// What became of a file.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) applied: usize,
    pub(super) removed: usize,
    pub(super) errors: Vec<ObjectError>,
}

/// The documents of all files that can be read, by file.
pub(super) type Present = BTreeMap<String, Vec<Identity>>;

/// A document whose kind is served.
struct Resolved<'a> {
    document: &'a Document,
    kind: Arc<Kind>,
    entry: Entry,
}

/// Applies manifests.
pub(super) struct Applier {
    pub(super) client: Client,
}

impl Applier {
    /// Applies the documents of a file: Namespaces first, then definitions of kinds, then the others, each in their order.
    pub(super) async fn apply(&self, file: &str, documents: &[Document], present: &Present) -> Outcome {
        let mut outcome = Outcome::default();
        let records = record::all(&self.client);
        let mut record = records.iter().find(|record| record.file == file).cloned().unwrap_or_default();
        record.file = file.to_owned();
        for turn in [Turn::Namespaces, Turn::Definitions, Turn::Others] {
            let documents: Vec<&Document> =
                documents.iter().filter(|document| Turn::of(&document.identity) == turn).collect();
            if let Err(error) = self.round(&documents, &mut record, (&records, present), &mut outcome).await {
                outcome.errors.push(error);
                return outcome;
            }
            if turn == Turn::Definitions {
                self.until_served(&documents).await;
            }
        }
        outcome
    }

    /// Removes what was applied from a file and is in no file any more.
    pub(super) async fn prune(&self, file: &str, present: &Present, outcome: &mut Outcome) {
        let known = record::all(&self.client).into_iter().find(|record| record.file == file);
        if let Some(mut record) = known {
            self.prune_record(&mut record, present, outcome).await;
        }
    }

    /// Whether there is a record of a file.
    pub(super) fn is_recorded(&self, file: &str) -> bool {
        record::all(&self.client).iter().any(|record| record.file == file)
    }

    /// Deletes the record of a file.
    pub(super) async fn forget(&self, file: &str) -> Result<(), ApiError> {
        let kind = self.client.kind("", "configmaps");
        let deleted =
            self.client.delete(&kind, NAMESPACE, &record::name(file), DeleteOptions::default()).await;
        deleted.map(|_| ()).or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
    }

    /// The record of a file as an object, for Events about it; it is created if there is none.
    pub(super) async fn record_of(&self, file: &str) -> Result<Arc<Object>, ObjectError> {
        let kind = self.client.kind("", "configmaps");
        match self.client.get(&kind, NAMESPACE, &record::name(file)).await {
            Ok(object) => Ok(object),
            Err(error) if error.is_not_found() => {
                self.write(&Record { file: file.to_owned(), ..Record::default() }).await
            }
            Err(error) => Err(ObjectError::Record(error)),
        }
    }

    /// Records some documents, and applies them. An error is one of the record, without which nothing is applied.
    async fn round(
        &self,
        documents: &[&Document],
        record: &mut Record,
        (records, present): (&[Record], &Present),
        outcome: &mut Outcome,
    ) -> Result<(), ObjectError> {
        let mut resolved = Vec::new();
        let before = record.clone();
        for document in documents {
            match self.resolve(document, &record.file, (records, present)).await {
                Ok(one) => {
                    record.note(one.entry.clone());
                    resolved.push(one);
                }
                Err(error) => outcome.errors.push(error),
            }
        }
        if *record != before {
            self.write(record).await?;
        }
        for Resolved { document, kind, entry } in resolved {
            let mut config = document.object.clone();
            if !entry.namespace.is_empty() {
                PartialObjectMetadata::edit(&mut config).metadata().namespace().set(entry.namespace.as_str());
            }
            // The file decides: fields that others have set since are set again.
            let patch = Patch::Apply { config, force: true };
            match self.client.patch(&kind, &entry.namespace, &entry.name, "", patch).await {
                Ok(_) => outcome.applied += 1,
                Err(error) => outcome.errors.push(ObjectError::Refused(About::of(document), error)),
            }
        }
        Ok(())
    }

    /// Kind and namespace of a document, and whether its object is going to be created.
    async fn resolve<'a>(
        &self,
        document: &'a Document,
        file: &str,
        (records, present): (&[Record], &Present),
    ) -> Result<Resolved<'a>, ObjectError> {
        let identity = &document.identity;
        let Some(kind) = self.kind(identity) else {
            return Err(ObjectError::NoKind(About::of(document)));
        };
        if !kind.stored || !kind.verbs.contains(&"patch") {
            return Err(ObjectError::NotApplicable(About::of(document)));
        }
        let namespace = match (kind.scope, identity.namespace.as_str()) {
            (Scope::Cluster, "") => "",
            (Scope::Cluster, _) => return Err(ObjectError::ClusterScoped(About::of(document))),
            (Scope::Namespaced, "") => "default",
            (Scope::Namespaced, other) => other,
        };
        let mut entry = Entry {
            api_version: identity.api_version.clone(),
            kind: identity.kind.clone(),
            namespace: namespace.to_owned(),
            name: identity.name.clone(),
            created: false,
        };
        // Of several files the first one by name has it.
        let mut before = present.range(..file.to_owned());
        if let Some((other, _)) = before.find(|(_, others)| others.iter().any(|other| entry.is(other))) {
            return Err(ObjectError::Elsewhere(About::of(document), other.clone()));
        }
        entry.created = match self.client.get(&kind, &entry.namespace, &entry.name).await {
            Err(error) if error.is_not_found() => true,
            Err(error) => return Err(ObjectError::Refused(About::of(document), error)),
            // It may have come from another file.
            Ok(_) => {
                let mut known = records.iter().flat_map(|record| &record.entries);
                known.any(|known| known.same(&entry) && known.created)
            }
        };
        Ok(Resolved { document, kind, entry })
    }

    fn kind(&self, identity: &Identity) -> Option<Arc<Kind>> {
        let (group, version) = identity.api_version.split_once('/').unwrap_or(("", &identity.api_version));
        self.client.registry().kind(group, version, &identity.kind)
    }

    /// Waits until the kinds of definitions are served, not longer than [`SERVED`]: later their objects are errors.
    async fn until_served(&self, definitions: &[&Document]) {
        let mut changes = self.client.registry().changes();
        let served = async {
            while !definitions.iter().all(|definition| self.is_served(definition)) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(SERVED, served).await;
    }

    /// Whether every version of a kind is served that its definition wants served.
    fn is_served(&self, definition: &Document) -> bool {
        let spec = CustomResourceDefinition::of(&definition.object).spec();
        let (group, kind) = (spec.group().text(), spec.names().kind().text());
        let mut wanted = spec.versions().items().filter(|version| version.served().flag());
        wanted.all(|version| self.client.registry().kind(group, version.name().text(), kind).is_some())
    }

    /// Removes the objects of a record that are in no file, the last one first: definitions and namespaces after what is in
    /// them. The record keeps those that cannot be removed now.
    async fn prune_record(&self, record: &mut Record, present: &Present, outcome: &mut Outcome) {
        let mut kept = Vec::new();
        for entry in record.entries.iter().rev() {
            let holders: Vec<&String> = present
                .iter()
                .filter(|(_, documents)| documents.iter().any(|document| entry.is(document)))
                .map(|(file, _)| file)
                .collect();
            if holders.contains(&&record.file) {
                kept.push(entry.clone());
            } else if holders.is_empty() {
                match self.remove_object(entry).await {
                    Ok(removed) => outcome.removed += usize::from(removed),
                    Err(error) => {
                        outcome.errors.push(error);
                        kept.push(entry.clone());
                    }
                }
            }
        }
        kept.reverse();
        if kept == record.entries {
            return;
        }
        record.entries = kept;
        if let Err(error) = self.write(record).await {
            outcome.errors.push(error);
        }
    }

    /// Deletes an object that was created from a file; one that was there before loses the fields of the file. Whether there
    /// was anything to do: an object that has since been deleted, or replaced by another, is left alone.
    async fn remove_object(&self, entry: &Entry) -> Result<bool, ObjectError> {
        let failed = |error| ObjectError::Remove(Box::new(entry.clone()), error);
        let group = group_of(&entry.api_version);
        let rows = self.client.registry().all();
        let Some(kind) = rows.iter().find(|kind| kind.group == group && kind.kind == entry.kind) else {
            return match self.is_defined(group, &entry.kind) {
                true => Err(ObjectError::NotServed(Box::new(entry.clone()))),
                false => Ok(false),
            };
        };
        let object = match self.client.get(kind, &entry.namespace, &entry.name).await {
            Ok(object) => object,
            Err(error) if error.is_not_found() => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        if !is_applied(&object, entry.created) || object.meta.deletion_timestamp.is_some() {
            return Ok(false);
        }
        let done = if entry.created {
            let only = Preconditions { uid: Some(object.meta.uid.clone()), resource_version: None };
            let options = DeleteOptions { preconditions: Some(only), ..DeleteOptions::default() };
            self.client.delete(kind, &entry.namespace, &entry.name, options).await
        } else {
            let mut empty = make!(part PartialObjectMetadata {
                api_version: kind.api_version(),
                kind: &entry.kind,
                metadata: { name: &entry.name },
            });
            if !entry.namespace.is_empty() {
                empty.edit().metadata().namespace().set(entry.namespace.as_str());
            }
            let patch = Patch::Apply { config: empty.into_value(), force: false };
            self.client.patch(kind, &entry.namespace, &entry.name, "", patch).await
        };
        match done {
            Err(error) if !error.is_not_found() => Err(failed(error)),
            _ => Ok(true),
        }
    }

    /// Whether there is a definition of a kind.
    fn is_defined(&self, group: &str, kind: &str) -> bool {
        let definitions =
            self.client.cache(&self.client.kind("apiextensions.k8s.io", "customresourcedefinitions"));
        definitions.list(None).iter().any(|definition| {
            let doc = definition.doc();
            let spec = doc.view::<CustomResourceDefinition>().spec();
            spec.group().text() == group && spec.names().kind().text() == kind
        })
    }

    async fn write(&self, record: &Record) -> Result<Arc<Object>, ObjectError> {
        let config = record.to_object().map_err(ObjectError::Unwritable)?;
        let kind = self.client.kind("", "configmaps");
        let patch = Patch::Apply { config, force: true };
        let written = self.client.patch(&kind, NAMESPACE, &record::name(&record.file), "", patch).await;
        written.map_err(ObjectError::Record)
    }
}

/// When a document is applied: others of its file may need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Namespaces,
    Definitions,
    Others,
}

impl Turn {
    fn of(identity: &Identity) -> Self {
        match (group_of(&identity.api_version), identity.kind.as_str()) {
            ("", "Namespace") => Self::Namespaces,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definitions,
            _ => Self::Others,
        }
    }
}

/// Whether an object has been applied from a file: it names the field manager. One that was created with a name alone has no field
/// that anybody could manage.
fn is_applied(object: &Object, created: bool) -> bool {
    let doc = object.doc();
    let managers = || doc.view::<PartialObjectMetadata>().metadata().managed_fields().items();
    let is_ours =
        managers().any(|entry| entry.manager().text() == LEASE && entry.operation().text() == "Apply");
    is_ours || created && managers().next().is_none()
}
