//! The journals before the engine sees them. A crash leaves the last writes incomplete: they were not acknowledged (or
//! lazy), and are cut off and kept aside. Anything else that is wrong is damage, and the store is not opened.
//!
//! Disks write whole sectors, and space that was never written reads as zeros. A crash therefore leaves a batch that ends
//! too soon or has a sector of zeros, and nothing behind it that was synced. A batch that is there to its end with other
//! bytes than were written is damage, and so is everything that is wrong before a revision that was acknowledged.

use super::{
    damage::Damage,
    journal::{self, Batch, TRAILER},
    probe::probe,
};
use crate::Revision;
use coracle_cli::causes;
use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

const SECTOR: usize = 512;
/// Batches are numbered with few gaps.
const MAX_GAP: u64 = 1 << 32;

/// A journal as far as it is whole.
pub(super) struct Journal {
    path: PathBuf,
    /// Without zeros at the end.
    bytes: Vec<u8>,
    /// Where the last batch ends before which all are whole.
    whole: usize,
    /// Up to here everything is known to be on disk.
    synced: usize,
}

/// How far the journals go.
#[derive(Default)]
struct Seen {
    sequence: Option<u64>,
    /// The newest revision that is written.
    revision: Revision,
    /// The newest that is known to be passed over: a crash took the lazy writes up to it.
    reached: Revision,
}

/// Checks all journals of the directory and settles the newest one: see [`scan`] and [`Journal::cut_torn_end`].
pub(super) fn cut_torn_end(directory: &Path, durable: Option<Revision>) -> Result<usize, Damage> {
    scan(directory, durable)?.map_or(Ok(0), |newest| newest.cut_torn_end())
}

/// Checks all journals of the directory and changes nothing. Returns the newest one that has anything in it. `durable` is the
/// revision up to which writes were acknowledged; without it that is not known.
pub(super) fn scan(directory: &Path, durable: Option<Revision>) -> Result<Option<Journal>, Damage> {
    let journals = journal::all(directory).map_err(Damage::io(directory))?;
    for pair in journals.windows(2) {
        if pair[0].0 + 1 != pair[1].0 {
            let missing = directory.join(format!("{}.jnl", pair[0].0 + 1));
            return Err(Damage::bytes(&missing, 0, "this journal is missing"));
        }
    }
    let (mut seen, mut last) = (Seen::default(), None::<Journal>);
    for (_, path) in journals {
        let bytes = journal::read(&path).map_err(Damage::io(&path))?;
        if bytes.is_empty() {
            continue;
        }
        if let Some(before) = last.filter(|before| before.whole < before.bytes.len()) {
            let what = format!("a batch is not whole, and {} follows", path.display());
            return Err(Damage::bytes(&before.path, before.whole, what));
        }
        last = Some(seen.scan(path, bytes, durable)?);
    }
    if let Some(last) = last.as_ref().filter(|last| last.whole < last.bytes.len()) {
        last.check_end(&seen, durable)?;
    }
    Ok(last)
}

impl Seen {
    fn scan(&mut self, path: PathBuf, bytes: Vec<u8>, durable: Option<Revision>) -> Result<Journal, Damage> {
        let (mut at, mut synced) = (0, 0);
        while let Some(batch) = journal::batch(&bytes[at..]) {
            if !self.may_follow(&batch) {
                let last = self.sequence.unwrap_or_default();
                let what = format!("batch number {} follows {last}", batch.sequence);
                return Err(Damage::bytes(&path, at, what));
            }
            self.sequence = Some(batch.sequence);
            self.revision = self.revision.max(batch.revision);
            self.reached = self.reached.max(batch.reached);
            at += batch.length;
            if batch.revision > 0 && durable.is_some_and(|durable| batch.revision <= durable) {
                synced = at;
            }
        }
        Ok(Journal { path, bytes, whole: at, synced })
    }

    fn may_follow(&self, batch: &Batch) -> bool {
        self.sequence.is_none_or(|last| batch.sequence > last && batch.sequence - last < MAX_GAP)
    }
}

impl Journal {
    /// Cuts an incomplete end off, and writes what may not be on disk again. Returns how many bytes went.
    pub fn cut_torn_end(&self) -> Result<usize, Damage> {
        let torn = self.bytes.len() - self.whole;
        if torn > 0 {
            tracing::warn!(
                journal = %self.path.display(),
                offset = self.whole,
                bytes = torn,
                "incomplete writes of a crash cut off the journal"
            );
        }
        self.write_again()?;
        Ok(torn)
    }

