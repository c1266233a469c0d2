//! Reading a directory in order, for an agent that delivers it to a server.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::block::Header;
use crate::keep::Keep;
use crate::keep_error::{KeepError, at};

/// A place between two blocks. Positions of a spool only grow; the first is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    fn new(segment: u64, offset: u64) -> Self {
        Self(segment << 32 | offset)
    }

    fn segment(self) -> u64 {
        self.0 >> 32
    }

    fn offset(self) -> u64 {
        self.0 & 0xffff_ffff
    }
}

/// Blocks to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spooled {
    /// Whole blocks; empty if there are no more.
    pub bytes: Vec<u8>,
    /// Where to go on once they are acknowledged.
    pub next: Position,
    /// Blocks after the position were deleted before anybody read them.
    pub skipped: bool,
}

impl Keep {
    /// The blocks after a position, as many as fit.
    pub fn blocks_after(&self, position: Position, most: usize) -> Result<Spooled, KeepError> {
        // Read under the lock: a segment is not sealed or deleted meanwhile, and a block is whole.
        let segments = self.lock();
        let sealed =
            segments.sealed.iter().map(|sealed| (sealed.number, sealed.path.as_path(), sealed.bytes));
        let open = segments.open.iter().map(|(open, _)| (open.number, open.path.as_path(), open.end));
        let mut skipped = false;
        for (index, (number, path, end)) in sealed.chain(open).enumerate() {
            if number < position.segment() {
                continue;
            }
            skipped |= index == 0 && number > position.segment() && position.segment() != 0;
            let offset = if number == position.segment() { position.offset() } else { 0 };
            let bytes = whole_blocks(path, offset, end, most)?;
            if !bytes.is_empty() {
                let next = Position::new(number, offset + bytes.len() as u64);
                return Ok(Spooled { bytes, next, skipped });
            }
        }
        Ok(Spooled { bytes: Vec::new(), next: position, skipped })
    }

    /// Where the next block goes; everything that is there is before it.
    pub fn end(&self) -> Position {
        let segments = self.lock();
        let open = segments.open.as_ref().map(|(open, _)| Position::new(open.number, open.end));
        let sealed = || segments.sealed.last().map(|sealed| Position::new(sealed.number, sealed.bytes));
        open.or_else(sealed).unwrap_or_default()
    }

    /// Everything before the position was delivered: deletes the segments that are not needed for what comes after it.
    pub fn acknowledged(&self, position: Position) -> Result<(), KeepError> {
        let mut segments = self.lock();
        while segments.sealed.first().is_some_and(|sealed| sealed.number < position.segment()) {
            segments.remove_oldest()?;
        }
        Ok(())
    }
}

/// Blocks of a file from an offset on. The footer of a sealed segment is no block, and ends them.
fn whole_blocks(path: &Path, offset: u64, end: u64, most: usize) -> Result<Vec<u8>, KeepError> {
    let room = end.saturating_sub(offset).min(most as u64);
    let mut bytes = vec![0; room as usize];
    let file = File::open(path).map_err(at("open", path))?;
    file.read_exact_at(&mut bytes, offset).map_err(at("read", path))?;
    let mut length = 0;
    while let Ok(header) = Header::read(&bytes[length..])
        && length + header.length <= bytes.len()
    {
        length += header.length;
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::block::Block;
    use crate::testing::{limits, write_record};

    fn append(keep: &Keep, revision: u64) {
        let records = [write_record(7, revision, "update pods default/web")];
        keep.append_records(&records).unwrap();
    }

    fn revisions(bytes: &[u8]) -> Vec<u64> {
        let blocks = Block::split(bytes).unwrap();
        blocks
            .iter()
            .flat_map(|block| block.records().unwrap())
            .map(|stored| stored.record.revision)
            .collect()
    }

    #[test]
    fn blocks_are_delivered_in_order_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(64 << 20)).unwrap();
        (1..=50).for_each(|revision| append(&keep, revision));
        let (mut position, mut seen) = (Position::default(), Vec::new());
        loop {
            let spooled = keep.blocks_after(position, 300).unwrap();
            assert!(!spooled.skipped && spooled.bytes.len() <= 300);
            if spooled.bytes.is_empty() {
                break;
            }
            assert!(spooled.next > position);
            seen.extend(revisions(&spooled.bytes));
            position = spooled.next;
        }
        assert_eq!(seen, (1..=50).collect::<Vec<_>>());
        assert_eq!(keep.end(), position);
        append(&keep, 51);
        assert!(keep.end() > position);
        assert_eq!(revisions(&keep.blocks_after(position, 300).unwrap().bytes), [51]);
    }

    #[test]
    fn acknowledged_segments_are_deleted_and_unread_ones_are_missed() {
        let dir = tempfile::tempdir().unwrap();
        let keep = Keep::open(dir.path(), limits(1 << 20)).unwrap();
        append(&keep, 1);
        let before = keep.blocks_after(Position::default(), 1000).unwrap().next;
        let mut revision = 1;
        while keep.lock().sealed.len() < 3 {
            revision += 1;
            append(&keep, revision);
        }
        let after = keep.blocks_after(before, 1000).unwrap();
        assert!(!after.skipped);
        keep.acknowledged(Position::new(2, 0)).unwrap();
        assert_eq!(keep.lock().sealed.len(), 2);
        assert!(keep.blocks_after(before, 1000).unwrap().skipped);
        assert!(!keep.blocks_after(Position::new(2, 0), 1000).unwrap().skipped);
    }
}
