//! Changes that become visible, and survive, as a whole.

use super::{
    files::Files,
    journal,
    record::{MARKS, Marks, Record, Version},
};
use crate::{Revision, StoreError};
use fjall::{OwnedWriteBatch, PersistMode};
use parking_lot::MappedRwLockReadGuard;

/// Changes that are not made yet.
pub(super) struct Batch<'a> {
    inner: OwnedWriteBatch,
    files: MappedRwLockReadGuard<'a, Files>,
}

impl<'a> Batch<'a> {
    pub fn new(files: MappedRwLockReadGuard<'a, Files>) -> Self {
        Self { inner: files.db.batch(), files }
    }

    pub fn put_marks(&mut self, marks: &Marks) {
        self.inner.insert(&self.files.index, MARKS, marks.encode());
    }

    pub fn put(&mut self, revision: Revision, record: &Record) {
        if record.value.is_some() {
            let version = Version { created: record.created, modified: revision };
            self.inner.insert(&self.files.index, record.key, version.encode());
        } else {
            self.inner.remove(&self.files.index, record.key);
        }
        self.inner.insert(&self.files.log, revision.to_be_bytes(), record.encode());
    }

    /// Removes one entry of the log.
    pub fn forget(&mut self, revision: Revision) {
        self.inner.remove(&self.files.log, revision.to_be_bytes());
    }

    /// Makes the changes, on disk or soon.
    pub fn commit(mut self, sync: bool) -> Result<(), StoreError> {
        let mode = if sync {
            PersistMode::SyncData
        } else {
            // Who reads the journal must know that what stands before the next batch may not have been on disk then.
            self.inner.insert(&self.files.index, journal::LAZY, []);
            PersistMode::Buffer
        };
        Ok(self.inner.durability(Some(mode)).commit()?)
    }

    /// Removes what only states before `upto` need, of changes after `from`.
    pub fn trim(&mut self, from: Revision, upto: Revision) -> Result<(), StoreError> {
        let range = (from + 1).to_be_bytes()..=upto.to_be_bytes();
        for entry in self.files.log.range(range) {
            let (revision, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.previous > 0 {
                self.inner.remove(&self.files.log, record.previous.to_be_bytes());
            }
            if record.value.is_none() {
                self.inner.remove(&self.files.log, revision);
            }
        }
        Ok(())
    }
}

impl Marks {
    /// Forgets history up to the revision, but nothing after `newest`: what is written at or below `compacted` later
    /// would never be trimmed. The marks themselves are still to be put.
    pub fn compact(
        &mut self,
        batch: &mut Batch<'_>,
        upto: Revision,
        newest: Revision,
    ) -> Result<(), StoreError> {
        let upto = upto.min(newest);
        if upto > self.compacted {
            batch.trim(self.compacted, upto)?;
            self.compacted = upto;
            self.lost.retain(|(_, again)| *again > upto);
        }
        Ok(())
    }
}
