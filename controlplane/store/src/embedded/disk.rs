//! The files: how they are opened, closed and opened again, read at a revision, and trimmed.

use super::{
    EmbeddedError, check,
    damage::Damage,
    durable_revision::DurableRevision,
    health::{self, Health},
    journal,
    record::{Marks, Record, Version, broken, number},
    tables, torn_writes,
};
use crate::{Change, KeyValue, Revision, StoreError, Unhealthy};
use coracle_cli::causes;
use fjall::{
    Database, Guard, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot,
};
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{DirBuilder, File, Permissions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    sync::Arc,
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

/// Blocks kept in memory. Objects are cached as objects, so reads here are rare.
const BLOCK_CACHE: u64 = 1 << 20;
/// Written values wait in memory for this many bytes before they go from the journal to a table.
const LOG_BUFFER: u64 = 4 << 20;
const INDEX_BUFFER: u64 = 1 << 20;
const JOURNALS: u64 = 64 << 20;

/// When there are up to this many entries in the log for one that is wanted, it is quicker to read all.
const SPARSE: u64 = 8;

/// Sorts before every key, which begin with `/`.
const MARKS: &str = "!marks";

impl From<fjall::Error> for StoreError {
    fn from(error: fjall::Error) -> Self {
        Self::Unavailable(health::of_engine(&error))
    }
}

fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Mode of the directory of the store.
const PRIVATE: u32 = 0o700;

/// Makes the files aside and moves them into place when they are whole: the engine cannot open what it was killed in
/// the middle of making.
fn make(path: &Path) -> Result<(), StoreError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = Path::new(&aside);
    let failed = |error: io::Error| EmbeddedError::Make { path: path.to_owned(), error };
    match std::fs::remove_dir_all(aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error).into()),
        _ => DirBuilder::new().recursive(true).mode(PRIVATE).create(aside).map_err(failed)?,
    }
    let files = Files::open(aside).map_err(|e| e.refusal(path))?;
    let mut batch = files.db.batch();
    let marks = Marks { no_orphans: true, ..Marks::default() };
    batch.insert(&files.index, MARKS, marks.encode());
    batch.durability(Some(PersistMode::SyncAll)).commit()?;
    drop(files);
    std::fs::rename(aside, path).map_err(failed)?;
    let parent = path.parent().unwrap_or(path);
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
    Ok(())
}

/// The engine, open.
pub(super) struct Files {
    db: Database,
    pub index: Keyspace,
    pub log: Keyspace,
}

impl Files {
    fn open(path: &Path) -> Result<Self, Damage> {
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

/// The message of a panic.
pub(super) fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Waits for a thread; a panic goes on in this one.
pub(super) fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => resume_unwind(panic),
    }
}

/// How often, and with which pauses, a store is tried that a process before this one may still be closing.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

