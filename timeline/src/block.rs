//! A block: what is written to disk, sent by an agent and handed to exporters at once.
//!
//! ```text
//! block  = "CSB1" u32 length of the body, u32 records, u64 first unix ns, u64 last unix ns, u64 xxh3 of all but itself | body
//! body   = sources | strings | uids | records, each with its count before it
//! source = node name (empty: the server), boot id, clock offset ns, uncertainty ns
//! record = stage, flags, code, source, span, parent, trace, subject, revision, start, duration, marks, owner, text
//! ```
//!
//! Fixed integers are little endian, counts and most fields of a record variable-length.

use coracle_trace::{Details, Record};
use xxhash_rust::xxh3::Xxh3;

use crate::varint::Reader;

pub(crate) const MAGIC: &[u8; 4] = b"CSB1";
/// Bytes before the body.
pub(crate) const HEADER: usize = 36;
/// No block is longer, header included.
pub const MAX_BLOCK: usize = 64 << 10;
/// No string of a block is longer.
pub(crate) const MAX_STRING: usize = 4 << 10;

/// How the parent of a record is written.
pub(crate) mod parent {
    pub(crate) const NONE: u8 = 0;
    /// The span of the record before it.
    pub(crate) const PREVIOUS: u8 = 1;
    /// `of_write` of a uid of the table and a revision (difference to the record's own).
    pub(crate) const WRITE: u8 = 2;
    pub(crate) const BYTES: u8 = 3;
    /// `of_stage` of the subject and a stage.
    pub(crate) const STAGE: u8 = 4;
}

/// How the trace id of a record is written.
pub(crate) mod trace {
    pub(crate) const NONE: u8 = 0;
    /// That of the last record that had one.
    pub(crate) const AGAIN: u8 = 1;
    pub(crate) const BYTES: u8 = 2;
}

/// Set in the bits of the marks: the record has details.
pub(crate) const HAS_DETAILS: u64 = 1 << 16;

/// Why bytes are not a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The bytes end before the block does.
    #[error("the block is incomplete")]
    Incomplete,
    /// The bytes do not begin as a block, or it is longer than any.
    #[error("not a block of spans")]
    NotABlock,
    /// The bytes were changed.
    #[error("the checksum of the block is wrong")]
    Checksum,
    /// The checksum is right, what it covers is not.
    #[error("the block has a malformed record")]
    Malformed,
    /// There are more records than were asked for.
    #[error("the blocks have too many records")]
    TooMany,
}

/// Encoded records with their checksum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Header and body.
    pub bytes: Vec<u8>,
}

/// A record as it is kept: with times of the server's wall clock.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRecord {
    /// Its `start` means nothing here ([`Moment::MAX`](coracle_trace::Moment::MAX)).
    pub record: Record,
    /// Unix time in nanoseconds.
    pub start: u64,
    /// Marks and owner.
    pub details: Option<Details>,
    /// Name and text, as the stage writes them.
    pub text: String,
    /// Where it was recorded; empty: in the server.
    pub node: String,
    /// How far `start` may be off, in nanoseconds.
    pub uncertainty: u32,
}

impl StoredRecord {
    /// When it ended, in nanoseconds of unix time.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.record.duration)
    }
}

/// The fields of a block's header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    /// Of the whole block.
    pub(crate) length: usize,
    pub(crate) records: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    checksum: u64,
}

impl Header {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BlockError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.take(4.min(bytes.len())).unwrap_or_default();
        if !MAGIC.starts_with(magic) {
            return Err(BlockError::NotABlock);
        }
        let mut fields = || {
            let body = reader.u32()? as usize;
            Some(Self {
                length: HEADER.saturating_add(body),
                records: reader.u32()?,
                first: reader.u64()?,
                last: reader.u64()?,
                checksum: reader.u64()?,
            })
        };
        let header = fields().ok_or(BlockError::Incomplete)?;
        if header.length > MAX_BLOCK { Err(BlockError::NotABlock) } else { Ok(header) }
    }
}

/// The checksum of a block: of its header up to the checksum, and of its body.
pub(crate) fn checksum(before: &[u8], body: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(before);
    hash.update(body);
    hash.digest()
}

impl Block {
    /// The first block of some bytes, and what is after it.
    pub(crate) fn first(bytes: &[u8]) -> Result<(Header, &[u8], &[u8]), BlockError> {
        let header = Header::read(bytes)?;
        let (block, rest) = bytes.split_at_checked(header.length).ok_or(BlockError::Incomplete)?;
        if checksum(&block[..HEADER - 8], &block[HEADER..]) != header.checksum {
            return Err(BlockError::Checksum);
        }
        Ok((header, block, rest))
    }

    /// Cuts bytes that are nothing but blocks.
    pub fn split(mut bytes: &[u8]) -> Result<Vec<Self>, BlockError> {
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let (_, block, rest) = Self::first(bytes)?;
            blocks.push(Self { bytes: block.to_vec() });
            bytes = rest;
        }
        Ok(blocks)
    }
}
