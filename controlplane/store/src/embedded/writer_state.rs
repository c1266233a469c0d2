//! What the writer has committed and published so far.

use super::{
    disk::Disk,
    history::{History, KEEP_BYTES, KEEP_CHANGES},
    record::Marks,
    watchers::Watchers,
};
use crate::{Change, Revision};
use bytes::Bytes;
use std::{sync::Arc, time::Instant};

/// The state of the writer; recovery sets it to what the files hold.
pub(super) struct WriterState {
    pub disk: Disk,
    pub watchers: Arc<Watchers>,
    pub marks: Marks,
    pub revision: Revision,
    pub history: History,
    /// When the oldest write that is not synced was made.
    pub unsynced: Option<Instant>,
}

impl WriterState {
    /// Goes on after the revision, the newest in the files.
    pub fn new(disk: Disk, marks: Marks, revision: Revision) -> Self {
        Self {
            disk,
            watchers: Arc::new(Watchers::new(revision)),
            marks,
            revision,
            history: History::new(KEEP_CHANGES, KEEP_BYTES, revision),
            unsynced: None,
        }
    }

    /// Counts changes that are on disk as history. A batch that failed is none: its revisions are given again.
    pub fn count(&mut self, changes: &[Change]) {
        for change in changes {
            self.history.push(change.revision, change.value.as_ref().map_or(0, Bytes::len) as u64);
        }
    }
}