/// Holds the lock of the store while its files are checked. The engine takes the same lock afterwards.
fn locked<T>(path: &Path, work: impl FnOnce() -> Result<T, Damage>) -> Result<T, Damage> {
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

/// Waits until this process has no journal open: the engine's threads may still hold one when it is dropped already, and
/// write what is left of a batch to it.
fn wait_until_closed(store: &Path) -> io::Result<()> {
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

const CLOSES_WITHIN: Duration = Duration::from_secs(5);

/// The store's files. All clones share them, also when they are closed and opened again.
#[derive(Clone)]
pub(super) struct Disk {
    pub path: Arc<Path>,
    /// There was no durable revision: the store is new, or was created by an earlier version.
    pub first: bool,
    pub health: Arc<Health>,
    pub durable: Arc<DurableRevision>,
    files: Arc<RwLock<Option<Files>>>,
}

impl Disk {
    /// Opens or makes the store, after all of it has been checked. Returns the revisions of values to be removed, too:
    /// see [`check::verify`].
    pub fn open(path: &Path) -> Result<(Self, Vec<Revision>), StoreError> {
        if is_empty(path) {
            make(path)?;
        }
        // Secrets are in there; one made by an earlier version could be read by everybody.
        std::fs::set_permissions(path, Permissions::from_mode(PRIVATE))
            .map_err(|error| EmbeddedError::Permissions { path: path.to_owned(), error })?;
        Ok(Self::checked(path).map_err(|damage| damage.refusal(path))?)
    }

    fn checked(path: &Path) -> Result<(Self, Vec<Revision>), Damage> {
        let (durable, acknowledged) = locked(path, || {
            let acknowledged = DurableRevision::read(path)?;
            let (tables, journal) = thread::scope(|scope| {
                let tables = scope.spawn(|| tables::verify(path));
                let journal = torn_writes::scan(path, acknowledged);
                (joined(tables), journal)
            });
            // Before both are known to be good nothing is changed.
            tables?;
            if let Some(journal) = journal? {
                journal.cut_torn_end()?;
            }
            Ok((DurableRevision::open(path)?, acknowledged))
        })?;
        let files = Arc::new(RwLock::new(Some(Files::open(path)?)));
        let (path, first) = (path.into(), acknowledged.is_none());
        let disk = Self { path, first, health: Arc::default(), durable: Arc::new(durable), files };
        let (journal, end) = torn_writes::end(&disk.path);
        let damaged = |what| Damage::Bytes { file: journal.clone(), offset: end, what };
        let view = disk.view().map_err(|e| damaged(e.to_string()))?;
        let known = view.known().map_err(|e| damaged(e.to_string()))?;
        if let Some(acknowledged) = acknowledged.filter(|acknowledged| known < *acknowledged) {
            return Err(damaged(format!(
                "it ends with revision {known}, and revisions up to {acknowledged} were acknowledged"
            )));
        }
        let orphans = check::verify(&view, disk.first)
            .map_err(|e| damaged(format!("index and log do not belong together: {e}")))?;
        drop(view);
        Ok((disk, orphans))
    }

    /// Closes the files and cuts off what is not whole; readers wait until they are open again. What was written but not
    /// synced is on disk afterwards, or gone. After an error the files stay closed.
    pub fn close(&self) -> Result<Closed<'_>, Damage> {
        let mut files = self.files.write();
        drop(files.take());
        wait_until_closed(&self.path).map_err(Damage::io(&self.path))?;
        locked(&self.path, || torn_writes::cut_torn_end(&self.path, DurableRevision::read(&self.path)?))?;
        Ok(Closed { path: &self.path, files })
    }

    /// Whether the files can be read.
    pub fn is_open(&self) -> bool {
        self.files.read().is_some()
    }

    fn files(&self) -> Result<MappedRwLockReadGuard<'_, Files>, StoreError> {
        RwLockReadGuard::try_map(self.files.read(), Option::as_ref).map_err(|_| {
            let closed = || Unhealthy::Io { detail: "the files cannot be opened again".to_owned() };
            StoreError::Unavailable(self.health.why().unwrap_or_else(closed))
        })
    }

    /// A set of changes that becomes visible, and survives, as a whole. The files are not closed while it is there.
    pub fn batch(&self) -> Result<Batch<'_>, StoreError> {
        let files = self.files()?;
        Ok(Batch { inner: files.db.batch(), files })
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        Ok(self.files()?.db.persist(PersistMode::SyncData)?)
    }

    /// Whether the engine still takes writes: a failure in the background makes it refuse them.
    pub fn check(&self) -> Result<(), StoreError> {
        Ok(self.files()?.db.persist(PersistMode::Buffer)?)
    }

    pub fn version(&self, key: &str) -> Result<Option<Version>, StoreError> {
        self.files()?.index.get(key)?.map(|raw| Version::decode(&raw)).transpose()
    }

    pub fn view(&self) -> Result<View<'_>, StoreError> {
        let files = self.files()?;
        Ok(View { at: files.db.snapshot(), files })
    }

    /// Reads from the store as it is now, and takes note when that fails. That the files are closed is no failure to read
    /// them; the writer tells of it.
    pub fn read<T>(&self, work: impl FnOnce(&View<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let view = self.view()?;
        let result = work(&view);
        drop(view);
        self.note(result)
    }

    /// Takes note of a read that failed because of the files, and finds out which of them it is.
    pub fn note<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Unavailable(why @ (Unhealthy::Io { .. } | Unhealthy::Damaged { .. }))) =
            &result
            && self.health.read_failed(why)
        {
            let why = self.located(why.clone());
            tracing::error!(error = %why, "the store cannot be read");
            self.health.set_reader(why);
        }
        result
    }

    /// The same with the file and the place, if a table is damaged.
    pub fn located(&self, why: Unhealthy) -> Unhealthy {
        match self.verify() {
            Err(damage @ Damage::Bytes { .. }) => Unhealthy::Damaged { detail: damage.to_string() },
            _ => why,
        }
    }

    /// Compares the tables with their checksums again after a read has failed: the disk may work again.
    pub fn recheck(&self) {
        match self.verify() {
            Ok(()) => {
                if self.health.clear_reader() {
                    tracing::info!("all tables of the store can be read again");
                }
            }
            Err(damage @ Damage::Bytes { .. }) => {
                tracing::error!(error = %causes::chain(&damage), "the store is damaged");
                self.health.set_reader(Unhealthy::Damaged { detail: damage.to_string() });
            }
            Err(error) => tracing::warn!(error = %causes::chain(&error), "the store still cannot be read"),
        }
    }

    /// Compares the tables with their checksums while the engine may replace some of them: only what is found twice is
    /// damage.
    fn verify(&self) -> Result<(), Damage> {
        let mut result = tables::verify(&self.path);
        for _ in 0..VERIFIES {
            let Err(Damage::Bytes { file, offset, what }) = &result else { break };
            let before = (file.clone(), *offset, what.clone());
            result = tables::verify(&self.path);
            if let Err(Damage::Bytes { file, offset, what }) = &result
                && (file, offset, what) == (&before.0, &before.1, &before.2)
            {
                break;
            }
        }
        result
    }
}

