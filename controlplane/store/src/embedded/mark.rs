//! The newest revision that is known to be on disk, in a file of its own. It is written after every sync and not synced
//! itself, so it costs next to nothing, survives the end of the process, and is never ahead of the journal. A store that
//! has less than this has lost acknowledged writes, whatever its journal looks like.

use super::damage::Damage;
use crate::Revision;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::xxh3_64;

const NAME: &str = "synced";
const MAGIC: &[u8; 8] = b"CORMARK1";
const COPY: usize = 24;
/// The second copy is in another sector.
const SECOND: usize = 512;

pub(super) struct Mark {
    file: File,
    path: PathBuf,
}

impl Mark {
    /// Reads the mark of a store; `None` when the store has none yet.
    pub fn read(store: &Path) -> Result<Option<Revision>, Damage> {
        let path = store.join(NAME);
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(Damage::io(&path))?,
        };
        let mut raw = [0; SECOND + COPY];
        file.read_exact_at(&mut raw, 0).map_err(Damage::io(&path))?;
        match decode(&raw[..COPY]).max(decode(&raw[SECOND..])) {
            None => Err(Damage::bytes(&path, 0, "neither copy of the newest revision has a valid checksum")),
            revision => Ok(revision),
        }
    }

    /// Opens the mark of a store to write it; makes it if the store has none yet.
    pub fn open(store: &Path) -> Result<Self, Damage> {
        let path = store.join(NAME);
        if !path.exists() {
            Self::make(store, &path).map_err(Damage::io(&path))?;
        }
        let file = OpenOptions::new().write(true).open(&path).map_err(Damage::io(&path))?;
        Ok(Self { file, path })
    }

    /// A file that is whole as soon as it is there.
    fn make(store: &Path, path: &Path) -> std::io::Result<()> {
        let aside = path.with_extension("new");
        let mark = Self { file: File::create(&aside)?, path: aside };
        mark.write(0)?;
        mark.file.sync_all()?;
        std::fs::rename(&mark.path, path)?;
        File::open(store)?.sync_all()
    }

    /// Notes that everything up to the revision is on disk.
    pub fn set(&self, revision: Revision) {
        if let Err(error) = self.write(revision) {
            tracing::warn!(%error, file = %self.path.display(), "cannot note the newest revision");
        }
    }

    fn write(&self, revision: Revision) -> std::io::Result<()> {
        let mut raw = [0; SECOND + COPY];
        raw[..COPY].copy_from_slice(&encode(revision));
        raw[SECOND..].copy_from_slice(&encode(revision));
        self.file.write_all_at(&raw, 0)
    }
}

fn encode(revision: Revision) -> [u8; COPY] {
    let mut raw = [0; COPY];
    raw[..8].copy_from_slice(MAGIC);
    raw[8..16].copy_from_slice(&revision.to_le_bytes());
    let sum = xxh3_64(&raw[..16]);
    raw[16..].copy_from_slice(&sum.to_le_bytes());
    raw
}

fn decode(raw: &[u8]) -> Option<Revision> {
    let revision = u64::from_le_bytes(raw[8..16].try_into().ok()?);
    (raw == encode(revision)).then_some(revision)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn survives_one_changed_byte_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Mark::read(dir.path()).unwrap(), None);
        Mark::open(dir.path()).unwrap().set(77);
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut raw = whole.clone();
            raw[at] ^= 0x40;
            std::fs::write(&path, &raw).unwrap();
            assert_eq!(Mark::read(dir.path()).unwrap(), Some(77), "byte {at}");
        }
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        assert!(matches!(Mark::read(dir.path()), Err(Damage::Bytes { .. })));
    }
}
