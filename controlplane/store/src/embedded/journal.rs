//! Batches in a journal of the engine, which is read here without it: the engine cuts a journal at the first byte that it
//! does not understand, and does not say so.

use super::record::{MARKS, Marks};
use crate::Revision;
use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_64;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
/// The kind of an item that is not a removal.
const VALUE: u8 = 0;
/// Closes every batch.
pub(super) const TRAILER: &[u8] = b"FJL\x03";
/// An item with this key is in every batch that was not synced when it was acknowledged.
pub(super) const LAZY: &str = "!lazy";

/// A whole batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub length: usize,
    /// The engine's number; it grows from batch to batch. No checksum covers it.
    pub sequence: u64,
    /// The newest revision that the batch writes, 0 if it writes none.
    pub revision: Revision,
    /// The revision that its marks reach up to without any write, see [`Marks::reached`]; 0 if it has none. If they cannot
    /// be read here, the largest there is.
    pub reached: Revision,
    /// Whether the next batch may have been written before this one was synced.
    pub lazy: bool,
}

/// The batch at the beginning, if it is whole.
pub(super) fn batch(bytes: &[u8]) -> Option<Batch> {
    let mut rest = bytes;
    if take(&mut rest, 1)?[0] != START {
        return None;
    }
    let count = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let sequence = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
    let (mut revision, mut reached, mut lazy) = (0, 0, false);
    let items = rest;
    for _ in 0..count {
        match take(&mut rest, 1)?[0] {
            ITEM => {
                let item = Item::take(&mut rest)?;
                lazy |= item.key == LAZY.as_bytes();
                revision = revision.max(item.revision().unwrap_or(0));
                reached = reached.max(item.reached().unwrap_or(0));
            }
            CLEAR => drop(take(&mut rest, 8)?),
            _ => return None,
        }
    }
    let items = &items[..items.len() - rest.len()];
    let end = take(&mut rest, 1 + 8 + TRAILER.len())?;
    let whole = end[0] == END && &end[9..] == TRAILER && end[1..9] == xxh3_64(items).to_le_bytes();
    let length = bytes.len() - rest.len();
    whole.then_some(Batch { length, sequence, revision, reached, lazy })
}

/// What a batch does to a key.
struct Item<'a> {
    key: &'a [u8],
    /// The value as it stands in the journal; `None` if the key is removed.
    value: Option<&'a [u8]>,
    compressed: bool,
}

impl<'a> Item<'a> {
    /// Reads an item behind its tag.
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let kind = take(rest, 1)?[0];
        let compressed = take(rest, 1)?[0] != 0;
        // The keyspace.
        take(rest, 8)?;
        let length = u16::from_le_bytes(take(rest, 2)?.try_into().ok()?);
        take(rest, 4)?;
        let value = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
        let key = take(rest, usize::from(length))?;
        let value = take(rest, value as usize)?;
        Some(Self { key, value: (kind == VALUE).then_some(value), compressed })
    }

    /// The revision, if this writes an entry of the log. Keys of the index begin with a printable character.
    fn revision(&self) -> Option<Revision> {
        let key: [u8; 8] = self.key.try_into().ok()?;
        (key[0] == 0 && self.value.is_some()).then_some(u64::from_be_bytes(key))
    }

    /// What marks reach up to, if these are marks.
    fn reached(&self) -> Option<Revision> {
        let raw = self.value.filter(|_| self.key == MARKS.as_bytes())?;
        let marks = serde_json::from_slice::<Marks>(raw).ok().filter(|_| !self.compressed);
        Some(marks.map_or(Revision::MAX, |marks| marks.reached()))
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

/// The journals of a directory in the order of their numbers.
pub(super) fn all(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut journals = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl")
            && let Some(number) = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok())
        {
            journals.push((number, path));
        }
    }
    journals.sort_unstable();
    Ok(journals)
}

/// The bytes of a journal without the zeros at its end: it is made 64 MiB long, and most of that is a hole.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    use nix::{
        errno::Errno,
        unistd::{Whence, lseek},
    };
    let mut file = File::open(path)?;
    let mut end = 0;
    loop {
        match lseek(&file, end, Whence::SeekData) {
            Ok(data) => end = lseek(&file, data, Whence::SeekHole)?,
            Err(Errno::ENXIO) => break,
            Err(error) => return Err(error.into()),
        }
    }
    lseek(&file, 0, Whence::SeekSet)?;
    let mut bytes = Vec::with_capacity(end.unsigned_abs() as usize);
    file.by_ref().take(end.unsigned_abs()).read_to_end(&mut bytes)?;
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    Ok(bytes)
}
