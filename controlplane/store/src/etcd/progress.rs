//! How far the watch on our keys is, for readers that wait until it has reached the newest revision.

use super::endpoints::Endpoint;
use crate::Revision;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

/// What readers have asked for, and what the watch has shown.
#[derive(Default)]
pub(super) struct Progress {
    asked: AtomicU64,
    reached: AtomicU64,
    /// Somebody waits.
    pub behind: Notify,
    watches: Mutex<Watches>,
}

/// The watches on all our keys.
#[derive(Default)]
struct Watches {
    count: usize,
    /// The endpoint of the newest.
    endpoint: Option<Arc<Endpoint>>,
}

impl Progress {
    /// A reader may wait for this revision.
    pub fn asked(&self, revision: Revision) {
        self.asked.fetch_max(revision, Ordering::AcqRel);
        if self.is_behind() {
            self.behind.notify_one();
        }
    }

    /// The watch has shown everything up to this revision.
    pub fn reached(&self, revision: Revision) {
        self.reached.fetch_max(revision, Ordering::AcqRel);
    }

    /// A watch begins on this endpoint. What is before its first revision is known.
    pub fn begun(&self, endpoint: &Arc<Endpoint>, after: Revision) {
        self.reached(after);
        let mut watches = self.watches.lock();
        watches.count += 1;
        watches.endpoint = Some(endpoint.clone());
        self.behind.notify_one();
    }

    /// A watch has ended.
    pub fn ended(&self) {
        let mut watches = self.watches.lock();
        watches.count -= 1;
        if watches.count == 0 {
            watches.endpoint = None;
        }
    }

    pub fn endpoint(&self) -> Option<Arc<Endpoint>> {
        self.watches.lock().endpoint.clone()
    }

    /// The revision that was reached, if readers wait for a later one.
    fn behind(&self) -> Option<Revision> {
        Some(self.reached.load(Ordering::Acquire)).filter(|_| self.is_behind())
    }

    pub fn is_behind(&self) -> bool {
        self.reached.load(Ordering::Acquire) < self.asked.load(Ordering::Acquire)
    }

    /// Waits for the time. Returns whether readers wait and the watch has shown nothing meanwhile.
    pub async fn is_idle(&self, time: Duration) -> bool {
        let before = self.behind();
        tokio::time::sleep(time).await;
        before.is_some() && self.behind() == before
    }
}
