//! A segment: a preallocated file with blocks one after the other, and an index at its end once it is sealed.
//!
//! ```text
//! footer = per piece: u64 offset, u32 length, u64 first, u64 last unix ns, u32 words, the words of its filter
//!          | u32 length of the pieces, u64 xxh3 of the pieces, "CSF2"
//! ```
//!
//! A piece is a run of blocks of about 64 KiB: blocks may be small, filters are not.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, fallocate};
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{self, Block, HEADER};
use crate::decoder::{RecordRef, decode, decode_each};
use crate::filter::{Filter, Keys, add_keys};
use crate::varint::Reader;

/// A segment whose index has another version is indexed again when it is opened.
const MAGIC: &[u8; 4] = b"CSF2";
/// Length, checksum and magic of the footer.
const TRAILER: usize = 16;
/// A piece ends with the block that reaches this size.
const PIECE: u64 = 64 << 10;
/// No segment is larger, whatever its file says.
const LARGEST: u64 = 8 << 20;

/// Where some blocks are, and what may be in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PieceIndex {
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// `None` while the piece grows.
    pub(crate) filter: Option<Filter>,
}

pub(crate) fn file_name(number: u64) -> String {
    format!("segment-{number:010}.spans")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment-")?.strip_suffix(".spans")?.parse().ok()?;
    // A position has 32 bits for it.
    (number < u64::from(u32::MAX) && file_name(number) == name).then_some(number)
}

/// The numbers of the segments in a directory, oldest first.
pub(crate) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        numbers.extend(entry?.file_name().to_str().and_then(number_of));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment that blocks are appended to.
pub(crate) struct OpenSegment {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    file: File,
    /// Where the next block goes.
    pub(crate) end: u64,
    pieces: Vec<Arc<PieceIndex>>,
    /// The piece that grows, and its keys.
    growing: PieceIndex,
    keys: Keys,
}

