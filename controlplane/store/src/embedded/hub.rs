//! Watchers of the embedded store. A watcher reads the log on disk until it has caught up; from then on the writer
//! hands it what it commits. One that does not empty its box in time goes back to reading the disk, so no watcher
//! can make the writer wait or the memory grow.

use super::disk::Disk;
use crate::{Change, Notice, Revision, StoreError, Watch};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use tokio::sync::Notify;

/// Changes a watcher may leave in its box.
const BOX: usize = 1024;
/// Changes read from the disk at a time.
const CHUNK: usize = 256;

#[derive(Default)]
pub(super) struct Hub(Mutex<State>);

#[derive(Default)]
struct State {
    published: Revision,
    boxes: Vec<Weak<Mailbox>>,
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

impl Hub {
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
        state.boxes.retain(|one| one.upgrade().is_some_and(|one| one.fill(changes)));
    }

    /// Ends all watches; the writer is gone.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for one in state.boxes.drain(..).filter_map(|one| one.upgrade()) {
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
        state.boxes.push(Arc::downgrade(mailbox));
        Ok(None)
    }
}

impl Mailbox {
    /// Whether the box still takes part.
    fn fill(&self, changes: &[Change]) -> bool {
        let mut inbox = self.inner.lock();
        if inbox.changes.len() + changes.len() > BOX {
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
pub(super) fn watch(hub: Arc<Hub>, disk: Disk, prefix: String, after: Revision) -> Result<Watch, StoreError> {
    disk.read(|view| view.marks())?.check(after)?;
    let watcher = Watcher { hub, disk, prefix, seen: after, live: None, ready: VecDeque::new() };
    Ok(Box::pin(futures::stream::unfold(Some(watcher), |watcher| async {
        let mut watcher = watcher?;
        match watcher.next().await {
            Ok(notice) => Some((Ok(notice), Some(watcher))),
            Err(error) => Some((Err(error), None)),
        }
    })))
}

struct Watcher {
    hub: Arc<Hub>,
    disk: Disk,
    prefix: String,
    seen: Revision,
    live: Option<Arc<Mailbox>>,
    ready: VecDeque<Change>,
}

impl Watcher {
    async fn next(&mut self) -> Result<Notice, StoreError> {
        loop {
            while let Some(change) = self.ready.pop_front() {
                if change.revision > self.seen {
                    self.seen = change.revision;
                    if change.key.starts_with(&self.prefix) {
                        return Ok(Notice::Change(change));
                    }
                }
            }
            match &self.live {
                Some(mailbox) => {
                    self.ready = mailbox.take().await?;
                    if self.ready.is_empty() {
                        self.live = None;
                    }
                }
                None => {
                    if let Some(seen) = self.catch_up()? {
                        return Ok(Notice::Progress(seen));
                    }
                }
            }
        }
    }

    /// Reads on from the disk, or begins to wait. Returns the revision up to which nothing is left to be read, when
    /// that is not the one of a change: a crash took those between.
    fn catch_up(&mut self) -> Result<Option<Revision>, StoreError> {
        let mailbox = Arc::new(Mailbox::default());
        let Some(published) = self.hub.attach(&mailbox, self.seen)? else {
            self.live = Some(mailbox);
            return Ok(None);
        };
        let seen = self.seen;
        let read = self.disk.read(|view| {
            view.marks()?.check(seen)?;
            view.changes(seen, CHUNK)
        });
        self.ready = read?.into();
        if self.ready.is_empty() {
            self.seen = published;
            return Ok(Some(published));
        }
        Ok(None)
    }
}

fn closed() -> StoreError {
    StoreError::Engine("the store is closed".to_owned())
}
