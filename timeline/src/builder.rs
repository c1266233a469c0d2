//! Encodes records into blocks.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;

use coracle_trace::{Details, SpanId, Stage, TraceId, Uid};
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{
    self, Block, HAS_DETAILS, HEADER, MAGIC, MAX_BLOCK, MAX_STRING, StoredRecord, parent, trace,
};
use crate::decoder::RecordRef;
use crate::filter::{AsItIs, Keys, add_keys};
use crate::single_stage::single_stage;
use crate::varint::{put, put_delta, put_signed};

/// Where records come from, beside the node's name and the uncertainty that each has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Boot id of the machine.
    pub(crate) boot: u128,
    /// The server's clock minus the machine's, which was added to the times.
    pub(crate) offset: i64,
}

/// The most that one record adds: its fields, a new source, a new string and three new uids.
const MOST_PER_RECORD: usize = 2 * MAX_STRING + 400;

/// By numbers that are random, or hashes already.
type Table<K, V> = HashMap<K, V, BuildHasherDefault<AsItIs>>;

/// The texts of a block, each encoded once.
#[derive(Default)]
struct Strings {
    /// By the hash of a text: where it is, and its number.
    places: Table<u64, (Range<usize>, usize)>,
    bytes: Vec<u8>,
    count: usize,
}

impl Strings {
    /// The number of a text, from 1.
    fn number(&mut self, text: &str) -> usize {
        let hash = xxh3_64(text.as_bytes());
        if let Some((place, number)) = self.places.get(&hash)
            && self.bytes[place.clone()] == *text.as_bytes()
        {
            return *number;
        }
        put_string(&mut self.bytes, text);
        self.count += 1;
        // Another text may have the same hash: this one is then written each time.
        let end = self.bytes.len();
        self.places.entry(hash).or_insert((end - text.len()..end, self.count));
        self.count
    }

    fn clear(&mut self) {
        self.places.clear();
        self.bytes.clear();
        self.count = 0;
    }
}

/// A block that is being filled.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    sources: HashMap<(String, Origin, u32), usize>,
    last_source: Option<((String, Origin, u32), usize)>,
    strings: Strings,
    uids: Table<Uid, usize>,
    /// Encoded tables, in the order of their numbers.
    source_bytes: Vec<u8>,
    uid_bytes: Vec<u8>,
    record_bytes: Vec<u8>,
    /// Writes of this block: what may be parents.
    writes: Table<SpanId, (Uid, u64)>,
    /// What its records can be found by.
    keys: Keys,
    count: u32,
    span: SpanId,
    trace: TraceId,
    revision: u64,
    start: u64,
    first: u64,
    last: u64,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the next record could make it longer than a block may be.
    pub(crate) fn is_full(&self) -> bool {
        self.most() + MOST_PER_RECORD > MAX_BLOCK
    }

    /// No more bytes than this has the block now.
    fn most(&self) -> usize {
        let tables = self.source_bytes.len() + self.strings.bytes.len() + self.uid_bytes.len();
        HEADER + 16 + tables + self.record_bytes.len()
    }

    pub(crate) fn push(&mut self, stored: &RecordRef<'_>, origin: Origin) {
        let record = &stored.record;
        let source = self.source(stored, origin);
        let subject = self.uid(record.subject);
        let details = stored.details.map(|details| (details, self.uid(details.owner)));
        let text = self.string(stored.text);
        let parent = self.parent(stored);
        let out = &mut self.record_bytes;
        put(out, u64::from(record.stage as u8));
        put(out, u64::from(record.flags.0));
        put(out, u64::from(record.code));
        put(out, source as u64);
        out.extend(record.span.0.to_le_bytes());
        parent.put(out);
        put_trace(out, record.trace, &mut self.trace);
        put(out, subject as u64);
        put_delta(out, record.revision, self.revision);
        put_delta(out, stored.start, self.start);
        put(out, record.duration);
        put_details(out, details);
        put(out, text as u64);
        add_keys(stored, &mut self.keys);
        self.note(stored);
    }

    /// What the following records and the header refer to.
    fn note(&mut self, stored: &RecordRef<'_>) {
        let record = &stored.record;
        if record.stage == Stage::Write && record.revision != 0 {
            let id = SpanId::of_write(record.subject, record.revision);
            self.writes.insert(id, (record.subject, record.revision));
        }
        (self.span, self.revision, self.start) = (record.span, record.revision, stored.start);
        self.first = if self.count == 0 { stored.start } else { self.first.min(stored.start) };
        self.last = self.last.max(stored.end());
        self.count += 1;
    }

    /// The block and its keys; the builder is empty then, and keeps its memory.
    pub(crate) fn finish(&mut self) -> (Block, Keys) {
        let mut bytes = Vec::with_capacity(self.most());
        bytes.extend(MAGIC);
        // The length and the checksum are known later.
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.last.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        for (count, table) in [
            (self.sources.len(), &self.source_bytes),
            (self.strings.count, &self.strings.bytes),
            (self.uids.len(), &self.uid_bytes),
        ] {
            put(&mut bytes, count as u64);
            bytes.extend_from_slice(table);
        }
        bytes.extend_from_slice(&self.record_bytes);
        let length = (bytes.len() - HEADER) as u32;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let sum = block::checksum(&bytes[..HEADER - 8], &bytes[HEADER..]);
        bytes[HEADER - 8..HEADER].copy_from_slice(&sum.to_le_bytes());
        (Block { bytes }, self.clear())
    }

    /// Forgets everything but the keys.
    fn clear(&mut self) -> Keys {
        self.sources.clear();
        self.last_source = None;
        self.strings.clear();
        self.uids.clear();
        self.source_bytes.clear();
        self.uid_bytes.clear();
        self.record_bytes.clear();
        self.writes.clear();
        (self.count, self.span, self.trace) = (0, SpanId::NONE, TraceId::NONE);
        (self.revision, self.start, self.first, self.last) = (0, 0, 0, 0);
        std::mem::take(&mut self.keys)
    }

    fn source(&mut self, stored: &RecordRef<'_>, origin: Origin) -> usize {
        let node = cut(stored.node);
        // Records of one source follow each other.
        if let Some(((last, of, uncertainty), number)) = &self.last_source
            && last == node
            && (*of, *uncertainty) == (origin, stored.uncertainty)
        {
            return *number;
        }
        let next = self.sources.len();
        let number = *self.sources.entry((node.to_owned(), origin, stored.uncertainty)).or_insert(next);
        if number == next {
            put_string(&mut self.source_bytes, node);
            self.source_bytes.extend(origin.boot.to_le_bytes());
            put_signed(&mut self.source_bytes, origin.offset);
            put(&mut self.source_bytes, u64::from(stored.uncertainty));
        }
        self.last_source = Some(((node.to_owned(), origin, stored.uncertainty), number));
        number
    }

    /// The number of a string, from 1; 0 is the empty one.
    fn string(&mut self, text: &str) -> usize {
        let text = cut(text);
        if text.is_empty() {
            return 0;
        }
        self.strings.number(text)
    }

    /// The number of a uid, from 1; 0 is none.
    fn uid(&mut self, uid: Uid) -> usize {
        if uid == Uid(0) {
            return 0;
        }
        let next = self.uids.len() + 1;
        let number = *self.uids.entry(uid).or_insert(next);
        if number == next {
            self.uid_bytes.extend(uid.0.to_le_bytes());
        }
        number
    }

    fn parent(&mut self, stored: &RecordRef<'_>) -> Parent {
        let record = &stored.record;
        let of_write = |uid, revision| SpanId::of_write(uid, revision) == record.parent;
        if record.parent.is_none() {
            Parent::None
        } else if self.count > 0 && record.parent == self.span {
            Parent::Previous
        } else if record.subject != Uid(0) && of_write(record.subject, record.revision) {
            Parent::Write(self.uid(record.subject), 0)
        } else if let Some(stage) = single_stage(record) {
            Parent::Stage(stage)
        } else if let Some((uid, revision)) = self.writes.get(&record.parent).copied() {
            Parent::Write(self.uid(uid), revision.wrapping_sub(record.revision).cast_signed())
        } else {
            Parent::Bytes(record.parent)
        }
    }
}

