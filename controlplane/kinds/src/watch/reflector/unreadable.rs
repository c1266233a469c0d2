//! Objects that are stored and cannot be read: too deep for a parser, no JSON, without metadata. An older version may have
//! written them, or somebody who wrote to the store by hand. They are listed here so that an operator can find them.

use crate::object::decode::DecodeError;
use crate::registry::kinds::Kind;
use coracle_store::Revision;
use coracle_store::encryption::provider::is_encrypted;
use parking_lot::RwLock;
use std::collections::BTreeMap;

/// A stored object that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stored object {key} cannot be read: {why}; {}",
    advice(.encrypted)
)]
pub struct Unreadable {
    /// Its key in the store.
    pub key: String,
    /// The revision it was written at.
    pub revision: Revision,
    /// Why it cannot be read.
    pub why: String,
    /// Whether it is encrypted, and no key opens it.
    pub encrypted: bool,
}

/// What can be done about it. What a key would open is not lost.
fn advice(encrypted: &bool) -> &'static str {
    match encrypted {
        true => {
            "put the key that it was encrypted with back into the encryption configuration, or restore a backup; deleting it loses its contents"
        }
        false => "restore it from a backup, or delete it",
    }
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
    pub(super) fn insert(&self, key: String, revision: Revision, value: Option<&[u8]>, error: &DecodeError) {
        let (why, encrypted) = (error.to_string(), value.is_some_and(is_encrypted));
        let advice = advice(&encrypted);
        tracing::error!(key, rv = revision, why, advice, "stored object cannot be read, skipped");
        self.0.write().insert(key.clone(), Unreadable { key, revision, why, encrypted });
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
