//! Limits on objects: nesting depth, number of values, number of bytes.
//!
//! Decoders keep to [`MAX_BODY_DEPTH`] and [`MAX_NODES`] while they read, so that no tree exists that would exhaust the
//! stack or the memory of the functions that walk it. What is stored keeps to [`MAX_DEPTH`], [`MAX_NODES`] and
//! [`MAX_BYTES`].

use serde_json::Value;

/// Nested arrays and objects that a stored object may have. Clients that parse with a limit of 127 levels, as serde_json
/// does, read it inside every envelope: the events of a watch add one level, lists two, tables in a watch four.
pub const MAX_DEPTH: usize = 100;

/// The same for the sets in `metadata.managedFields`: the set of an object as deep as [`MAX_DEPTH`] is a few levels deeper
/// than the object, and the server itself writes it.
pub const MAX_OWNERS_DEPTH: usize = 110;

/// Nested arrays and objects that a request may have before its type is looked at; what serde_json reads.
pub const MAX_BODY_DEPTH: usize = 127;

/// Values that one object may hold. A tree takes up to some hundred bytes of memory per value, so that without this limit a
/// body of a few megabytes would take gigabytes. An object of [`MAX_BYTES`] reaches it with less than eight bytes per value.
pub const MAX_NODES: usize = 200_000;

/// Bytes of a stored object: the size of a request that etcd accepts by default.
pub const MAX_BYTES: usize = 1536 * 1024;

/// A field name that serde_json gives a meaning of its own: as the first name of an object it says that the value is JSON
/// text to parse. What was written under this name would be read as something else, or not at all.
pub const RESERVED: &str = "$serde_json::private::RawValue";

/// Levels of arrays and objects in a tree, 0 for a scalar. Takes one from `left` for every value it visits; `None` when
/// that runs out.
pub fn height(value: &Value, left: &mut usize) -> Option<usize> {
    *left = left.checked_sub(1)?;
    let mut most = 0;
    match value {
        Value::Array(items) => {
            for item in items {
                most = most.max(height(item, left)?);
            }
        }
        Value::Object(fields) => {
            for item in fields.values() {
                most = most.max(height(item, left)?);
            }
        }
        _ => return Some(0),
    }
    Some(most + 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_have_no_height() {
        for (value, want) in [(json!(1), 0), (json!({}), 1), (json!([1, [2], {"a": [{}]}]), 4)] {
            assert_eq!(height(&value, &mut 100), Some(want), "{value}");
        }
        assert_eq!(height(&json!([1, 2, 3]), &mut 3), None);
    }

    /// The reason for the reserved name: serde_json reads back something else than it wrote.
    #[test]
    fn the_reserved_name_is_what_serde_json_gives_a_meaning() {
        let mut fields = serde_json::Map::new();
        fields.insert(RESERVED.to_owned(), json!("[1]"));
        let text = serde_json::to_string(&Value::Object(fields)).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!([1]));
        assert!(serde_json::from_str::<Value>(&text.replace("[1]", "nonsense")).is_err());
    }
}
