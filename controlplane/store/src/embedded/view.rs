//! Reads of the store as it was at one moment, and at a revision before it.

use super::{
    files::Files,
    record::{MARKS, Marks, Record, Version, broken, number},
};
use crate::{Change, KeyValue, Revision, StoreError};
use fjall::{Guard, Readable, Snapshot};
use parking_lot::MappedRwLockReadGuard;
use std::collections::{BTreeMap, HashMap};

/// When there are up to this many entries in the log for one that is wanted, it is quicker to read all.
const SPARSE: u64 = 8;

/// The store as it was at one moment.
pub(super) struct View<'a> {
    pub at: Snapshot,
    pub files: MappedRwLockReadGuard<'a, Files>,
}

impl<'a> View<'a> {
    pub fn new(files: MappedRwLockReadGuard<'a, Files>) -> Self {
        Self { at: files.db.snapshot(), files }
    }

    pub fn marks(&self) -> Result<Marks, StoreError> {
        match self.at.get(&self.files.index, MARKS)? {
            None => Ok(Marks::default()),
            Some(raw) => serde_json::from_slice(&raw).map_err(|_| broken()),
        }
    }

    /// The revision of the last entry in the log, 0 if it is empty.
    pub fn last(&self) -> Result<Revision, StoreError> {
        let last = self.at.last_key_value(&self.files.log).map(Guard::key).transpose()?;
        last.map_or(Ok(0), |key| number(&key, 0))
    }

    /// The newest revision that the files know of.
    pub fn known(&self) -> Result<Revision, StoreError> {
        Ok(self.last()?.max(self.marks()?.reached()))
    }

    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.at.get(&self.files.index, key)? {
            None => Ok(None),
            Some(raw) => Ok(Some(self.put_at(Version::decode(&raw)?.modified)?)),
        }
    }

    /// The changes after `after` in order, at most `limit`; whatever their key.
    pub fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Change>, StoreError> {
        let mut changes = Vec::new();
        for entry in self.at.range(&self.files.log, (after + 1).to_be_bytes()..).take(limit) {
            let (revision, raw) = entry.into_inner()?;
            changes.push(Record::decode(&raw)?.change(number(&revision, 0)?));
        }
        Ok(changes)
    }

    /// All keys with the prefix as they were at the revision, which must be in the kept history.
    pub fn range(&self, prefix: &str, at: Option<Revision>) -> Result<Vec<KeyValue>, StoreError> {
        let mut versions = BTreeMap::new();
        for entry in self.at.prefix(&self.files.index, prefix) {
            let (key, raw) = entry.into_inner()?;
            if key.first() == Some(&b'/') {
                versions.insert(key, Version::decode(&raw)?.modified);
            }
        }
        if let Some(at) = at {
            for (key, previous) in self.since(prefix, at)? {
                match previous {
                    0 => versions.remove(key.as_bytes()),
                    revision => versions.insert(key.as_bytes().into(), revision),
                };
            }
        }
        // In the order of the log, so that each of its blocks is read once.
        let mut order: Vec<_> = versions.into_values().enumerate().collect();
        order.sort_unstable_by_key(|(_, revision)| *revision);
        let mut found = Vec::with_capacity(order.len());
        match (order.first(), order.last()) {
            (Some((_, first)), Some((_, last))) if last - first < SPARSE * order.len() as u64 => {
                let log = self.at.range(&self.files.log, first.to_be_bytes()..=last.to_be_bytes());
                let mut wanted = order.iter().peekable();
                for entry in log {
                    let (revision, raw) = entry.into_inner()?;
                    let revision = number(&revision, 0)?;
                    if let Some((place, _)) = wanted.next_if(|(_, one)| *one == revision) {
                        found.push((*place, Record::decode(&raw)?.key_value(revision).ok_or_else(broken)?));
                    }
                }
                if wanted.next().is_some() {
                    return Err(broken());
                }
            }
            _ => {
                for (place, revision) in order {
                    found.push((place, self.put_at(revision)?));
                }
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// The keys that changed after the revision and which revision each had then, 0 for none.
    fn since(&self, prefix: &str, at: Revision) -> Result<HashMap<String, Revision>, StoreError> {
        let mut then = HashMap::new();
        for entry in self.at.range(&self.files.log, (at + 1).to_be_bytes()..) {
            let (_, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.key.starts_with(prefix) && !then.contains_key(record.key) {
                then.insert(record.key.to_owned(), record.previous);
            }
        }
        Ok(then)
    }

    fn put_at(&self, revision: Revision) -> Result<KeyValue, StoreError> {
        let raw = self.at.get(&self.files.log, revision.to_be_bytes())?.ok_or_else(broken)?;
        Record::decode(&raw)?.key_value(revision).ok_or_else(broken)
    }
}