enum Parent {
    None,
    Previous,
    Write(usize, i64),
    Stage(Stage),
    Bytes(SpanId),
}

impl Parent {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::None => out.push(parent::NONE),
            Self::Previous => out.push(parent::PREVIOUS),
            Self::Write(uid, back) => {
                out.push(parent::WRITE);
                put(out, *uid as u64);
                put_signed(out, *back);
            }
            Self::Stage(stage) => {
                out.push(parent::STAGE);
                put(out, u64::from(*stage as u8));
            }
            Self::Bytes(span) => {
                out.push(parent::BYTES);
                out.extend(span.0.to_le_bytes());
            }
        }
    }
}

fn put_trace(out: &mut Vec<u8>, id: TraceId, last: &mut TraceId) {
    if id.is_none() {
        out.push(trace::NONE);
    } else if id == *last {
        out.push(trace::AGAIN);
    } else {
        out.push(trace::BYTES);
        out.extend(id.0.to_le_bytes());
        *last = id;
    }
}

fn put_details(out: &mut Vec<u8>, details: Option<(Details, usize)>) {
    let Some((details, owner)) = details else { return put(out, 0) };
    let reached = |(_, mark): &(usize, &u32)| **mark != 0;
    let bits =
        details.marks.iter().enumerate().filter(reached).fold(HAS_DETAILS, |bits, (i, _)| bits | 1 << i);
    put(out, bits);
    for mark in details.marks.iter().filter(|mark| **mark != 0) {
        put(out, u64::from(*mark));
    }
    put(out, owner as u64);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

/// The text as far as a block may have it.
fn cut(text: &str) -> &str {
    if text.len() <= MAX_STRING {
        return text;
    }
    let end = (0..=MAX_STRING).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    &text[..end]
}

/// Blocks with these records, in their order.
pub fn encode(records: &[StoredRecord]) -> Vec<Block> {
    encode_with_keys(records).into_iter().map(|(block, _)| block).collect()
}

/// Blocks with these records, and what those can be found by.
pub(crate) fn encode_with_keys(records: &[StoredRecord]) -> Vec<(Block, Keys)> {
    let mut blocks = Vec::new();
    let mut builder = BlockBuilder::default();
    for record in records {
        builder.push(&RecordRef::of(record), Origin::default());
        if builder.is_full() {
            blocks.push(builder.finish());
        }
    }
    if !builder.is_empty() {
        blocks.push(builder.finish());
    }
    blocks
}

#[cfg(test)]
mod tests;
