//! Fields of objects that field selectors may name.

use serde_json::Value;
use std::sync::Arc;

/// A field that field selectors may name, besides `metadata.name` and `metadata.namespace`.
#[derive(Clone)]
pub struct Field {
    /// Such as `spec.nodeName`.
    pub name: String,
    /// Its value, empty when unset.
    pub get: Arc<dyn Fn(&Value) -> String + Send + Sync>,
    /// All that `get` looks at, as `member` or `member.member`; nothing when that is not known.
    pub reads: Vec<String>,
}

impl Field {
    /// A field by what clients call it and how to read it.
    pub fn new(name: impl Into<String>, get: impl Fn(&Value) -> String + Send + Sync + 'static) -> Self {
        Self { name: name.into(), get: Arc::new(get), reads: Vec::new() }
    }

    /// The field is read from nothing but these, so that the rest of an object need not be read for it.
    pub fn reading(self, reads: &[impl AsRef<str>]) -> Self {
        Self { reads: reads.iter().map(|read| read.as_ref().to_owned()).collect(), ..self }
    }
}
