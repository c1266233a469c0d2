//! What was applied from a file: a ConfigMap in `kube-system`, labelled so that it is found when the file has gone.

use super::documents::{Identity, group_of};
use coracle_cli::causes;
use coracle_client::Client;
use coracle_fields::core::v1::ConfigMap;
use coracle_fields::make;
use coracle_kinds::object::Object;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};
use std::sync::Arc;

/// Namespace of the records.
pub(super) const NAMESPACE: &str = "kube-system";
/// Label of the records.
const LABEL: &str = "coracle.dev/manifests";
/// Keys of their data.
const FILE: &str = "file";
const OBJECTS: &str = "objects";
/// Longest part of a file's name in the name of its record.
const LONGEST_NAME: usize = 200;

/// An object that was applied, or is going to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) api_version: String,
    pub(super) kind: String,
    /// Empty for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    pub(super) name: String,
    /// Whether it was created from the file, so that it is deleted when it goes from there.
    pub(super) created: bool,
}

impl Entry {
    /// Whether both are about one object.
    pub(super) fn same(&self, other: &Self) -> bool {
        group_of(&self.api_version) == group_of(&other.api_version)
            && (&self.kind, &self.namespace, &self.name) == (&other.kind, &other.namespace, &other.name)
    }

    /// Whether a document is about this object.
    pub(super) fn is(&self, identity: &Identity) -> bool {
        let namespace = &identity.namespace;
        group_of(&self.api_version) == group_of(&identity.api_version)
            && (&self.kind, &self.name) == (&identity.kind, &identity.name)
            && (self.namespace == *namespace || namespace.is_empty() && self.namespace == "default")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind, self.namespace, self.name)
    }
}

/// What was applied from a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Record {
    pub(super) file: String,
    /// In the order in which they were applied.
    pub(super) entries: Vec<Entry>,
}

impl Record {
    /// Notes an object before it is applied.
    pub(super) fn note(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|known| known.same(&entry)) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// The record in a ConfigMap. One that somebody has changed by hand records nothing.
    fn read(object: &Object) -> Option<Self> {
        if !object.meta.labels.contains_key(LABEL) {
            return None;
        }
        let doc = object.doc();
        let data = doc.view::<ConfigMap>().data();
        let file = data.key(FILE).text().to_owned();
        let entries = serde_json::from_str(data.key(OBJECTS).text()).unwrap_or_else(|error| {
            let error = causes::chain(&error);
            tracing::warn!(configmap = object.meta.name, error, "record of a manifest cannot be read");
            Vec::new()
        });
        Some(Self { file, entries }).filter(|record| object.meta.name == name(&record.file))
    }

    /// The ConfigMap.
    pub(super) fn to_object(&self) -> Result<Value, serde_json::Error> {
        let objects = serde_json::to_string(&self.entries)?;
        let map = make!(ConfigMap {
            metadata: { name: name(&self.file), namespace: NAMESPACE, labels: [(LABEL, "record")] },
            data: [(FILE, self.file.clone()), (OBJECTS, objects)],
        });
        Ok(map.into_value())
    }
}

/// All records of the cluster.
pub(super) fn all(client: &Client) -> Vec<Record> {
    let maps: Vec<Arc<Object>> = client.cache(&client.kind("", "configmaps")).list(Some(NAMESPACE));
    maps.iter().filter_map(|map| Record::read(map)).collect()
}

/// The name of the record of a file. Where that is not the file's name, a digest tells similar ones apart.
pub(super) fn name(file: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let usual = file.len() <= LONGEST_NAME
        && file.split('.').all(|part| part.starts_with(fits) && part.ends_with(fits))
        && file.chars().all(|c| fits(c) || c == '-' || c == '.');
    if usual {
        return format!("manifest-{file}");
    }
    let plain: String = file
        .chars()
        .take(LONGEST_NAME)
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    let digest = Sha256::digest(file.as_bytes());
    let mut name = format!("manifest-{plain}-");
    for byte in digest.iter().take(5) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;

    fn entry(api_version: &str, kind: &str, namespace: &str, name: &str) -> Entry {
        Entry {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
            created: true,
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut record = Record { file: "web.yaml".into(), ..Record::default() };
        record.note(entry("v1", "Namespace", "", "shop"));
        record.note(entry("apps/v1beta1", "Deployment", "shop", "web"));
        record.note(entry("apps/v1", "Deployment", "shop", "web"));
        assert_eq!(record.entries.len(), 2, "another version of the same object");
        let map = object(record.to_object().unwrap());
        assert_eq!(map.meta.name, "manifest-web.yaml");
        assert_eq!(Record::read(&map), Some(record));
    }

    #[test]
    fn names_of_files_become_names_of_objects() {
        assert_eq!(name("web.yaml"), "manifest-web.yaml");
        let odd = ["Web.yaml", "web.YAML", "we b.yaml", "web..yaml", "web-.yaml", "ä.yaml", &"x".repeat(240)];
        let names: std::collections::BTreeSet<String> = odd.iter().map(|file| name(file)).collect();
        assert_eq!(names.len(), odd.len());
        for name in names {
            assert!(coracle_proto::names::dns1123_subdomain(&name).is_empty(), "{name}");
        }
    }

    #[test]
    fn documents_without_a_namespace_are_in_default() {
        let identity = |namespace: &str| Identity {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: namespace.into(),
            name: "a".into(),
        };
        let entry = |namespace: &str| entry("v1", "ConfigMap", namespace, "a");
        for (recorded, written, same) in [
            ("default", "", true),
            ("default", "default", true),
            ("", "", true),
            ("n", "", false),
            ("n", "n", true),
        ] {
            assert_eq!(entry(recorded).is(&identity(written)), same, "{recorded:?} {written:?}");
        }
    }
}
