//! The recent events of a kind, numbered without gaps. How many stay follows from how fast they come.

use super::event::{Event, Expired};
use coracle_store::Revision;
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
/// An event stays this long however many bytes there are, so that whoever writes large objects does not expire watches that
/// break for a moment …
const RECENT: Duration = Duration::from_secs(15);
/// … unless there are more than these: as many as [`LEAST`] of the largest objects have.
const MOST_BYTES: usize = LEAST * (3 << 19);

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
        self.push_at(key, event, Instant::now());
    }

    fn push_at(&mut self, key: Box<str>, event: Arc<Event>, at: Instant) {
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
        let age = self.entries.front().map_or(Duration::ZERO, |oldest| now - oldest.at);
        let bytes = if age > RECENT { MAX_BYTES } else { MOST_BYTES };
        many > MAX || (many > LEAST && self.bytes > bytes) || (many > KEEP && age > FRESH)
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

    /// Events from a number on, without those up to `after`, and the number to go on with. No more than `most`, and none after
    /// those that make up so many bytes.
    pub fn take(
        &self,
        from: u64,
        (most, bytes): (usize, usize),
        after: Revision,
    ) -> Result<(Vec<Arc<Event>>, u64), Expired> {
        let Some(skip) = from.checked_sub(self.first) else {
            return Err(Expired { asked: after, oldest: self.floor });
        };
        let mut events = Vec::new();
        let (mut next, mut taken) = (from, 0);
        for entry in self.entries.range((skip as usize).min(self.entries.len())..) {
            if events.len() == most || taken >= bytes {
                break;
            }
            next += 1;
            // Only the first wait of a cursor that starts in the future skips any.
            if entry.event.object.revision > after {
                taken += entry.event.line.len();
                events.push(entry.event.clone());
            }
        }
        Ok((events, next))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::event::EventType;
    use super::*;
    use crate::object::{Meta, Object};
    use bytes::Bytes;

    const LARGE: usize = 1 << 20;

    /// A ring of events of these sizes and ages.
    fn ring(sizes: &[usize], times: &[Instant]) -> Ring {
        let mut ring = Ring::new(0);
        let bytes = Bytes::from(vec![b' '; LARGE]);
        for (i, (size, at)) in sizes.iter().zip(times).enumerate() {
            let line = bytes.slice(..*size);
            let (revision, json, meta) = (i as u64 + 1, Bytes::new(), Meta::default());
            let object = Arc::new(Object { revision, json, meta, fields: Box::default() });
            let event = Event { what: EventType::Added, object, previous: None, line };
            ring.push_at("a".into(), Arc::new(event), *at);
        }
        ring
    }

    #[test]
    fn a_writer_of_large_objects_expires_no_recent_event_and_is_bounded() {
        let begun = Instant::now();
        let after = |seconds: u64| begun + Duration::from_secs(seconds);
        // Far more than may stay for long, within a moment.
        let mut sizes = vec![1024; 200];
        sizes.extend([LARGE; 100]);
        let mut times = vec![after(0); 300];
        let kept = ring(&sizes, &times);
        assert_eq!((kept.entries.len(), kept.floor), (300, 0));
        // The next that comes later makes room.
        sizes.push(1024);
        times.push(after(16));
        let kept = ring(&sizes, &times);
        assert_eq!((kept.entries.len(), kept.floor), (LEAST, 201));
        // Nobody fills the memory, however fast.
        let kept = ring(&[LARGE; 400], &[begun; 400]);
        assert_eq!(kept.entries.len(), MOST_BYTES / LARGE);
    }

    #[test]
    fn events_are_taken_up_to_a_number_and_a_size() {
        let ring = ring(&[10, 10, 100, 10], &[Instant::now(); 4]);
        let taken = |from: u64, limits: (usize, usize)| {
            let (events, next) = ring.take(from, limits, 0).unwrap();
            (events.len(), next)
        };
        assert_eq!(taken(0, (3, 1000)), (3, 3));
        assert_eq!(taken(0, (10, 20)), (2, 2));
        assert_eq!(taken(1, (10, 1)), (1, 2), "at least one");
        assert_eq!(taken(2, (10, 50)), (1, 3), "however large");
        assert_eq!(taken(4, (10, 50)), (0, 4));
    }
}
