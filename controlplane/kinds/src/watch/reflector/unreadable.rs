//! Objects that are stored and cannot be read: too deep for a parser, no JSON, without metadata. An older version may have
//! written them, or somebody who wrote to the store by hand. They are listed here so that an operator can find them.

use crate::object::decode::DecodeError;
use crate::registry::kinds::Kind;
use coracle_store::Revision;
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// A stored object that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored object {key} cannot be read: {why}; it can only be deleted")]
pub struct Unreadable {
    /// Its key in the store.
    pub key: String,
    /// The revision it was written at.
    pub revision: Revision,
    /// Why it cannot be read.
    pub why: String,
}

impl Unreadable {
    /// Namespace and name, if it is of this kind.
    pub fn name(&self, kind: &Kind) -> Option<(&str, &str)> {
        let rest = self.key.strip_prefix(&kind.prefix())?;
        if kind.namespaced() { rest.split_once('/') } else { Some(("", rest)) }
    }
}

/// All of them, by key.
#[derive(Default)]
pub(super) struct UnreadableObjects(RwLock<BTreeMap<String, Unreadable>>);

impl UnreadableObjects {
    pub(super) fn insert(&self, key: String, revision: Revision, error: &DecodeError) {
        let why = error.to_string();
        tracing::error!(key, rv = revision, why, "stored object cannot be read, skipped; delete it");
        self.0.write().insert(key.clone(), Unreadable { key, revision, why });
    }

    /// The key can be read again, or is gone. It is made only when there is something to forget.
    pub(super) fn forget(&self, key: impl FnOnce() -> String) {
        if !self.0.read().is_empty() {
            self.0.write().remove(&key());
        }
    }

    pub(super) fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.0.write().retain(|key, _| keep(key));
    }

    pub(super) fn find(&self, key: &str) -> Option<Unreadable> {
        self.0.read().get(key).cloned()
    }

    pub(super) fn all(&self) -> Vec<Unreadable> {
        self.0.read().values().cloned().collect()
    }
}
