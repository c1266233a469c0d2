//! How far the server has acknowledged what this node recorded: 16 bytes in a file, rewritten in place.

use coracle_timeline::Position;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The file. A position that is lost, or half written by a crash, costs a second delivery, which the server recognizes.
#[derive(Debug)]
pub struct Acknowledged {
    file: File,
    spool: u64,
    position: Position,
}

impl Acknowledged {
    /// Opens the file; a position in another spool than this one does not count.
    pub fn open(path: &Path, spool: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = [0; 16];
        let position = match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {
                let of = u128::from_le_bytes(bytes);
                // The lower half is the spool.
                if of as u64 == spool { Position((of >> 64) as u64) } else { Position(0) }
            }
            Err(_) => Position(0),
        };
        Ok(Acknowledged { file, spool, position })
    }

    /// Everything before it is with the server.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Goes on to a later position. An error is only a warning: the position in memory counts until a restart.
    pub fn advance(&mut self, to: Position) {
        self.position = self.position.max(to);
        let word = u128::from(self.spool) | u128::from(self.position.0) << 64;
        if let Err(error) = self.file.write_all_at(&word.to_le_bytes(), 0) {
            tracing::warn!(%error, "position of delivered spans not written");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_position_is_found_again_in_its_own_spool_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("acknowledged");
        let mut first = Acknowledged::open(&path, 7).unwrap();
        assert_eq!(first.position(), Position(0));
        first.advance(Position(300));
        first.advance(Position(200));
        assert_eq!(first.position(), Position(300), "it only grows");
        assert_eq!(Acknowledged::open(&path, 7).unwrap().position(), Position(300));
        assert_eq!(Acknowledged::open(&path, 8).unwrap().position(), Position(0));
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Acknowledged::open(&path, 7).unwrap().position(), Position(0));
    }
}
