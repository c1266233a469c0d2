use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::clock::Moment;
use crate::ids::{SpanId, TraceId, Uid, high, joined, low, random};
use crate::record::{Details, Flags, Record, Text};
use crate::slot::{load_text, store_text};
use crate::stage::Stage;

/// Words in a slot.
pub(crate) const SLOT: usize = 32;
type Slot = [AtomicU64; SLOT];
/// Places in a slot. The state is 0 (free), [`FILLING`], or a random number and the stage.
const STATE: usize = 0;
/// Flags, code, length of the text, [`USED`].
const META: usize = 1;
const SPAN: usize = 2;
const PARENT: usize = 3;
const TRACE: usize = 4;
const SUBJECT: usize = 6;
const REVISION: usize = 8;
const START: usize = 9;
const MARKS: usize = 10;
/// The owner of the object.
const EXTRA: usize = 18;
const TEXT: usize = 20;
const MOST_TEXT: usize = (SLOT - TEXT) * 8;
const FILLING: u64 = u64::MAX;
/// Something was recorded below the span.
const USED: u64 = 1 << 63;
/// How many slots in a row are looked at for a free one.
const PROBES: usize = 8;
/// In how many parts of the table: spans of one thread are beside each other, and may fill all the slots in a row.
const PARTS: usize = 3;

/// A span that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenSpan {
    /// Its duration is the time until now.
    pub record: Record,
    /// The marks that it has reached.
    pub details: Details,
    /// At most 96 bytes of its text.
    pub text: Text,
}

/// The table of spans that have not ended.
#[derive(Debug)]
pub(crate) struct Open {
    slots: &'static [Slot],
}

/// A slot and the state that it has for one span: later spans in the same slot have another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotRef {
    state: u64,
    index: u16,
}

/// What others have put into the slot of a span.
pub(crate) struct Gathered {
    pub parent: SpanId,
    pub trace: TraceId,
    pub flags: Flags,
    pub is_used: bool,
    pub marks: [u32; Details::MARKS],
}

impl SlotRef {
    pub const NONE: Self = Self { state: 0, index: 0 };

    pub fn is_none(self) -> bool {
        self.state == 0
    }
}

impl Open {
    /// Clears the memory.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        assert!(
            words.len() / SLOT <= usize::from(u16::MAX),
            "a recorder has at most {} slots for open spans",
            u16::MAX
        );
        for word in words {
            word.store(0, Relaxed);
        }
        Self { slots: words.as_chunks().0 }
    }

    /// A slot for a span that begins; [`SlotRef::NONE`] if none was found.
    pub fn claim(&self, thread: usize, record: &Record, text: &[u8]) -> SlotRef {
        thread_local!(static HINT: Cell<Option<usize>> = const { Cell::new(None) });
        let slots = self.slots.len();
        let hint = HINT.get().unwrap_or(thread * PROBES);
        let probes = |part: usize| (0..PROBES.min(slots)).map(move |probe| part * slots / PARTS + probe);
        for probe in (0..PARTS).flat_map(probes) {
            let index = (hint + probe) % slots;
            let words = &self.slots[index];
            let is_free = words[STATE].load(Relaxed) == 0;
            if is_free && words[STATE].compare_exchange(0, FILLING, Acquire, Relaxed).is_ok() {
                fence(Release);
                HINT.set(Some(index));
                let state = random() << 8 | u64::from(record.stage.code());
                for word in &words[MARKS..TEXT] {
                    word.store(0, Relaxed);
                }
                words[META].store(0, Relaxed);
                fill(words, record, text);
                words[STATE].store(state, Release);
                return SlotRef { state, index: index as u16 };
            }
        }
        HINT.set(Some(hint.wrapping_add(PROBES)));
        SlotRef::NONE
    }

    pub fn free(&self, slot: SlotRef) {
        if let Some(words) = self.slot(slot) {
            words[STATE].store(0, Release);
        }
    }

    /// Writes what the owner of the span has changed.
    pub fn update(&self, slot: SlotRef, record: &Record, text: &[u8]) {
        if let Some(words) = self.slot(slot) {
            fill(words, record, text);
        }
    }

    /// Writes flags, code, object and text, which the owner of the span has changed.
    pub fn describe(&self, slot: SlotRef, record: &Record, text: &[u8]) {
        if let Some(words) = self.slot(slot) {
            describe(words, record, text);
        }
    }

    /// Sets a mark; a later one of the same number replaces it.
    pub fn mark(&self, slot: SlotRef, mark: usize, at: Moment) {
        let Some(words) = self.slot(slot) else { return };
        let units = Details::units(at.nanos_since(Moment(words[START].load(Relaxed))));
        replace_half(words, MARKS, mark, units);
    }

    pub fn clear_marks(&self, slot: SlotRef) {
        for word in self.slot(slot).into_iter().flat_map(|words| &words[MARKS..EXTRA]) {
            word.store(0, Relaxed);
        }
    }

    /// Sets the object.
    pub fn set_subject(&self, slot: SlotRef, subject: Uid) {
        if let Some(words) = self.slot(slot) {
            store_pair(words, SUBJECT, subject.0);
        }
    }

    /// Sets the revision of the object.
    pub fn set_revision(&self, slot: SlotRef, revision: u64) {
        if let Some(words) = self.slot(slot) {
            words[REVISION].store(revision, Relaxed);
        }
    }

    pub fn set_owner(&self, slot: SlotRef, owner: Uid) {
        if let Some(words) = self.slot(slot) {
            store_pair(words, EXTRA, owner.0);
        }
    }

    /// Notes that something below the span was recorded.
    pub fn used(&self, slot: SlotRef) {
        if let Some(words) = self.slot(slot) {
            words[META].fetch_or(USED, Relaxed);
        }
    }

    /// Gives a root a parent; false if the slot is gone or the span has a parent.
    pub fn adopt(&self, slot: SlotRef, parent: SpanId, trace: TraceId, flags: Flags) -> bool {
        let Some(words) = self.slot(slot) else { return false };
        if words[PARENT].compare_exchange(0, parent.0, Relaxed, Relaxed).is_err() {
            return false;
        }
        store_pair(words, TRACE, trace.0);
        words[META].fetch_or(u64::from(flags.0), Relaxed);
        true
    }

    pub fn gathered(&self, slot: SlotRef) -> Option<Gathered> {
        let words = self.slot(slot)?;
        let meta = words[META].load(Relaxed);
        Some(Gathered {
            parent: SpanId(words[PARENT].load(Relaxed)),
            trace: TraceId(load_pair(words, TRACE)),
            flags: Flags(meta as u16),
            is_used: meta & USED != 0,
            marks: std::array::from_fn(|mark| half(words, MARKS, mark)),
        })
    }

    pub fn spans(&self, now: Moment) -> Vec<OpenSpan> {
        spans(self.slots.as_flattened(), now)
    }

    fn slot(&self, slot: SlotRef) -> Option<&'static Slot> {
        if slot.is_none() {
            return None;
        }
        let words = self.slots.get(usize::from(slot.index))?;
        (words[STATE].load(Acquire) == slot.state).then_some(words)
    }
}

