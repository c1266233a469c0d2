//! Snapshots of the engine that outlive a read. They end before the files are closed.

use super::record::{Record, Version, broken};
use crate::{KeyValue, StoreError};
use fjall::{Keyspace, Readable, Snapshot};
use parking_lot::Mutex;
use std::{
    ops::Bound,
    sync::{Arc, Weak},
};

/// Limits of one page.
pub(super) const PAGE_KEYS: usize = 1024;
const PAGE_BYTES: usize = 4 << 20;

/// The engine as it was at one moment; `None` after the files were closed.
pub(super) type Pinned = Mutex<Option<Moment>>;

pub(super) struct Moment {
    pub at: Snapshot,
    pub index: Keyspace,
    pub log: Keyspace,
}

/// The exports under way.
#[derive(Default)]
pub(super) struct Exports(Mutex<Vec<Weak<Pinned>>>);

impl Exports {
    pub fn add(&self, moment: Moment) -> Arc<Pinned> {
        let pinned = Arc::new(Mutex::new(Some(moment)));
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(&pinned));
        pinned
    }

    /// Ends all exports, so that none of them keeps the engine open.
    pub fn end(&self) {
        for one in self.0.lock().drain(..).filter_map(|one| one.upgrade()) {
            one.lock().take();
        }
    }
}

impl Moment {
    /// The next keys with the prefix; none at the end.
    pub fn page(&self, prefix: &str, from: Bound<Vec<u8>>) -> Result<Vec<KeyValue>, StoreError> {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for entry in self.at.range(&self.index, (from, Bound::Unbounded)) {
            let (key, raw) = entry.into_inner()?;
            if !key.starts_with(prefix.as_bytes()) {
                break;
            }
            // Marks are no keys.
            if key.first() != Some(&b'/') {
                continue;
            }
            let revision = Version::decode(&raw)?.modified;
            let raw = self.at.get(&self.log, revision.to_be_bytes())?.ok_or_else(broken)?;
            let found = Record::decode(&raw)?.key_value(revision).ok_or_else(broken)?;
            bytes += found.key.len() + found.value.len();
            page.push(found);
            if page.len() >= PAGE_KEYS || bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(page)
    }
}
