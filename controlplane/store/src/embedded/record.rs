//! What stands on disk: the index (`key` to its revisions) and the log (`revision` to what happened).

use crate::{Change, KeyValue, Revision, StoreError, Unhealthy};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The index's answer for a key: when it was made and last changed. The value stands in the log at `modified`, so
/// that every value is written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub created: Revision,
    pub modified: Revision,
}

impl Version {
    pub fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.created.to_be_bytes());
        out[8..].copy_from_slice(&self.modified.to_be_bytes());
        out
    }

    pub fn decode(raw: &[u8]) -> Result<Self, StoreError> {
        Ok(Self { created: number(raw, 0)?, modified: number(raw, 8)? })
    }
}

/// One entry of the log. `previous` is the revision of the key's value before, 0 if it had none: it leads back to
/// older states and tells compaction what nobody needs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub created: Revision,
    pub previous: Revision,
    pub key: &'a str,
    /// `None` for a delete.
    pub value: Option<&'a [u8]>,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const HEADER: usize = 1 + 8 + 8 + 2;

impl<'a> Record<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let value = self.value.unwrap_or_default();
        let mut out = Vec::with_capacity(HEADER + self.key.len() + value.len());
        out.push(if self.value.is_some() { PUT } else { DELETE });
        out.extend_from_slice(&self.created.to_be_bytes());
        out.extend_from_slice(&self.previous.to_be_bytes());
        out.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(value);
        out
    }

    pub fn decode(raw: &'a [u8]) -> Result<Self, StoreError> {
        let (created, previous) = (number(raw, 1)?, number(raw, 9)?);
        let length = raw.get(17..HEADER).ok_or_else(broken)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let key = raw.get(HEADER..HEADER + length).ok_or_else(broken)?;
        let key = std::str::from_utf8(key).map_err(|_| broken())?;
        let value = match raw[0] {
            PUT => Some(&raw[HEADER + length..]),
            DELETE => None,
            _ => return Err(broken()),
        };
        Ok(Self { created, previous, key, value })
    }

    pub fn change(&self, revision: Revision) -> Change {
        Change {
            revision,
            key: self.key.to_owned(),
            value: self.value.map(Bytes::copy_from_slice),
            created: self.created,
        }
    }

    /// The key and value of a put; `None` for a delete.
    pub fn key_value(&self, revision: Revision) -> Option<KeyValue> {
        Some(KeyValue {
            key: self.key.to_owned(),
            value: Bytes::copy_from_slice(self.value?),
            created: self.created,
            modified: revision,
        })
    }
}

/// The key of [`Marks`] in the index. Sorts before every key, which begin with `/`.
pub(super) const MARKS: &str = "!marks";

/// What the store knows about its history; changes rarely.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marks {
    /// States before this revision are gone.
    pub compacted: Revision,
    /// Revisions up to here may have been shown to clients although they were not on disk; 0 after a clean stop.
    pub reserved: Revision,
    /// Open intervals `(last on disk, first again)` of revisions that a crash took. Who was in one must start over.
    #[serde(default)]
    pub lost: Vec<(Revision, Revision)>,
    /// After this revision none is missing but those that are compacted or lost. Not 0 if an earlier version made the
    /// store.
    #[serde(default)]
    pub whole_from: Revision,
    /// Every value in the log belongs to a key. Not set when an earlier version wrote these marks: it could leave values
    /// in compacted history that nothing leads to.
    #[serde(default)]
    pub no_orphans: bool,
}

impl Marks {
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers always serialise")
    }

    /// The newest revision that these marks alone account for.
    pub fn reached(&self) -> Revision {
        self.lost.iter().map(|(_, again)| *again).fold(self.compacted, Revision::max)
    }

    /// The revision that lies so many changes before `newest`. Revisions that a crash took are no changes.
    pub fn back(&self, newest: Revision, changes: u64) -> Revision {
        let (mut from, mut left) = (newest, changes);
        for (last, again) in self.lost.iter().rev() {
            let here = from.saturating_sub(*again);
            if left <= here {
                break;
            }
            (from, left) = (*last, left - here);
        }
        from.saturating_sub(left).max(self.compacted)
    }

    /// Whether history goes on without a hole from this revision.
    pub fn check(&self, from: Revision) -> Result<(), StoreError> {
        let lost = self.lost.iter().any(|(last, again)| *last < from && from < *again);
        if from < self.compacted || lost { Err(StoreError::Compacted(from)) } else { Ok(()) }
    }
}

pub(super) fn broken() -> StoreError {
    let detail = "the store holds a record that it did not write".to_owned();
    StoreError::Unavailable(Unhealthy::Damaged { detail })
}

pub(super) fn number(raw: &[u8], at: usize) -> Result<u64, StoreError> {
    let bytes = raw.get(at..at + 8).ok_or_else(broken)?;
    Ok(u64::from_be_bytes(bytes.try_into().map_err(|_| broken())?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn records_survive_the_trip() {
        for value in [None, Some(&b""[..]), Some(&b"{}"[..])] {
            let record = Record { created: 3, previous: 7, key: "/registry/pods/a/b", value };
            let raw = record.encode();
            assert_eq!(Record::decode(&raw).unwrap(), record);
            assert!(Record::decode(&raw[..10]).is_err());
        }
        let version = Version { created: 1, modified: u64::MAX };
        assert_eq!(Version::decode(&version.encode()).unwrap(), version);
        assert!(Version::decode(&[0; 15]).is_err());
    }

    #[test]
    fn history_has_holes_where_a_crash_took_revisions() {
        let marks = Marks { compacted: 10, lost: vec![(20, 30)], ..Marks::default() };
        let known = [9, 10, 20, 21, 29, 30, 31].map(|revision| marks.check(revision).is_ok());
        assert_eq!(known, [false, true, true, false, false, true, true]);
        let back = [0, 4, 5, 6, 10, 99].map(|changes| marks.back(35, changes));
        assert_eq!(back, [35, 31, 30, 19, 15, 10]);
    }
}