/// The spans of a table, which may be that of a process that is gone.
pub(crate) fn spans(words: &[AtomicU64], now: Moment) -> Vec<OpenSpan> {
    words.as_chunks().0.iter().filter_map(|slot| span(slot, now)).collect()
}

fn span(words: &Slot, now: Moment) -> Option<OpenSpan> {
    let state = words[STATE].load(Acquire);
    if state == 0 || state == FILLING {
        return None;
    }
    let stage = Stage::from_code(state as u8)?;
    let meta = words[META].load(Relaxed);
    let start = Moment(words[START].load(Relaxed));
    let record = Record {
        stage,
        flags: Flags(meta as u16),
        code: (meta >> 16) as u16,
        span: SpanId(words[SPAN].load(Relaxed)),
        parent: SpanId(words[PARENT].load(Relaxed)),
        trace: TraceId(load_pair(words, TRACE)),
        subject: Uid(load_pair(words, SUBJECT)),
        revision: words[REVISION].load(Relaxed),
        start,
        duration: now.nanos_since(start),
    };
    // A process of an earlier version has other numbers there.
    let owner = if stage == Stage::Request { Uid::NONE } else { Uid(load_pair(words, EXTRA)) };
    let details = Details { marks: std::array::from_fn(|mark| half(words, MARKS, mark)), owner };
    let mut bytes = [0; MOST_TEXT];
    load_text(&words[TEXT..], &mut bytes);
    let len = ((meta >> 32) as usize & 0xff).min(MOST_TEXT);
    // The slot may have been given to another span meanwhile; its state is then another one.
    fence(Acquire);
    (words[STATE].load(Relaxed) == state).then(|| OpenSpan {
        record,
        details,
        text: Text::of_bytes(&bytes[..len]),
    })
}

fn fill(words: &Slot, record: &Record, text: &[u8]) {
    words[SPAN].store(record.span.0, Relaxed);
    words[PARENT].store(record.parent.0, Relaxed);
    store_pair(words, TRACE, record.trace.0);
    words[START].store(record.start.0, Relaxed);
    describe(words, record, text);
}

fn describe(words: &Slot, record: &Record, text: &[u8]) {
    let text = &text[..text.len().min(MOST_TEXT)];
    let meta = u64::from(record.flags.0) | u64::from(record.code) << 16 | (text.len() as u64) << 32;
    // Others set flags at any time.
    let kept = USED | u64::from(u16::MAX);
    let _always = words[META].fetch_update(Relaxed, Relaxed, |before| Some(before & kept | meta));
    store_pair(words, SUBJECT, record.subject.0);
    words[REVISION].store(record.revision, Relaxed);
    store_text(&words[TEXT..], text);
}

fn store_pair(words: &Slot, at: usize, number: u128) {
    words[at].store(high(number), Relaxed);
    words[at + 1].store(low(number), Relaxed);
}

fn load_pair(words: &Slot, at: usize) -> u128 {
    joined(words[at].load(Relaxed), words[at + 1].load(Relaxed))
}

fn half(words: &Slot, at: usize, number: usize) -> u32 {
    (words[at + number / 2].load(Relaxed) >> (32 * (number % 2))) as u32
}

fn replace_half(words: &Slot, at: usize, number: usize, value: u32) {
    let shift = 32 * (number % 2);
    let changed = |word: u64| Some(word & !(u64::from(u32::MAX) << shift) | u64::from(value) << shift);
    let _always = words[at + number / 2].fetch_update(Relaxed, Relaxed, changed);
}

#[cfg(test)]
mod tests;
