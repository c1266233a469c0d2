//! Watchers of the embedded store. A watcher reads the log on disk until it has caught up; then the writer puts committed
//! changes into its mailbox. A watcher whose mailbox is full reads from disk again, so that a slow watcher neither blocks the
//! writer nor fills the memory.

use super::{disk::Disk, error::EmbeddedError};
use crate::{Change, Revision, StoreError, Watch, WatchItem};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use tokio::sync::Notify;

/// Capacity of a mailbox.
const MAILBOX: usize = 1024;
/// Changes read from the disk at a time.
const CHUNK: usize = 256;

#[derive(Default)]
pub(super) struct Watchers(Mutex<State>);

#[derive(Default)]
struct State {
    published: Revision,
    mailboxes: Vec<Weak<Mailbox>>,
    closed: bool,
}

#[derive(Default)]
struct Mailbox {
    inner: Mutex<Inbox>,
    filled: Notify,
}

#[derive(Default)]
struct Inbox {
    changes: VecDeque<Change>,
    /// The writer fills the box; unset when it was full.
    live: bool,
    closed: bool,
}

impl Watchers {
    pub fn new(published: Revision) -> Self {
        Self(Mutex::new(State { published, ..State::default() }))
    }

    pub fn published(&self) -> Revision {
        self.0.lock().published
    }

    /// Hands committed changes, in order, to the watchers that wait.
    pub fn publish(&self, changes: &[Change]) {
        let Some(last) = changes.last() else { return };
        let mut state = self.0.lock();
        state.published = last.revision;
        state.mailboxes.retain(|one| one.upgrade().is_some_and(|one| one.fill(changes)));
    }

    /// Ends all watches; the writer is gone.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for one in state.mailboxes.drain(..).filter_map(|one| one.upgrade()) {
            one.inner.lock().closed = true;
            one.filled.notify_one();
        }
    }

    /// From now on the box gets every change after `seen`. If there are some already it does not, and the revision
    /// that was published is returned: all up to it is to be read from the disk.
    fn attach(&self, mailbox: &Arc<Mailbox>, seen: Revision) -> Result<Option<Revision>, StoreError> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(closed());
        }
        // A watcher may wait for a revision to come; what comes before it is dropped when it is taken out.
        if state.published > seen {
            return Ok(Some(state.published));
        }
        mailbox.inner.lock().live = true;
        state.mailboxes.push(Arc::downgrade(mailbox));
        Ok(None)
    }
}

impl Mailbox {
    /// Whether the box still takes part.
    fn fill(&self, changes: &[Change]) -> bool {
        let mut inbox = self.inner.lock();
        if inbox.changes.len() + changes.len() > MAILBOX {
            inbox.live = false;
        } else {
            inbox.changes.extend(changes.iter().cloned());
        }
        let live = inbox.live;
        drop(inbox);
        self.filled.notify_one();
        live
    }

    /// What the writer put in; empty when the watcher has to read the disk again.
    async fn take(&self) -> Result<VecDeque<Change>, StoreError> {
        loop {
            let filled = self.filled.notified();
            {
                let mut inbox = self.inner.lock();
                if !inbox.changes.is_empty() || !inbox.live {
                    return Ok(std::mem::take(&mut inbox.changes));
                }
                if inbox.closed {
                    return Err(closed());
                }
            }
            filled.await;
        }
    }
}

/// The changes with the prefix after `after`.
pub(super) fn watch(
    watchers: Arc<Watchers>,
    disk: Disk,
    prefix: String,
    after: Revision,
) -> Result<Watch, StoreError> {
    disk.read(|view| view.marks())?.check(after)?;
    let (live, ready) = (None, VecDeque::new());
    let watcher = Watcher { watchers, disk, prefix, seen: after, told: after, live, ready };
    Ok(Box::pin(futures::stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(item) => Some((Ok(item), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

struct Watcher {
    watchers: Arc<Watchers>,
    disk: Disk,
    prefix: String,
    seen: Revision,
    /// The last revision that the reader of the watch knows of.
    told: Revision,
    live: Option<Arc<Mailbox>>,
    ready: VecDeque<Change>,
}

impl Watcher {
    async fn next(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            while let Some(change) = self.ready.pop_front() {
                if change.revision > self.seen {
                    self.seen = change.revision;
                    if change.key.starts_with(&self.prefix) {
                        self.told = change.revision;
                        return Ok(WatchItem::Change(change));
                    }
                }
            }
            // Who waits for the revision of another key learns that it has passed.
            if self.seen > self.told {
                self.told = self.seen;
                return Ok(WatchItem::Progress(self.seen));
            }
            match &self.live {
                Some(mailbox) => {
                    self.ready = mailbox.take().await?;
                    if self.ready.is_empty() {
                        self.live = None;
                    }
                }
                None => self.catch_up()?,
            }
        }
    }

    /// Reads on from the disk, or begins to wait. If nothing is left to be read up to the published revision, a crash took
    /// those between, and they count as seen.
    fn catch_up(&mut self) -> Result<(), StoreError> {
        let mailbox = Arc::new(Mailbox::default());
        let Some(published) = self.watchers.attach(&mailbox, self.seen)? else {
            self.live = Some(mailbox);
            return Ok(());
        };
        let seen = self.seen;
        let read = self.disk.read(|view| {
            view.marks()?.check(seen)?;
            view.changes(seen, CHUNK)
        });
        self.ready = read?.into();
        if self.ready.is_empty() {
            self.seen = published;
        }
        Ok(())
    }
}

fn closed() -> StoreError {
    EmbeddedError::Closed.into()
}
