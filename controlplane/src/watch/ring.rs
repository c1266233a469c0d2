//! The recent events of a kind, numbered without gaps. How many stay follows from how fast they come.

use super::cache::{Event, Expired};
use crate::store::Revision;
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// These stay however old they are, if they are not large.
const KEEP: usize = 1000;
/// Beyond [`KEEP`], an event stays this long …
const FRESH: Duration = Duration::from_secs(75);
/// … unless there are more than this.
const MAX: usize = 100_000;
/// Bytes of events that may stay.
const MAX_BYTES: usize = 16 << 20;
/// These stay however large they are.
const LEAST: usize = 100;

pub(super) struct Entry {
    pub key: Box<str>,
    pub event: Arc<Event>,
    at: Instant,
}

pub(super) struct Ring {
    entries: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// All events after this revision are here.
    floor: Revision,
    bytes: usize,
}

impl Ring {
    pub fn new(floor: Revision) -> Self {
        Self { entries: VecDeque::new(), first: 0, floor, bytes: 0 }
    }

    /// Forgets all events; cursors that have not read them expire.
    pub fn clear(&mut self, floor: Revision) {
        self.first += self.entries.len() as u64;
        self.entries = VecDeque::new();
        (self.floor, self.bytes) = (floor, 0);
    }

    pub fn push(&mut self, key: Box<str>, event: Arc<Event>) {
        let at = Instant::now();
        self.bytes += event.line.len();
        self.entries.push_back(Entry { key, event, at });
        while self.overfull(at) {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.event.line.len();
            self.floor = oldest.event.object.revision;
            self.first += 1;
        }
    }

    fn overfull(&self, now: Instant) -> bool {
        let many = self.entries.len();
        many > MAX
            || (many > LEAST && self.bytes > MAX_BYTES)
            || (many > KEEP && self.entries.front().is_some_and(|oldest| now - oldest.at > FRESH))
    }

    /// The number that the next event will have.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Whether all events after the revision are here.
    pub fn check(&self, after: Revision) -> Result<(), Expired> {
        if after < self.floor { Err(Expired { asked: after, oldest: self.floor }) } else { Ok(()) }
    }

    /// The number of the first event after the revision.
    pub fn first_after(&self, after: Revision) -> u64 {
        self.first + self.entries.partition_point(|entry| entry.event.object.revision <= after) as u64
    }

    /// The events after the revision, newest first.
    pub fn back_to(&self, revision: Revision) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev().take_while(move |entry| entry.event.object.revision > revision)
    }

    /// Events from a number on, without those up to `after`, and the number to go on with.
    pub fn take(&self, from: u64, limit: usize, after: Revision) -> Result<(Vec<Arc<Event>>, u64), Expired> {
        let Some(skip) = from.checked_sub(self.first) else {
            return Err(Expired { asked: after, oldest: self.floor });
        };
        let mut events = Vec::new();
        let mut next = from;
        for entry in self.entries.range((skip as usize).min(self.entries.len())..) {
            if events.len() == limit {
                break;
            }
            next += 1;
            // Only the first wait of a cursor that starts in the future skips any.
            if entry.event.object.revision > after {
                events.push(entry.event.clone());
            }
        }
        Ok((events, next))
    }
}
