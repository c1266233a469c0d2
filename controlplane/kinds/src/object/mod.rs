//! An API object as the server keeps it: the JSON bytes that clients get, plus what selectors, owners and caches need.

// Fields that field selectors may name.
pub mod field;
// What may be stored.
pub mod limits;
// From stored bytes to an object.
pub mod decode;
// Objects for tests.
pub mod testing;

use bytes::Bytes;
use coracle_fields::{Doc, Made, Schema};
use coracle_store::Revision;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// One owner of an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Group and version of the owner.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether the owner is the managing controller.
    #[serde(default)]
    pub controller: bool,
    /// Whether foreground deletion of the owner waits for this object.
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// The parsed part of an object's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Object name.
    pub name: String,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Uid.
    pub uid: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Owners.
    pub owner_references: Vec<Owner>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Set once the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Generation of the spec.
    pub generation: i64,
    /// Whether initializers are pending, or one has failed: `metadata.initializers` is there.
    #[serde(rename = "initializers", deserialize_with = "decode::is_given")]
    pub uninitialized: bool,
}

/// An object at one revision; shared, never changed.
#[derive(Debug)]
pub struct Object {
    /// The revision it was written at: its `resourceVersion`.
    pub revision: Revision,
    /// The whole object as compact JSON, with its `resourceVersion`.
    pub json: Bytes,
    /// Parsed metadata.
    pub meta: Meta,
    /// The kind's selectable fields, in the order of [`crate::registry::kinds::Kind::fields`].
    pub fields: Box<[String]>,
}

impl Object {
    /// The object as a tree, for those who change or print it. Never fails: bytes that are no tree never become an object,
    /// see [`decode`].
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).expect("decode::read makes no object of bytes that are no tree")
    }

    /// The object for reads by typed places; cheaper than [`Object::value`]. Never fails, for the same reason.
    pub fn doc(&self) -> Doc<'_> {
        Doc::read(&self.json).expect("decode::read makes no object of bytes that are no tree")
    }

    /// A copy of the object, to be changed and written.
    pub fn copy<T: Schema>(&self) -> Made<T> {
        Made::new(self.value())
    }

    /// The object as a typed value, such as a `k8s_openapi` struct.
    pub fn typed<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.json)
    }
}

/// `namespace/name`, or `name` for what lives in the cluster.
pub fn object_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { [namespace, "/", name].concat() }
}

/// Namespace and name of an object; the namespace is empty for what lives in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Name {
    /// A name from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The name of an object.
    pub fn of(object: &Object) -> Self {
        Self::new(&object.meta.namespace, &object.meta.name)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}