/// How often tables are compared again that differ from their checksums.
const VERIFIES: u32 = 4;

/// The files while they are closed. Dropping it leaves them closed.
pub(super) struct Closed<'a> {
    path: &'a Path,
    files: RwLockWriteGuard<'a, Option<Files>>,
}

impl Closed<'_> {
    /// Opens the files again. After an error they stay closed.
    pub fn open(mut self) -> Result<(), Damage> {
        *self.files = Some(Files::open(self.path)?);
        Ok(())
    }
}

/// Changes that are not made yet.
pub(super) struct Batch<'a> {
    inner: OwnedWriteBatch,
    files: MappedRwLockReadGuard<'a, Files>,
}

impl Batch<'_> {
    pub fn put_marks(&mut self, marks: &Marks) {
        self.inner.insert(&self.files.index, MARKS, marks.encode());
    }

    pub fn put(&mut self, revision: Revision, record: &Record) {
        if record.value.is_some() {
            let version = Version { created: record.created, modified: revision };
            self.inner.insert(&self.files.index, record.key, version.encode());
        } else {
            self.inner.remove(&self.files.index, record.key);
        }
        self.inner.insert(&self.files.log, revision.to_be_bytes(), record.encode());
    }

    /// Removes one entry of the log.
    pub fn forget(&mut self, revision: Revision) {
        self.inner.remove(&self.files.log, revision.to_be_bytes());
    }

    /// Makes the changes, on disk or soon.
    pub fn commit(mut self, sync: bool) -> Result<(), StoreError> {
        let mode = if sync {
            PersistMode::SyncData
        } else {
            // Who reads the journal must know that what stands before the next batch may not have been on disk then.
            self.inner.insert(&self.files.index, journal::LAZY, []);
            PersistMode::Buffer
        };
        Ok(self.inner.durability(Some(mode)).commit()?)
    }

    /// Removes what only states before `upto` need, of changes after `from`.
    pub fn trim(&mut self, from: Revision, upto: Revision) -> Result<(), StoreError> {
        let range = (from + 1).to_be_bytes()..=upto.to_be_bytes();
        for entry in self.files.log.range(range) {
            let (revision, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.previous > 0 {
                self.inner.remove(&self.files.log, record.previous.to_be_bytes());
            }
            if record.value.is_none() {
                self.inner.remove(&self.files.log, revision);
            }
        }
        Ok(())
    }
}