impl OpenSegment {
    /// Makes a file, with room for `size` bytes if the file system can promise it.
    pub(crate) fn create(dir: &Path, number: u64, size: u64) -> io::Result<Self> {
        let path = dir.join(file_name(number));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if let Err(error) = preallocate(&file, size) {
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok(Self {
            number,
            path,
            file,
            end: 0,
            pieces: Vec::new(),
            growing: growing(0),
            keys: Keys::default(),
        })
    }

    /// Goes on with a file that was not sealed: after its last block that is whole.
    pub(crate) fn recover(path: PathBuf, number: u64, size: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut bytes = vec![0; file.metadata()?.len().min(LARGEST) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut segment = Self {
            number,
            path,
            file,
            end: 0,
            pieces: Vec::new(),
            growing: growing(0),
            keys: Keys::default(),
        };
        let mut rest = bytes.as_slice();
        while let Ok((header, block, after)) = Block::first(rest) {
            let Ok(records) = decode(&header, &block[HEADER..]) else { break };
            records.iter().for_each(|record| add_keys(&RecordRef::of(record), &mut segment.keys));
            segment.grow(block.len(), header.first, header.last);
            rest = after;
        }
        // What follows may be half a block: it must not be taken for the rest of a new one.
        segment.file.set_len(segment.end)?;
        // A disk that is full now may have room later.
        let _ = preallocate(&segment.file, size);
        Ok(segment)
    }

    pub(crate) fn append(&mut self, block: &Block, keys: &Keys) -> io::Result<()> {
        let header = block::Header::read(&block.bytes).map_err(io::Error::other)?;
        self.file.write_all_at(&block.bytes, self.end)?;
        self.keys.extend(keys);
        self.grow(block.bytes.len(), header.first, header.last);
        Ok(())
    }

    fn grow(&mut self, length: usize, first: u64, last: u64) {
        let piece = &mut self.growing;
        piece.first = piece.first.min(first);
        piece.last = piece.last.max(last);
        piece.length += length as u32;
        self.end += length as u64;
        if u64::from(self.growing.length) >= PIECE {
            self.close_piece();
        }
    }

    fn close_piece(&mut self) {
        if self.growing.length == 0 {
            return;
        }
        let mut piece = std::mem::replace(&mut self.growing, growing(self.end));
        piece.filter = Some(Filter::of(&mut self.keys));
        self.keys.clear();
        self.pieces.push(Arc::new(piece));
    }

    /// All pieces, the one that grows included.
    pub(crate) fn pieces(&self) -> Vec<Arc<PieceIndex>> {
        let mut pieces = self.pieces.clone();
        if self.growing.length > 0 {
            pieces.push(Arc::new(self.growing.clone()));
        }
        pieces
    }

    /// The times of the oldest and the newest record.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        times(&self.pieces())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Writes the index and gives back the room that was not needed; the file is not on disk yet. Where that fails, the segment cannot
    /// be searched until it is recovered, but it can be deleted.
    pub(crate) fn seal(mut self) -> (Sealed, io::Result<File>) {
        self.close_piece();
        let footer = encode_footer(&self.pieces);
        let finish = || {
            self.file.set_len(self.end)?;
            self.file.write_all_at(&footer, self.end)
        };
        let done = finish();
        let (first, last) = times(&self.pieces).unwrap_or_default();
        let bytes = self.end + footer.len() as u64;
        let sealed = Sealed { number: self.number, path: self.path, bytes, first, last };
        (sealed, done.map(|()| self.file))
    }
}

/// A segment that does not change any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// On disk.
    pub(crate) bytes: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Sealed {
    /// `None` if the file has no index, or a damaged one.
    pub(crate) fn open(path: PathBuf, number: u64) -> io::Result<Option<Self>> {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let Some(pieces) = read_footer(&file)? else { return Ok(None) };
        let (first, last) = times(&pieces).unwrap_or_default();
        Ok(Some(Self { number, path, bytes, first, last }))
    }
}

fn growing(offset: u64) -> PieceIndex {
    PieceIndex { offset, length: 0, first: u64::MAX, last: 0, filter: None }
}

fn times(pieces: &[Arc<PieceIndex>]) -> Option<(u64, u64)> {
    let first = pieces.iter().map(|piece| piece.first).min()?;
    let last = pieces.iter().map(|piece| piece.last).max()?;
    Some((first, last))
}

/// So that an append changes neither the size nor the extents of the file.
fn preallocate(file: &File, size: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, size.cast_signed()) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EOPNOTSUPP | nix::errno::Errno::ENOSYS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn encode_footer(pieces: &[Arc<PieceIndex>]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        let words = piece.filter.as_ref().map(Filter::words).unwrap_or_default();
        out.extend(piece.offset.to_le_bytes());
        out.extend(piece.length.to_le_bytes());
        out.extend(piece.first.to_le_bytes());
        out.extend(piece.last.to_le_bytes());
        out.extend((words.len() as u32).to_le_bytes());
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    }
    let (length, sum) = (out.len() as u32, xxh3_64(&out));
    out.extend(length.to_le_bytes());
    out.extend(sum.to_le_bytes());
    out.extend(MAGIC);
    out
}

/// The index of a sealed segment; `None` if there is none that is right.
pub(crate) fn read_footer(file: &File) -> io::Result<Option<Vec<Arc<PieceIndex>>>> {
    let size = file.metadata()?.len();
    let Some(at) = size.checked_sub(TRAILER as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER];
    file.read_exact_at(&mut trailer, at)?;
    let mut reader = Reader::new(&trailer);
    let (Some(length), Some(sum)) = (reader.u32(), reader.u64()) else { return Ok(None) };
    let Some(begin) = at.checked_sub(u64::from(length)) else { return Ok(None) };
    if &trailer[TRAILER - 4..] != MAGIC {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, begin)?;
    if xxh3_64(&bytes) != sum {
        return Ok(None);
    }
    Ok(decode_footer(&bytes))
}

fn decode_footer(bytes: &[u8]) -> Option<Vec<Arc<PieceIndex>>> {
    let mut reader = Reader::new(bytes);
    let mut pieces = Vec::new();
    while reader.len() > 0 {
        let (offset, length) = (reader.u64()?, reader.u32()?);
        let (first, last) = (reader.u64()?, reader.u64()?);
        let words = reader.u32()? as usize;
        let words = reader.take(words.checked_mul(8)?)?.as_chunks().0;
        let filter = Filter::from_words(words.iter().copied().map(u64::from_le_bytes).collect());
        pieces.push(Arc::new(PieceIndex { offset, length, first, last, filter: Some(filter) }));
    }
    Some(pieces)
}

/// Shows the records of a piece, as far as its blocks are whole. The buffer is only there to be used again.
pub(crate) fn read_piece(
    file: &File,
    piece: &PieceIndex,
    buffer: &mut Vec<u8>,
    show: &mut dyn FnMut(&RecordRef<'_>),
) -> io::Result<()> {
    buffer.resize(piece.length as usize, 0);
    file.read_exact_at(buffer, piece.offset)?;
    let mut rest = buffer.as_slice();
    while let Ok((header, block, after)) = Block::first(rest) {
        // A record that is malformed hides those after it in its block.
        let _ = decode_each(&header, &block[HEADER..], show);
        rest = after;
    }
    Ok(())
}
