//! Request bodies to objects: JSON and YAML text, then the rules of the type.
//!
//! Text becomes a [`Tree`] that still knows repeated keys; [`typed`] turns it into the object that Go would have read:
//! unknown fields and nulls are gone, quantities and times are canonical, empty values that Go leaves out are left out.

// Decoding errors.
mod error;
// JSON to an untyped tree.
mod tree;
// YAML to an untyped tree.
mod yaml;
// Typed decoding of a tree.
mod typed;
// Fields that stand twice in a body.
mod repeated;
// Normalization to Go's serialized form.
mod normalize;

use serde_json::Value;

pub use error::{DecodeError, JsonError, YamlError};
pub use normalize::normalize;
pub use tree::{Tree, from_json, from_json_within};
pub use typed::{Read, read, read_any};
pub use yaml::{Yaml, from_yaml};

pub(crate) use normalize::{add_zero_values, keeps};

/// What a body held: its kind and the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// `apiVersion` as written.
    pub api_version: String,
    /// `kind` as written.
    pub kind: String,
}

impl Meta {
    /// Reads `apiVersion` and `kind`; fails when they are not strings or the body is not an object.
    pub fn of(tree: &Tree) -> Result<Self, DecodeError> {
        let wrong = |found: &str, field: &str, expected: &str| {
            let place = if field.is_empty() { "value".to_owned() } else { format!("struct field .{field}") };
            Err(DecodeError::Type { found: found.to_owned(), place, expected: expected.to_owned() })
        };
        let mut meta = Self::default();
        match tree {
            Tree::Object(fields) => {
                for (name, value) in fields {
                    let slot = match name.as_str() {
                        "kind" => &mut meta.kind,
                        "apiVersion" => &mut meta.api_version,
                        _ => continue,
                    };
                    match value {
                        Tree::String(text) => slot.clone_from(text),
                        Tree::Null => {}
                        other => return wrong(other.found(), name, "string"),
                    }
                }
                Ok(meta)
            }
            Tree::Null => Ok(meta),
            other => wrong(
                other.found(),
                "",
                "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
            ),
        }
    }

    /// Group and version; the group is empty for core.
    pub fn group_version(&self) -> (&str, &str) {
        self.api_version.split_once('/').unwrap_or(("", &self.api_version))
    }
}

/// Any JSON as a plain value, for bodies without a type.
pub fn plain(tree: Tree) -> Value {
    read_any(tree).value
}
