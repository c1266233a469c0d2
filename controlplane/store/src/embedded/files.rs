//! The files of the engine: opening, locking, and waiting until they are closed.

use super::{damage::Damage, health, panics::message};
use crate::StoreError;
use fjall::{Database, Keyspace, KeyspaceCreateOptions};
use std::{
    fs::{File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Blocks kept in memory. Objects are cached as objects, so reads here are rare.
const BLOCK_CACHE: u64 = 1 << 20;
/// Written values wait in memory for this many bytes before they go from the journal to a table.
const LOG_BUFFER: u64 = 4 << 20;
const INDEX_BUFFER: u64 = 1 << 20;
const JOURNALS: u64 = 64 << 20;

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        Self::Unavailable(health::of_engine(&error))
    }
}

/// The engine, open.
pub(super) struct Files {
    pub db: Database,
    pub index: Keyspace,
    pub log: Keyspace,
}

impl Files {
    pub fn open(path: &Path) -> Result<Self, Damage> {
        let failed = |e| Damage::Engine { directory: path.to_owned(), source: Box::new(e) };
        // More than one worker makes the engine poll while a table is merged.
        let builder = Database::builder(path).cache_size(BLOCK_CACHE).max_journaling_size(JOURNALS);
        let open = || -> Result<Self, fjall::Error> {
            let db = builder.worker_threads(1).open()?;
            let options = |buffer| move || KeyspaceCreateOptions::default().max_memtable_size(buffer);
            let index = db.keyspace("index", options(INDEX_BUFFER))?;
            let log = db.keyspace("log", options(LOG_BUFFER))?;
            Ok(Self { db, index, log })
        };
        // The engine has assertions about its files that none of its checks precede.
        catch_unwind(AssertUnwindSafe(open))
            .map_err(|panic| Damage::Panic { directory: path.to_owned(), message: message(&*panic) })?
            .map_err(failed)
    }
}

/// How often, and with which pauses, a store is tried that a process before this one may still be closing.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Holds the lock of the store while its files are checked. The engine takes the same lock afterwards.
pub(super) fn locked<T>(path: &Path, work: impl FnOnce() -> Result<T, Damage>) -> Result<T, Damage> {
    let lock = path.join("lock");
    let file = File::options().read(true).write(true).open(&lock).map_err(Damage::io(&lock))?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return work(),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(Damage::io(&lock)(error)),
        }
    }
    Err(Damage::Engine { directory: path.to_owned(), source: Box::new(fjall::Error::Locked) })
}

/// Bytes on disk of the files in a directory. The engine may remove some of them meanwhile.
pub(super) fn size(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

const CLOSES_WITHIN: Duration = Duration::from_secs(5);

/// Waits until this process has no journal open: the engine's threads may still hold one when it is dropped already, and
/// write what is left of a batch to it.
pub(super) fn wait_until_closed(store: &Path) -> io::Result<()> {
    let store = store.canonicalize()?;
    let begun = Instant::now();
    while begun.elapsed() < CLOSES_WITHIN {
        let open = std::fs::read_dir("/proc/self/fd")?.flatten().any(|fd| {
            let path = std::fs::read_link(fd.path()).unwrap_or_default();
            path.parent() == Some(&store) && path.extension().is_some_and(|end| end == "jnl")
        });
        if !open {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::TimedOut.into())
}
