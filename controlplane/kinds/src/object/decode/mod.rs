//! From stored bytes to an object. The store knows a value's revision, so the bytes do not hold it; `resourceVersion` is put in
//! as the first member of the metadata when the value is read.
//!
//! Bytes become an object only if all of them can be read as a tree later, also the parts that are skipped here: what an
//! object holds is read by tasks that serve all objects.

// Parts that are only checked.
mod skipped;
// The parts of an object that are read.
mod partial;

use super::field::Field;
use super::{Meta, Object};
use bytes::Bytes;
use coracle_store::Revision;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use skipped::Skipped;

/// Why stored bytes are no object.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// There is no `"metadata":{`.
    #[error("the value has no metadata")]
    NoMetadata,
    /// It is not JSON, or nested too deep, or the metadata has other types.
    #[error("the value is not an object: {0}")]
    Json(#[from] serde_json::Error),
    /// The metadata names another object than the key.
    #[error("the metadata is that of another object, \"{namespace}/{name}\"")]
    Misplaced {
        /// The namespace in the metadata.
        namespace: String,
        /// The name in the metadata.
        name: String,
    },
}

/// Whether a field is there and not null.
pub(super) fn is_given<'de, D: Deserializer<'de>>(reader: D) -> Result<bool, D::Error> {
    Option::<Skipped>::deserialize(reader).map(|given| given.is_some())
}

const METADATA: &[u8] = b"\"metadata\":{";
const VERSION: &[u8] = b"\"resourceVersion\":\"";

/// An object from its stored bytes.
pub fn object(fields: &[Field], stored: &[u8], revision: Revision) -> Result<Object, DecodeError> {
    let mut json = Vec::with_capacity(stored.len() + 48);
    put_object(&mut json, stored, revision)?;
    read(fields, Bytes::from(json), revision)
}

impl Object {
    /// An object from its stored bytes; revision 0 (a dry run) leaves the resource version out.
    pub fn from_stored(fields: &[Field], stored: &Bytes, revision: Revision) -> Result<Self, DecodeError> {
        if revision > 0 {
            return object(fields, stored, revision);
        }
        let mut object = object(fields, stored, 1)?;
        object.revision = 0;
        object.json = stored.clone();
        Ok(object)
    }
}