    /// Whether a crash can have left the end of the journal like this.
    fn check_end(&self, seen: &Seen, durable: Option<Revision>) -> Result<(), Damage> {
        let damaged = |what: String| Err(Damage::bytes(&self.path, self.whole, what));
        let end = &self.bytes[self.whole..];
        // Without a revision in the journals it is compared when the tables can be read.
        let newest = seen.revision.max(seen.reached);
        if let Some(durable) = durable.filter(|durable| seen.revision > 0 && newest < *durable) {
            return damaged(format!(
                "a batch is not whole behind revision {newest}, and revisions up to {durable} were acknowledged"
            ));
        }
        let later = Later::of(end, seen);
        if later.synced {
            return damaged(format!("a batch is not whole, and {} synced ones follow", later.batches));
        }
        if has_hole(end, self.whole) {
            return Ok(());
        }
        if later.batches > 0 {
            return damaged(format!("a batch is not whole, and {} whole ones follow", later.batches));
        }
        if end.ends_with(TRAILER) {
            return damaged("the last batch is written to its end, but its checksum is wrong".to_owned());
        }
        Ok(())
    }

    /// After a sync that failed, memory may show bytes that never reached the disk, and the next sync does not say so.
    fn write_again(&self) -> Result<(), Damage> {
        let failed = || Damage::io(&self.path);
        let torn = &self.bytes[self.whole..];
        if self.synced == self.whole && torn.is_empty() {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(&self.path).map_err(failed())?;
        let unsure = &self.bytes[self.synced..self.whole];
        // First: the end may be what fills the disk.
        file.set_len(self.whole as u64).map_err(failed())?;
        file.write_all_at(unsure, self.synced as u64).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        if !torn.is_empty() {
            self.keep(torn);
        }
        Ok(())
    }

    /// Keeps what was cut off for a person to look at, unless the store needs the space itself.
    fn keep(&self, torn: &[u8]) {
        let copy = self.path.with_extension("torn");
        let store = self.path.parent().unwrap_or(&self.path);
        if let Err(error) = fs::write(&copy, torn).and_then(|()| probe(store)) {
            tracing::warn!(error = %causes::chain(&error), "cannot keep a copy of the bytes that were cut off");
            let _ = fs::remove_file(&copy);
        }
    }
}

/// Whole batches behind one that is not.
#[derive(Default)]
struct Later {
    batches: usize,
    /// One of them was synced, and with it all before it: another was written after it.
    synced: bool,
}

impl Later {
    fn of(end: &[u8], seen: &Seen) -> Self {
        let (mut later, mut at, mut syncs) = (Self::default(), 1, false);
        while at < end.len() {
            match journal::batch(&end[at..]).filter(|batch| seen.may_follow(batch)) {
                Some(batch) => {
                    later.synced |= syncs;
                    syncs |= !batch.lazy;
                    later.batches += 1;
                    at += batch.length;
                }
                None => at += 1,
            }
        }
        later
    }
}

/// Whether a sector is all zeros, as space is that was never written.
fn has_hole(bytes: &[u8], offset: usize) -> bool {
    let first = (SECTOR - offset % SECTOR).min(bytes.len());
    let (first, rest) = bytes.split_at(first);
    let zeros = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    zeros(first) || rest.chunks(SECTOR).any(zeros)
}

/// Where the newest journal ends.
pub(super) fn end(directory: &Path) -> (PathBuf, u64) {
    let newest = journal::all(directory).ok().and_then(|mut all| all.pop());
    let Some((_, path)) = newest else { return (directory.to_owned(), 0) };
    let length = File::open(&path).and_then(|file| file.metadata()).map_or(0, |data| data.len());
    (path, length)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Durability, Store, Write, conformance_tests::put, embedded::Embedded};

