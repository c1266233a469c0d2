//! One pass over an object that reads its metadata and what its fields look at, and skips all else.

use super::skipped::{Kept, Skipped, Texts, allowed};
use crate::object::field::Field;
use crate::object::{Meta, Owner};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The metadata, and a tree of what the fields look at. Fails also for what is unusual but right, such as a metadata member
/// that is null or unknown: then all is to be read.
pub fn read(fields: &[Field], json: &[u8]) -> Result<(Meta, Value), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = reader.deserialize_map(Whole(fields))?;
    reader.end()?;
    Ok(read)
}

/// The metadata as the server writes it. A derived reader would skip members that it does not know without a look at them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    labels: Texts,
    owner_references: Vec<Reference>,
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
    generation: i64,
    initializers: Option<Skipped>,
    #[serde(rename = "resourceVersion")]
    _resource_version: Skipped,
    #[serde(rename = "annotations")]
    _annotations: Skipped,
    #[serde(rename = "creationTimestamp")]
    _creation_timestamp: Skipped,
    #[serde(rename = "deletionGracePeriodSeconds")]
    _deletion_grace_period_seconds: Skipped,
    #[serde(rename = "generateName")]
    _generate_name: Skipped,
    #[serde(rename = "managedFields")]
    _managed_fields: Skipped,
    #[serde(rename = "selfLink")]
    _self_link: Skipped,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
    #[serde(default)]
    block_owner_deletion: bool,
}

impl From<Reference> for Owner {
    fn from(one: Reference) -> Self {
        let Reference { api_version, kind, name, uid, controller, block_owner_deletion } = one;
        Owner { api_version, kind, name, uid, controller, block_owner_deletion }
    }
}

impl From<Metadata> for Meta {
    fn from(all: Metadata) -> Self {
        Meta {
            name: all.name,
            namespace: all.namespace,
            uid: all.uid,
            labels: all.labels.0,
            owner_references: all.owner_references.into_iter().map(Owner::from).collect(),
            finalizers: all.finalizers,
            deletion_timestamp: all.deletion_timestamp,
            generation: all.generation,
            uninitialized: all.initializers.is_some(),
        }
    }
}

/// An object.
struct Whole<'a>(&'a [Field]);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = (Meta, Value);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (mut meta, mut found) = (None, Map::new());
        while let Some(member) = map.next_key::<&str>()? {
            allowed::<M::Error>(member)?;
            let mut reads = self.0.iter().flat_map(|field| &field.reads);
            if member == "metadata" {
                meta = Some(map.next_value::<Metadata>()?.into());
            } else if reads.clone().any(|read| *read == member) {
                found.insert(member.to_owned(), map.next_value::<Kept>()?.0);
            } else if reads.any(|read| inner(read, member).is_some()) {
                found.insert(member.to_owned(), map.next_value_seed(Within(self.0, member))?);
            } else {
                map.next_value::<Skipped>()?;
            }
        }
        let meta = meta.ok_or_else(|| M::Error::missing_field("metadata"))?;
        Ok((meta, Value::Object(found)))
    }
}

/// What is read in a member of an object.
fn inner<'a>(read: &'a str, member: &str) -> Option<&'a str> {
    read.strip_prefix(member)?.strip_prefix('.')
}

/// A member of an object.
struct Within<'a>(&'a [Field], &'a str);

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Within<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a member that is an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Value, M::Error> {
        let mut found = Map::new();
        while let Some(member) = map.next_key::<&str>()? {
            allowed::<M::Error>(member)?;
            let mut reads = self.0.iter().flat_map(|field| &field.reads);
            if reads.any(|read| inner(read, self.1) == Some(member)) {
                found.insert(member.to_owned(), map.next_value::<Kept>()?.0);
            } else {
                map.next_value::<Skipped>()?;
            }
        }
        Ok(Value::Object(found))
    }
}
