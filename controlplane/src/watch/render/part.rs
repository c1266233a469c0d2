//! One pass over an object that reads its metadata and what its fields look at, and skips all else.

use crate::object::Meta;
use crate::registry::kinds::Field;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

/// The metadata, and a tree of what the fields look at. Fails also for what is unusual but right, such as a metadata member
/// that is null: then all is to be read.
pub fn read(fields: &[Field], json: &[u8]) -> Result<(Meta, Value), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let read = reader.deserialize_map(Whole(fields))?;
    reader.end()?;
    Ok(read)
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
            let mut reads = self.0.iter().flat_map(|field| field.reads);
            if member == "metadata" {
                meta = Some(map.next_value()?);
            } else if reads.clone().any(|read| *read == member) {
                found.insert(member.to_owned(), map.next_value()?);
            } else if reads.any(|read| inner(read, member).is_some()) {
                found.insert(member.to_owned(), map.next_value_seed(Within(self.0, member))?);
            } else {
                map.next_value::<IgnoredAny>()?;
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
            let mut reads = self.0.iter().flat_map(|field| field.reads);
            if reads.any(|read| inner(read, self.1) == Some(member)) {
                found.insert(member.to_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(found))
    }
}
