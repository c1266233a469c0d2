use std::cmp::Ordering::{Equal, Greater, Less};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::record::{Details, Record, Text};
use crate::slot::{SLOT, Slot, decoded, slot, slots, store};

/// In the sequence of a slot: it continues the record of the slot before it.
const CONTINUES: u64 = 1 << 63;
/// The most shards that a recorder can have.
const SHARDS: usize = 8;

/// Bounded queues of finished spans, after Vyukov: many producers, one consumer, nobody waits.
///
/// A slot at position p is free when its sequence is p, complete when it is p + 1, and free for the next round at p + capacity.
#[derive(Debug)]
pub(crate) struct Ring {
    shards: Box<[Shard]>,
    is_read: AtomicBool,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Shard {
    slots: &'static [Slot],
    head: Padded,
    tail: Padded,
    /// The consumer has been told that this shard is half full.
    is_told: AtomicBool,
}

/// A word that shares its cache line with no other.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// What [`Recorder::read`](crate::Recorder::read) has read. Nobody else reads while it exists.
#[derive(Debug)]
#[must_use = "nothing is freed without `release`"]
pub struct Read {
    ring: Option<&'static Ring>,
    ends: [u64; SHARDS],
    records: usize,
}

impl Ring {
    /// Clears the memory.
    pub fn new(words: &'static [AtomicU64], shards: usize, slots: usize) -> Self {
        assert!((1..=SHARDS).contains(&shards), "a recorder has 1 to {SHARDS} shards");
        assert!(slots.is_power_of_two() && slots >= 4, "the slots of a shard are a power of two, 4 or more");
        let shards: Box<[_]> = words.chunks_exact(slots * SLOT).take(shards).map(Shard::new).collect();
        Self { shards, is_read: AtomicBool::new(false), lost: AtomicU64::new(0) }
    }

    /// Appends a record with at most [`Text::MOST`] bytes of text, to the shard of the thread if there is room in it. Returns whether
    /// the consumer should be woken.
    pub fn push(&self, thread: usize, record: &Record, details: Option<&Details>, text: &[u8]) -> bool {
        for shard in 0..self.shards.len() {
            let shard = &self.shards[(thread + shard) % self.shards.len()];
            if let Some(end) = shard.push(record, details, text) {
                return shard.is_half_full(end);
            }
        }
        self.lost.fetch_add(1, SeqCst);
        false
    }

    /// Whether everything that was claimed is released. Claims are exchanges in the order that [`Sleep`](crate::sleep::Sleep) needs.
    pub fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.head.0.load(SeqCst) == shard.tail.0.load(Relaxed))
    }

    pub fn read(&'static self, each: &mut dyn FnMut(&Record, Option<&Details>, &str)) -> Read {
        let mut read = Read::NOTHING;
        if self.is_read.swap(true, Acquire) {
            return read;
        }
        read.ring = Some(self);
        for (shard, end) in self.shards.iter().zip(&mut read.ends) {
            shard.is_told.store(false, Relaxed);
            *end = shard.read(&mut |record, details, text| {
                read.records += 1;
                each(record, details, text);
            });
        }
        read
    }

    pub fn lost(&self) -> u64 {
        self.lost.load(SeqCst)
    }
}

impl Read {
    pub(crate) const NOTHING: Self = Self { ring: None, ends: [0; SHARDS], records: 0 };

    /// How many records were read.
    pub fn records(&self) -> usize {
        self.records
    }

    /// Frees what was read.
    pub(crate) fn release(self) {
        for (shard, end) in self.ring.iter().flat_map(|ring| &ring.shards).zip(self.ends) {
            shard.release(end);
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        if let Some(ring) = self.ring {
            ring.is_read.store(false, Release);
        }
    }
}

impl Shard {
    fn new(words: &'static [AtomicU64]) -> Self {
        let (slots, _) = words.as_chunks();
        for (index, slot) in slots.iter().enumerate() {
            slot[0].store(index as u64, Relaxed);
        }
        Self { slots, head: Padded::default(), tail: Padded::default(), is_told: AtomicBool::new(false) }
    }

    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    fn slot(&self, position: u64) -> &Slot {
        slot(self.slots, position)
    }

    /// The position after the record; nothing if there is no room.
    fn push(&self, record: &Record, details: Option<&Details>, text: &[u8]) -> Option<u64> {
        let slots = slots(details.is_some(), text.len());
        let first = self.claim(slots)?;
        store(self.slots, first, record, details, text);
        // The first slot is the last to be complete: who sees it sees all of the record.
        for position in (first + 1..first + slots).rev() {
            self.slot(position)[0].store((position + 1) | CONTINUES, Release);
        }
        self.slot(first)[0].store(first + 1, Release);
        Some(first + slots)
    }

    fn claim(&self, slots: u64) -> Option<u64> {
        let mut head = self.head.0.load(Relaxed);
        loop {
            // Slots are freed in order: if the last one is free, all before it are.
            let last = head + slots - 1;
            let sequence = self.slot(last)[0].load(Acquire) & !CONTINUES;
            head = match sequence.cmp(&last) {
                Less => return None,
                Greater => self.head.0.load(Relaxed),
                Equal => match self.head.0.compare_exchange_weak(head, head + slots, SeqCst, Relaxed) {
                    Ok(first) => return Some(first),
                    Err(now) => now,
                },
            };
        }
    }

    /// True once between two readings.
    fn is_half_full(&self, end: u64) -> bool {
        let used = end.saturating_sub(self.tail.0.load(Relaxed));
        used >= self.capacity() / 2 && !self.is_told.load(Relaxed) && !self.is_told.swap(true, Relaxed)
    }

    fn read(&self, each: &mut dyn FnMut(&Record, Option<&Details>, &str)) -> u64 {
        let mut position = self.tail.0.load(Relaxed);
        while self.slot(position)[0].load(Acquire) == position + 1 {
            let (record, details, text, slots) = decoded(self.slots, position);
            each(&record, details.as_ref(), text.as_str());
            position += slots;
        }
        position
    }

    fn release(&self, end: u64) {
        for position in self.tail.0.load(Relaxed)..end {
            self.slot(position)[0].store(position + self.capacity(), Release);
        }
        self.tail.0.store(end, Relaxed);
    }
}

/// Complete records that were not freed, by position, of a shard whose process is gone.
pub(crate) fn left(words: &[AtomicU64]) -> Vec<(Record, Option<Details>, Text)> {
    let (all, _) = words.as_chunks();
    let capacity = all.len() as u64;
    let sequences: Vec<u64> = all.iter().map(|slot| slot[0].load(Acquire)).collect();
    let is_complete = |position: u64| sequences[(position % capacity) as usize] == (position + 1) | CONTINUES;
    let mut positions: Vec<u64> = (0..)
        .zip(&sequences)
        .filter_map(|(index, sequence)| {
            sequence
                .checked_sub(1)
                .filter(|position| position % capacity == index && sequence & CONTINUES == 0)
        })
        .collect();
    positions.sort_unstable();
    let records = positions.into_iter().filter_map(|position| {
        let (record, details, text, slots) = decoded(all, position);
        let is_whole = slots <= capacity && (position + 1..position + slots).all(is_complete);
        is_whole.then_some((record, details, text))
    });
    records.collect()
}

#[cfg(test)]
mod tests;
