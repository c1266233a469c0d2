use std::hint::spin_loop;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::ids::{TraceId, high, joined, low};

/// Words in an entry.
pub(crate) const ENTRY: usize = 4;
type Entry = [AtomicU64; ENTRY];
/// In word 0: the entry is being written.
const BUSY: u64 = 1;
/// In word 0: the trace is known.
const KNOWN: u64 = 2;
/// Word 0 has the revision above these bits.
const SHIFT: u32 = 2;
/// One more watcher, in word 3; the flags are below.
const WATCHER: u64 = 1 << 32;
/// How often an entry that another thread writes is looked at again.
const TRIES: usize = 64;

/// The traces of the newest writes, by revision.
///
/// A revision has one entry that it can be in, which it loses to a newer one. An entry is a seqlock: word 0 (revision, known, busy) never
/// has the same value twice, so that a reader who finds it unchanged has read one version.
#[derive(Debug)]
pub struct Contexts {
    entries: &'static [Entry],
}

impl Contexts {
    /// Clears the memory.
    pub(crate) fn new(words: &'static [AtomicU64]) -> Self {
        for word in words {
            word.store(0, Relaxed);
        }
        Self { entries: words.as_chunks().0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes the trace of a revision and the flags of its context. The first trace of a revision stays.
    pub fn put(&self, revision: u64, trace: TraceId, flags: u8) {
        if trace.is_none() {
            return;
        }
        let Some(entry) = self.entry(revision) else { return };
        let Some(before) = claim(entry, revision << SHIFT | KNOWN) else { return };
        if before >> SHIFT != revision {
            entry[3].store(0, Relaxed);
        }
        entry[1].store(high(trace.0), Relaxed);
        entry[2].store(low(trace.0), Relaxed);
        entry[3].fetch_or(u64::from(flags), Relaxed);
        entry[0].store(revision << SHIFT | KNOWN, Release);
    }

    /// The trace of a revision and the flags of its context; nothing if it is too old, or was written through another server.
    pub fn get(&self, revision: u64) -> Option<(TraceId, u8)> {
        let (found, trace, flags) = version(self.entry(revision)?)?;
        (found == revision).then_some((trace, flags))
    }

    /// Counts one more watcher that got the revision; its number, from 1. [`u32::MAX`] for a revision that is too old to be counted.
    pub fn delivered(&self, revision: u64) -> u32 {
        let Some(entry) = self.entry(revision) else { return u32::MAX };
        if let Some(before) = claim(entry, revision << SHIFT) {
            // Another revision was here: its trace is not known to be that of this one.
            debug_assert!(before >> SHIFT < revision);
            for word in &entry[1..] {
                word.store(0, Relaxed);
            }
            entry[0].store(revision << SHIFT, Release);
        }
        if entry[0].load(Relaxed) >> SHIFT != revision {
            return u32::MAX;
        }
        ((entry[3].fetch_add(WATCHER, Relaxed) >> 32) as u32).saturating_add(1)
    }

    fn entry(&self, revision: u64) -> Option<&Entry> {
        self.entries.get((revision % self.entries.len().max(1) as u64) as usize)
    }
}

/// Claims an entry for a value of word 0 that is newer than the one that it has, which is returned.
fn claim(entry: &Entry, newer: u64) -> Option<u64> {
    for _ in 0..TRIES {
        let now = entry[0].load(Relaxed);
        if now & !BUSY >= newer {
            return None;
        }
        if now & BUSY == 0 && entry[0].compare_exchange_weak(now, newer | BUSY, Acquire, Relaxed).is_ok() {
            fence(Release);
            return Some(now);
        }
        spin_loop();
    }
    None
}

fn version(entry: &Entry) -> Option<(u64, TraceId, u8)> {
    let before = entry[0].load(Acquire);
    let trace = TraceId(joined(entry[1].load(Relaxed), entry[2].load(Relaxed)));
    let flags = entry[3].load(Relaxed) as u8;
    fence(Acquire);
    let is_known = before & (BUSY | KNOWN) == KNOWN;
    (is_known && entry[0].load(Relaxed) == before).then_some((before >> SHIFT, trace, flags))
}

/// Revision, trace and flags of what a process that is gone knew, oldest first.
pub(crate) fn left(words: &[AtomicU64]) -> Vec<(u64, TraceId, u8)> {
    let mut entries: Vec<_> = words.as_chunks().0.iter().filter_map(version).collect();
    entries.sort_unstable();
    entries
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn table(entries: usize) -> &'static Contexts {
        let words: Vec<AtomicU64> = (0..entries * ENTRY).map(|_| AtomicU64::new(0)).collect();
        Box::leak(Box::new(Contexts::new(Vec::leak(words))))
    }

    #[test]
    fn the_newest_revision_has_the_entry() {
        let contexts = table(8);
        assert_eq!(contexts.get(3), None);
        contexts.put(3, TraceId(30), 1);
        assert_eq!(contexts.get(3), Some((TraceId(30), 1)));
        contexts.put(11, TraceId(110), 0);
        assert_eq!(contexts.get(3), None);
        assert_eq!(contexts.get(11), Some((TraceId(110), 0)));
        contexts.put(3, TraceId(31), 0);
        contexts.put(11, TraceId(111), 1);
        assert_eq!(contexts.get(11), Some((TraceId(110), 0)), "the first trace of a revision stays");
        contexts.put(12, TraceId::NONE, 1);
        assert_eq!(contexts.get(12), None);
        assert_eq!(left(contexts.entries.as_flattened()), [(11, TraceId(110), 0)]);
    }

    #[test]
    fn watchers_are_counted_before_and_after_the_trace_is_known() {
        let contexts = table(8);
        assert_eq!(contexts.delivered(5), 1);
        assert_eq!(contexts.get(5), None);
        contexts.put(5, TraceId(50), 1);
        assert_eq!(contexts.delivered(5), 2);
        assert_eq!(contexts.get(5), Some((TraceId(50), 1)));
        assert_eq!(contexts.delivered(13), 1);
        assert_eq!(contexts.get(13), None);
        assert_eq!(contexts.delivered(5), u32::MAX);
    }

    #[test]
    fn a_table_without_entries_knows_nothing() {
        let contexts = table(0);
        contexts.put(1, TraceId(1), 0);
        assert_eq!(contexts.get(1), None);
        assert_eq!(contexts.delivered(1), u32::MAX);
    }

    /// Writers of neighbouring revisions, watchers and readers on few entries: a reader gets the trace of its revision or none.
    #[test]
    fn readers_never_see_half_a_trace() {
        let contexts = table(4);
        let trace = |revision: u64| joined(revision.wrapping_mul(0x9e37_79b9), !revision);
        let rounds = 20_000;
        thread::scope(|threads| {
            for writer in 0..3 {
                threads.spawn(move || {
                    for revision in (1 + writer..rounds).step_by(3) {
                        contexts.put(revision, TraceId(trace(revision)), revision as u8 & 1);
                    }
                });
            }
            for _ in 0..2 {
                threads.spawn(move || {
                    for revision in 1..rounds {
                        assert!(contexts.delivered(revision) > 0);
                    }
                });
            }
            for _ in 0..3 {
                threads.spawn(move || {
                    for revision in 1..rounds {
                        if let Some((found, flags)) = contexts.get(revision) {
                            assert_eq!((found.0, flags), (trace(revision), revision as u8 & 1));
                        }
                    }
                });
            }
        });
        // The last put of an entry may have given up while another thread wrote the entry, but never both traces of two.
        assert!(left(contexts.entries.as_flattened()).len() <= 4);
    }
}
