//! Our keys and revisions among those of etcd. Keys have a prefix. Revisions that clients see are etcd's plus an offset, which
//! is written once, before the first object: an etcd that was loaded from elsewhere continues behind the revisions there.

use super::error::EtcdError;
use crate::{KeyValue, Revision, StoreError};
use bytes::Bytes;

/// The key of the offset, a decimal number.
pub(super) const OFFSET: &str = "/coracle/revision-offset";
/// Who changed or deleted an object last, as a number that each such write draws.
pub(super) const WRITER: &str = "/coracle/store/writer";
/// Present while keys are loaded into the store.
pub(super) const LOADING: &str = "/coracle/store/loading";

/// Translates keys and revisions.
#[derive(Debug, Clone)]
pub(super) struct Keyspace {
    root: String,
    pub offset: Revision,
}

impl Keyspace {
    pub fn new(root: &str, offset: Revision) -> Self {
        Self { root: root.to_owned(), offset }
    }

    pub fn with_offset(&self, offset: Revision) -> Self {
        Self { root: self.root.clone(), offset }
    }

    pub fn key(&self, key: &str) -> String {
        format!("{}{key}", self.root)
    }

    /// The key behind all keys with the prefix.
    pub fn end(&self, prefix: &str) -> Vec<u8> {
        end(&self.key(prefix))
    }

    /// Our revision of one of etcd.
    pub fn seen(&self, etcd: i64) -> Revision {
        etcd.unsigned_abs() + self.offset
    }

    /// etcd's revision for one that a key is expected to have. One that no key here ever had stays one.
    pub fn expected(&self, revision: Revision) -> i64 {
        match revision {
            0 => 0,
            revision => revision.checked_sub(self.offset).filter(|etcd| *etcd > 0).map_or(i64::MAX, number),
        }
    }

    /// etcd's revision for a point in history, if etcd was there then.
    pub fn history(&self, revision: Revision) -> Result<i64, StoreError> {
        revision.checked_sub(self.offset).map(number).ok_or(StoreError::Compacted(revision))
    }

    pub fn key_value(&self, found: etcd_client::KeyValue) -> Result<KeyValue, StoreError> {
        let (created, modified) = (self.seen(found.create_revision()), self.seen(found.mod_revision()));
        let (key, value) = found.into_key_value();
        Ok(KeyValue { key: self.own(key)?, value: Bytes::from(value), created, modified })
    }

    /// Our name of a key.
    pub fn own(&self, key: Vec<u8>) -> Result<String, EtcdError> {
        let mut key = String::from_utf8(key).map_err(EtcdError::Key)?;
        if !key.starts_with(&self.root) {
            return Err(EtcdError::Foreign(key));
        }
        key.drain(..self.root.len());
        Ok(key)
    }
}

fn number(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// The key behind all keys with the prefix, which ends in no byte that cannot be counted up.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        Some(last) => *last += 1,
        None => end.push(0),
    }
    end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn revisions_are_moved_by_the_offset() {
        let keys = Keyspace::new("/a", 1000);
        assert_eq!(keys.seen(5), 1005);
        assert_eq!([0, 7, 1000, 1005].map(|one| keys.expected(one)), [0, i64::MAX, i64::MAX, 5]);
        assert_eq!((keys.history(1000).unwrap(), keys.history(1005).unwrap()), (0, 5));
        assert!(matches!(keys.history(999), Err(StoreError::Compacted(999))));
    }

    #[test]
    fn keys_of_others_are_not_ours() {
        let keys = Keyspace::new("/a", 0);
        assert_eq!((keys.key("/registry/x").as_str(), keys.end("/r")), ("/a/registry/x", b"/a/s".to_vec()));
        assert_eq!(keys.own(b"/a/registry/x".to_vec()).unwrap(), "/registry/x");
        assert!(matches!(keys.own(b"/b/registry/x".to_vec()), Err(EtcdError::Foreign(_))));
        assert_eq!(end(""), [0]);
    }
}