    /// Text that the journal cannot make small.
    fn value() -> String {
        (1..2000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
    }

    async fn lazy(store: &Embedded, key: &str) {
        let value = Some(value().into());
        let write =
            Write { key: key.to_owned(), expect: 0, value, durability: Durability::Lazy, fence: None };
        store.write(write).await.unwrap();
    }

    /// The bytes of the newest journal and where each of its batches begins.
    fn batches(dir: &Path) -> (PathBuf, Vec<u8>, Vec<usize>) {
        let path = journal::all(dir).unwrap().pop().unwrap().1;
        let bytes = journal::read(&path).unwrap();
        let (mut at, mut starts) = (0, Vec::new());
        while let Some(batch) = journal::batch(&bytes[at..]) {
            starts.push(at);
            at += batch.length;
        }
        assert_eq!(at, bytes.len(), "this parser knows the whole journal");
        (path, bytes, starts)
    }

    /// As after a power cut: the durable revision is not the newest.
    fn forget_mark(dir: &Path) {
        fs::remove_file(dir.join("synced")).unwrap();
    }

    /// Writes of several pages; then a sector that the disk did not get to, or the end missing.
    #[tokio::test]
    async fn a_torn_end_costs_only_what_was_not_synced() {
        for (hole, left) in [(None, 20), (Some(0), 19), (Some(3), 19), (Some(99), 19)] {
            let dir = tempfile::tempdir().unwrap();
            let store = Embedded::open(dir.path()).unwrap();
            for n in 0..20 {
                put(&store, &format!("/registry/{n:02}"), 0, &value()).await.unwrap();
            }
            drop(store);
            let (path, mut bytes, starts) = batches(dir.path());
            assert_eq!(cut_torn_end(dir.path(), None).unwrap(), 0);
            let last = *starts.last().unwrap();
            match hole {
                Some(99) => bytes.truncate(last + 5000),
                Some(sector) => {
                    let from = (last / SECTOR + sector) * SECTOR;
                    bytes[from.max(last)..from + SECTOR].fill(0);
                }
                None => {}
            }
            fs::write(&path, &bytes).unwrap();
            if hole.is_some() {
                // The process was killed: the durable revision includes the last write, which must not be lost.
                let refused = Embedded::open(dir.path()).err().unwrap().to_string();
                assert!(refused.contains(&format!(" at byte {last}: ")), "{refused}");
                assert_eq!(fs::read(&path).unwrap(), bytes, "a store that is not opened is not changed");
                forget_mark(dir.path());
            }
            let store = Embedded::open(dir.path()).unwrap();
            assert_eq!(store.range("/registry/", None).await.unwrap().0.len(), left, "{hole:?}");
            let again = put(&store, "/registry/again", 0, &value()).await.unwrap();
            drop(store);
            assert_eq!(Embedded::open(dir.path()).unwrap().revision().await.unwrap(), again);
        }
    }

    /// Whether the store opens when a byte of the batch is another one, or a sector of it zeros.
    async fn opens(lazies: bool, batch: usize, hole: bool) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for n in 0..6 {
            match lazies && n > 0 {
                true => lazy(&store, &format!("/registry/{n:02}")).await,
                false => drop(put(&store, &format!("/registry/{n:02}"), 0, &value()).await.unwrap()),
            }
        }
        // As if it were killed.
        let copy = tempfile::tempdir().unwrap();
        let status = std::process::Command::new("cp").arg("-a").arg(dir.path()).arg(copy.path()).status();
        assert!(status.unwrap().success());
        drop(store);
        let dir = copy.path().join(dir.path().file_name().unwrap());
        let (path, mut bytes, starts) = batches(&dir);
        let from = starts[starts.len() - 1 - batch];
        let sector = (from / SECTOR + 2) * SECTOR;
        match hole {
            true => bytes[sector..sector + SECTOR].fill(0),
            false => bytes[sector] ^= 4,
        }
        fs::write(&path, &bytes).unwrap();
        forget_mark(&dir);
        let opened = Embedded::open(&dir).map(drop).map_err(|e| e.to_string());
        if let Err(refused) = &opened {
            assert!(
                refused.contains(&format!("{} is damaged at byte {from}: ", path.display())),
                "{refused}"
            );
        }
        opened
    }

    #[tokio::test]
    async fn damage_is_told_from_a_torn_end() {
        // In the middle, with synced batches behind it, whatever it looks like; even when the durable revision is lost.
        assert!(opens(false, 3, true).await.unwrap_err().contains("synced ones follow"));
        assert!(opens(false, 3, false).await.unwrap_err().contains("synced ones follow"));
        // The last one: a sector that was not written, or a byte that was written differently.
        opens(false, 0, true).await.unwrap();
        assert!(opens(false, 0, false).await.unwrap_err().contains("written to its end"));
        // Lazy batches go to the disk in any order.
        opens(true, 2, true).await.unwrap();
        assert!(opens(true, 2, false).await.unwrap_err().contains("whole ones follow"));
    }

    #[tokio::test]
    async fn what_is_cut_off_is_kept_only_when_there_is_space() {
        for full in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let store = Embedded::open(dir.path()).unwrap();
            put(&store, "/registry/a", 0, "1").await.unwrap();
            drop(store);
            let (path, bytes, _) = batches(dir.path());
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(b"\x01torn", bytes.len() as u64).unwrap();
            if full {
                std::os::unix::fs::symlink("/dev/full", dir.path().join("probe")).unwrap();
            }
            assert_eq!(cut_torn_end(dir.path(), None).unwrap(), 5);
            assert_eq!(journal::read(&path).unwrap(), bytes);
            assert_eq!(path.with_extension("torn").exists(), !full);
        }
    }

    #[tokio::test]
    async fn a_missing_journal_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        put(&store, "/registry/a", 0, "1").await.unwrap();
        drop(store);
        let path = journal::all(dir.path()).unwrap().pop().unwrap().1;
        let kept = fs::read(&path).unwrap();
        // Gone, empty, and with one behind it that does not follow.
        fs::remove_file(&path).unwrap();
        assert!(Embedded::open(dir.path()).err().unwrap().to_string().contains("acknowledged"));
        let _ = fs::remove_file(journal::all(dir.path()).unwrap().pop().unwrap().1);
        fs::write(&path, "").unwrap();
        assert!(Embedded::open(dir.path()).err().unwrap().to_string().contains("acknowledged"));
        fs::write(&path, kept).unwrap();
        fs::write(dir.path().join("7.jnl"), "").unwrap();
        assert!(Embedded::open(dir.path()).err().unwrap().to_string().contains("missing"));
        fs::remove_file(dir.path().join("7.jnl")).unwrap();
        Embedded::open(dir.path()).unwrap();
    }
}
