//! How far the caches are. A waiter is woken when its revision is reached, and not before.

use coracle_store::Revision;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::sync::oneshot;

/// The revision up to which every change is in the caches.
#[derive(Default)]
pub struct Progress {
    applied: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    by_revision: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    tickets: u64,
}

impl Progress {
    /// The revision up to which every change is in.
    pub fn applied(&self) -> Revision {
        self.applied.load(Ordering::Acquire)
    }

    /// Returns once every change up to the revision is in; may never.
    pub async fn wait_for(&self, revision: Revision) {
        if self.applied() >= revision {
            return;
        }
        let (reached, wait) = oneshot::channel();
        let place = {
            let mut waiting = self.waiting.lock();
            if self.applied() >= revision {
                return;
            }
            waiting.tickets += 1;
            let place = (revision, waiting.tickets);
            waiting.by_revision.insert(place, reached);
            Place { progress: self, place }
        };
        let _ = wait.await;
        drop(place);
    }

    /// Everything up to the revision is in.
    pub(super) fn advance(&self, revision: Revision) {
        if self.applied.fetch_max(revision, Ordering::AcqRel) >= revision {
            return;
        }
        let mut waiting = self.waiting.lock();
        if waiting.by_revision.first_key_value().is_none_or(|((first, _), _)| *first > revision) {
            return;
        }
        let later = waiting.by_revision.split_off(&(revision + 1, 0));
        let reached = std::mem::replace(&mut waiting.by_revision, later);
        drop(waiting);
        for (_, waiter) in reached {
            let _ = waiter.send(());
        }
    }
}

/// A waiter that gave up leaves nothing behind.
struct Place<'a> {
    progress: &'a Progress,
    place: (Revision, u64),
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.progress.waiting.lock().by_revision.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn wakes_those_whose_revision_is_reached() {
        let progress = Progress::default();
        let (mut two, mut four) = (Box::pin(progress.wait_for(2)), Box::pin(progress.wait_for(4)));
        assert!((&mut two).now_or_never().is_none() && (&mut four).now_or_never().is_none());
        progress.advance(3);
        assert!((&mut two).now_or_never().is_some() && (&mut four).now_or_never().is_none());
        drop(four);
        assert!(progress.waiting.lock().by_revision.is_empty());
        progress.advance(1);
        assert_eq!(progress.applied(), 3);
        progress.wait_for(3).await;
    }
}