/// Appends stored bytes with their `resourceVersion`.
pub(crate) fn put_object(out: &mut Vec<u8>, stored: &[u8], revision: Revision) -> Result<(), DecodeError> {
    let inside = find(stored, METADATA).ok_or(DecodeError::NoMetadata)? + METADATA.len();
    let (head, rest) = stored.split_at(inside);
    out.extend_from_slice(head);
    out.extend_from_slice(VERSION);
    out.extend_from_slice(revision.to_string().as_bytes());
    out.push(b'"');
    if rest.first() != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// The bytes as they are stored: without the `resourceVersion` that [`object`] put in.
pub fn unversioned(json: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let inside = find(json, METADATA).ok_or(DecodeError::NoMetadata)? + METADATA.len();
    let (head, rest) = json.split_at(inside);
    let rest = match rest.strip_prefix(VERSION) {
        Some(rest) => {
            let rest = &rest[rest.iter().position(|b| *b == b'"').map_or(0, |end| end + 1)..];
            rest.strip_prefix(b",").unwrap_or(rest)
        }
        None => rest,
    };
    Ok([head, rest].concat())
}

// The metadata comes third in what the server writes, so this stops early.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

/// An object from bytes that have a `resourceVersion`.
pub(crate) fn read(fields: &[Field], json: Bytes, revision: Revision) -> Result<Object, DecodeError> {
    if fields.iter().all(|field| !field.reads.is_empty())
        && let Ok((meta, value)) = partial::read(fields, &json)
    {
        let fields = fields.iter().map(|field| (field.get)(&value)).collect();
        return Ok(Object { revision, meta, json, fields });
    }
    skipped::check(&json)?;
    let value: Value = serde_json::from_slice(&json)?;
    let fields = fields.iter().map(|field| (field.get)(&value)).collect();
    Ok(Object { revision, meta: meta(&value)?, json, fields })
}

/// The metadata of a tree. Fails when it has other types than metadata has: bytes of such a tree are no object.
pub fn meta(value: &Value) -> Result<Meta, DecodeError> {
    let metadata = value.get("metadata").unwrap_or(&Value::Null);
    match Meta::deserialize(metadata) {
        Ok(meta) => Ok(meta),
        // Clients may send `null` for what they do not set.
        Err(_) => {
            let mut metadata = metadata.clone();
            if let Value::Object(members) = &mut metadata {
                members.retain(|_, member| !member.is_null());
            }
            Ok(Meta::deserialize(&metadata)?)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn puts_the_revision_first_in_the_metadata() {
        for (stored, want) in [
            (
                &br#"{"kind":"A","metadata":{"name":"a"}}"#[..],
                r#"{"kind":"A","metadata":{"resourceVersion":"7","name":"a"}}"#,
            ),
            (br#"{"kind":"A","metadata":{}}"#, r#"{"kind":"A","metadata":{"resourceVersion":"7"}}"#),
        ] {
            let object = object(&[], stored, 7).unwrap();
            assert_eq!(object.json, want);
            assert_eq!(unversioned(&object.json).unwrap(), stored);
            assert_eq!(unversioned(stored).unwrap(), stored);
        }
        assert!(matches!(object(&[], b"{}", 7), Err(DecodeError::NoMetadata)));
        assert!(matches!(object(&[], br#"{"metadata":{]"#, 7), Err(DecodeError::Json(_))));
    }

    #[test]
    fn what_is_read_in_part_is_as_if_read_whole() {
        let get = |v: &Value| format!("{}{}{}", v["type"], v["spec"]["nodeName"], v["status"]["ips"]);
        let part = Field::new("all", get).reading(&["type", "spec.nodeName", "status.ips"]);
        for rest in [
            r#""type":"t","spec":{"a":{"nodeName":"no"},"nodeName":"x"},"status":{"ips":[{"ip":"1"}],"b":[1]}"#,
            r#""spec":null,"status":{"ips":null}"#,
            r#""spec":{"node\u004eame":"x"},"extra":{"spec":{"nodeName":"no"}}"#,
            r#""spec":"text""#,
        ] {
            let stored = format!(r#"{{"kind":"A","metadata":{{"name":"a","labels":{{"l":"m"}}}},{rest}}}"#);
            let in_part = object(std::slice::from_ref(&part), stored.as_bytes(), 1).unwrap();
            let whole = object(&[Field::new("all", get)], stored.as_bytes(), 1).unwrap();
            assert_eq!((in_part.fields, in_part.meta), (whole.fields, whole.meta), "{rest}");
        }
    }

    /// Objects that only a part is read of, and objects that are read whole.
    fn both(json: &str) -> [Result<Object, DecodeError>; 2] {
        let part = Field::new("spec.nodeName", |_| String::new()).reading(&["spec.nodeName"]);
        [
            object(&[part], json.as_bytes(), 1),
            object(&[Field::new("all", |_| String::new())], json.as_bytes(), 1),
        ]
    }

    #[test]
    fn bytes_that_are_no_tree_are_no_object() {
        use coracle_proto::limits::RESERVED;
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let reserved = format!(r#"{{"{RESERVED}":"x"}}"#);
        let hidden = format!(r#"{{"\u0024{}":"[]"}}"#, &RESERVED[1..]);
        for part in [deep.as_str(), &reserved, &hidden, r#""\ud800""#, "1e999", "[1", "\"\u{1}\""] {
            for text in [
                format!(r#"{{"metadata":{{"name":"a"}},"data":{part}}}"#),
                format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"other":{part}}}}}"#),
                format!(r#"{{"metadata":{{"name":"a","annotations":{part}}}}}"#),
                format!(r#"{{"metadata":{{"name":"a","managedFields":[{{"fieldsV1":{part}}}]}}}}"#),
                format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"nodeName":{part}}}}}"#),
                format!(r#"{{"metadata":{{"name":"a","new":{part}}}}}"#),
                format!(
                    r#"{{"metadata":{{"ownerReferences":[{{"new":{part},"apiVersion":"","kind":"","name":"","uid":""}}]}}}}"#
                ),
            ] {
                assert!(both(&text).iter().all(Result::is_err), "{text}");
            }
        }
        // The name itself, at every level that is not skipped whole.
        for text in [
            format!(r#"{{"{RESERVED}":"[]","metadata":{{"name":"a"}}}}"#),
            format!(r#"{{"metadata":{{"name":"a"}},"spec":{{"{RESERVED}":"x"}}}}"#),
            format!(r#"{{"metadata":{{"{RESERVED}":"x","name":"a"}}}}"#),
            format!(r#"{{"metadata":{{"name":"a","labels":{{"{RESERVED}":"x"}}}}}}"#),
        ] {
            assert!(both(&text).iter().all(Result::is_err), "{text}");
        }
    }

    proptest::proptest! {
        /// Whatever was stored: if it became an object, it can be read as a tree.
        #[test]
        fn every_object_can_be_read(parts in proptest::collection::vec("[\\[{\\]},:]|\"[a-z\\\\]{0,3}\"|\"metadata\":\\{|\"name\":\"a\"|[0-9]{1,3}|1e999|null", 0..30)) {
            let text = format!(r#"{{"metadata":{{"name":"a"}},{}}}"#, parts.concat());
            for object in both(&text).into_iter().flatten() {
                proptest::prop_assert!(object.value().is_object());
            }
        }
    }

    #[test]
    fn an_object_with_initializers_is_not_initialized() {
        for (initializers, expected) in
            [("null", false), (r#"{"pending":[{"name":"a.example.com"}]}"#, true), ("{}", true)]
        {
            let text = format!(r#"{{"metadata":{{"name":"a","initializers":{initializers}}}}}"#);
            assert_eq!(both(&text).map(|object| object.unwrap().meta.uninitialized), [expected; 2]);
        }
    }

    #[test]
    fn null_members_of_the_metadata_are_as_if_unset() {
        let stored = json!({"metadata": {"name": "a", "labels": null, "finalizers": null}}).to_string();
        let object = object(&[], stored.as_bytes(), 1).unwrap();
        assert_eq!(object.meta, Meta { name: "a".to_owned(), ..Meta::default() });
    }
}
