use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::Moment;
use crate::ids::{SpanId, TraceId, Uid, high, joined, low};
use crate::record::{Details, Flags, Record, Text};
use crate::stage::Stage;

/// Words in a slot.
pub(crate) const SLOT: usize = 16;
pub(crate) type Slot = [AtomicU64; SLOT];
/// Text in the first slot of a record, and in the slot of its details.
const SHORT: usize = 40;
/// Text in a slot that has nothing else.
const LONG: usize = 120;
/// In word 1: the record has details.
const DETAILED: u64 = 1 << 47;

/// The slot of a position, in a ring whose length is a power of two.
pub(crate) fn slot(slots: &[Slot], position: u64) -> &Slot {
    &slots[position as usize & (slots.len() - 1)]
}

/// How many slots a record needs.
pub(crate) fn slots(has_details: bool, text: usize) -> u64 {
    let short = if has_details { 2 } else { 1 };
    short + u64::from(text > short as usize * SHORT)
}

const _: () = assert!(SHORT + LONG >= Text::MOST);

/// Stores a record, all but the sequences of its slots.
pub(crate) fn store(all: &[Slot], position: u64, record: &Record, details: Option<&Details>, text: &[u8]) {
    let first = slot(all, position);
    first[1].store(head(record, details.is_some(), text.len()), Relaxed);
    first[2].store(record.span.0, Relaxed);
    first[3].store(record.parent.0, Relaxed);
    first[4].store(high(record.trace.0), Relaxed);
    first[5].store(low(record.trace.0), Relaxed);
    first[6].store(high(record.subject.0), Relaxed);
    first[7].store(low(record.subject.0), Relaxed);
    first[8].store(record.revision, Relaxed);
    first[9].store(record.start.0, Relaxed);
    first[10].store(record.duration, Relaxed);
    let mut rest = store_text(&first[11..], text);
    let mut next = position + 1;
    if let Some(details) = details {
        let second = slot(all, next);
        for (word, marks) in second[1..9].iter().zip(details.marks.as_chunks::<2>().0) {
            word.store(u64::from(marks[0]) | u64::from(marks[1]) << 32, Relaxed);
        }
        second[9].store(high(details.owner.0), Relaxed);
        second[10].store(low(details.owner.0), Relaxed);
        rest = store_text(&second[11..], rest);
        next += 1;
    }
    if !rest.is_empty() {
        store_text(&slot(all, next)[1..], rest);
    }
}

/// Stage, flags, code, slots and length of the text.
fn head(record: &Record, has_details: bool, text: usize) -> u64 {
    u64::from(record.stage.code())
        | u64::from(record.flags.0) << 8
        | u64::from(record.code) << 24
        | slots(has_details, text) << 40
        | if has_details { DETAILED } else { 0 }
        | (text as u64) << 48
}

/// The record that begins at a position, and how many slots it takes.
pub(crate) fn decoded(all: &[Slot], position: u64) -> (Record, Option<Details>, Text, u64) {
    let first = slot(all, position);
    let get = |word: usize| first[word].load(Relaxed);
    let head = get(1);
    let slots = (head >> 40 & 0x7f).clamp(1, 3);
    let record = Record {
        stage: Stage::from_code(head as u8).unwrap_or(Stage::Other),
        flags: Flags((head >> 8) as u16),
        code: (head >> 24) as u16,
        span: SpanId(get(2)),
        parent: SpanId(get(3)),
        trace: TraceId(joined(get(4), get(5))),
        subject: Uid(joined(get(6), get(7))),
        revision: get(8),
        start: Moment(get(9)),
        duration: get(10),
    };
    let mut bytes = [0; 2 * SHORT + LONG];
    load_text(&first[11..], &mut bytes[..SHORT]);
    let mut short = 1;
    let details = (head & DETAILED != 0).then(|| {
        let second = slot(all, position + 1);
        load_text(&second[11..], &mut bytes[SHORT..2 * SHORT]);
        short = 2;
        let half = |mark: usize| (second[1 + mark / 2].load(Relaxed) >> (32 * (mark % 2))) as u32;
        let owner = Uid(joined(second[9].load(Relaxed), second[10].load(Relaxed)));
        Details { marks: std::array::from_fn(half), owner }
    });
    if slots > short {
        load_text(&slot(all, position + short)[1..], &mut bytes[short as usize * SHORT..][..LONG]);
    }
    let len = ((head >> 48) as usize & 0xff).min(Text::MOST);
    (record, details, Text::of_bytes(&bytes[..len]), slots)
}

/// Stores as much of a text as there are words, and returns the rest.
pub(crate) fn store_text<'a>(words: &[AtomicU64], text: &'a [u8]) -> &'a [u8] {
    let (text, rest) = text.split_at(text.len().min(words.len() * 8));
    for (word, piece) in words.iter().zip(text.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..piece.len()].copy_from_slice(piece);
        word.store(u64::from_le_bytes(bytes), Relaxed);
    }
    rest
}

pub(crate) fn load_text(words: &[AtomicU64], bytes: &mut [u8]) {
    for (word, piece) in words.iter().zip(bytes.chunks_mut(8)) {
        piece.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..piece.len()]);
    }
}