/// The store as it was at one moment.
pub(super) struct View<'a> {
    pub at: Snapshot,
    pub files: MappedRwLockReadGuard<'a, Files>,
}

impl View<'_> {
    pub fn marks(&self) -> Result<Marks, StoreError> {
        match self.at.get(&self.files.index, MARKS)? {
            None => Ok(Marks::default()),
            Some(raw) => serde_json::from_slice(&raw).map_err(|_| broken()),
        }
    }

    /// The revision of the last entry in the log, 0 if it is empty.
    pub fn last(&self) -> Result<Revision, StoreError> {
        let last = self.at.last_key_value(&self.files.log).map(Guard::key).transpose()?;
        last.map_or(Ok(0), |key| number(&key, 0))
    }

    /// The newest revision that the files know of.
    pub fn known(&self) -> Result<Revision, StoreError> {
        let marks = self.marks()?;
        let again = marks.lost.iter().map(|(_, again)| *again);
        Ok(again.fold(self.last()?.max(marks.compacted), Revision::max))
    }

    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.at.get(&self.files.index, key)? {
            None => Ok(None),
            Some(raw) => Ok(Some(self.put_at(Version::decode(&raw)?.modified)?)),
        }
    }

    /// The changes after `after` in order, at most `limit`; whatever their key.
    pub fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Change>, StoreError> {
        let mut changes = Vec::new();
        for entry in self.at.range(&self.files.log, (after + 1).to_be_bytes()..).take(limit) {
            let (revision, raw) = entry.into_inner()?;
            changes.push(Record::decode(&raw)?.change(number(&revision, 0)?));
        }
        Ok(changes)
    }

    /// All keys with the prefix as they were at the revision, which must be in the kept history.
    pub fn range(&self, prefix: &str, at: Option<Revision>) -> Result<Vec<KeyValue>, StoreError> {
        let mut versions = BTreeMap::new();
        for entry in self.at.prefix(&self.files.index, prefix) {
            let (key, raw) = entry.into_inner()?;
            if key.first() == Some(&b'/') {
                versions.insert(key, Version::decode(&raw)?.modified);
            }
        }
        if let Some(at) = at {
            for (key, previous) in self.since(prefix, at)? {
                match previous {
                    0 => versions.remove(key.as_bytes()),
                    revision => versions.insert(key.as_bytes().into(), revision),
                };
            }
        }
        // In the order of the log, so that each of its blocks is read once.
        let mut order: Vec<_> = versions.into_values().enumerate().collect();
        order.sort_unstable_by_key(|(_, revision)| *revision);
        let mut found = Vec::with_capacity(order.len());
        match (order.first(), order.last()) {
            (Some((_, first)), Some((_, last))) if last - first < SPARSE * order.len() as u64 => {
                let log = self.at.range(&self.files.log, first.to_be_bytes()..=last.to_be_bytes());
                let mut wanted = order.iter().peekable();
                for entry in log {
                    let (revision, raw) = entry.into_inner()?;
                    let revision = number(&revision, 0)?;
                    if let Some((place, _)) = wanted.next_if(|(_, one)| *one == revision) {
                        found.push((*place, Record::decode(&raw)?.key_value(revision).ok_or_else(broken)?));
                    }
                }
                if wanted.next().is_some() {
                    return Err(broken());
                }
            }
            _ => {
                for (place, revision) in order {
                    found.push((place, self.put_at(revision)?));
                }
            }
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, found)| found).collect())
    }

    /// The keys that changed after the revision and which revision each had then, 0 for none.
    fn since(&self, prefix: &str, at: Revision) -> Result<HashMap<String, Revision>, StoreError> {
        let mut then = HashMap::new();
        for entry in self.at.range(&self.files.log, (at + 1).to_be_bytes()..) {
            let (_, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.key.starts_with(prefix) && !then.contains_key(record.key) {
                then.insert(record.key.to_owned(), record.previous);
            }
        }
        Ok(then)
    }

    fn put_at(&self, revision: Revision) -> Result<KeyValue, StoreError> {
        let raw = self.at.get(&self.files.log, revision.to_be_bytes())?.ok_or_else(broken)?;
        Record::decode(&raw)?.key_value(revision).ok_or_else(broken)
    }
}
