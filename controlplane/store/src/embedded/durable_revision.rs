//! The newest durable revision, in a file of its own. It is written after every sync of the journal and not synced itself: it
//! costs little, survives the end of the process, and is never ahead of the journal. A store whose journal ends before this
//! revision has lost acknowledged writes.

use super::damage::Damage;
use crate::Revision;
use coracle_cli::causes;
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

pub(super) struct DurableRevision {
    file: File,
    path: PathBuf,
}

impl DurableRevision {
    /// Reads the durable revision; `None` when the store has no such file yet.
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

    /// Opens the file for writing; creates it if it does not exist.
    pub fn open(store: &Path) -> Result<Self, Damage> {
        let path = store.join(NAME);
        if !path.exists() {
            Self::make(store, &path).map_err(Damage::io(&path))?;
        }
        let file = OpenOptions::new().write(true).open(&path).map_err(Damage::io(&path))?;
        Ok(Self { file, path })
    }

    /// Creates the file by rename, so that it is never incomplete.
    fn make(store: &Path, path: &Path) -> std::io::Result<()> {
        let aside = path.with_extension("new");
        let new = Self { file: File::create(&aside)?, path: aside };
        new.write(0)?;
        new.file.sync_all()?;
        std::fs::rename(&new.path, path)?;
        File::open(store)?.sync_all()
    }

    /// Records that every revision up to this one is on disk.
    pub fn set(&self, revision: Revision) {
        if let Err(error) = self.write(revision) {
            tracing::warn!(error = %causes::chain(&error), file = %self.path.display(), "cannot write the durable revision");
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
        assert_eq!(DurableRevision::read(dir.path()).unwrap(), None);
        DurableRevision::open(dir.path()).unwrap().set(77);
        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut raw = whole.clone();
            raw[at] ^= 0x40;
            std::fs::write(&path, &raw).unwrap();
            assert_eq!(DurableRevision::read(dir.path()).unwrap(), Some(77), "byte {at}");
        }
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        assert!(matches!(DurableRevision::read(dir.path()), Err(Damage::Bytes { .. })));
    }
}
