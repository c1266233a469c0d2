//! The files: how they are opened, read at a revision, and trimmed.

use super::{
    record::{Marks, Record, Version, broken, number},
    torn,
};
use crate::store::{Change, KeyValue, Revision, StoreError};
use fjall::{
    Database, Guard, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot,
};
use std::{
    collections::{BTreeMap, HashMap},
    fs::{DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
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
        Self::Engine(format!("embedded store: {error}"))
    }
}

fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Nobody but the server reads its store.
const PRIVATE: u32 = 0o700;

/// Makes the files aside and moves them into place when they are whole: the engine cannot open what it was killed in
/// the middle of making.
fn make(path: &Path) -> Result<(), StoreError> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = Path::new(&aside);
    let failed = |e: std::io::Error| StoreError::Engine(format!("make {}: {e}", path.display()));
    match std::fs::remove_dir_all(aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => DirBuilder::new().recursive(true).mode(PRIVATE).create(aside).map_err(failed)?,
    }
    let disk = Disk::with(engine(aside)?)?;
    let mut batch = disk.batch();
    disk.put_marks(&mut batch, &Marks::default());
    batch.durability(Some(PersistMode::SyncAll)).commit()?;
    drop(disk);
    std::fs::rename(aside, path).map_err(failed)?;
    let parent = path.parent().unwrap_or(path);
    std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}

fn engine(path: &Path) -> Result<Database, fjall::Error> {
    // More than one worker makes the engine poll while a table is merged.
    let builder = Database::builder(path).cache_size(BLOCK_CACHE).max_journaling_size(JOURNALS);
    builder.worker_threads(1).open()
}

#[derive(Clone)]
pub(super) struct Disk {
    db: Database,
    index: Keyspace,
    log: Keyspace,
}

impl Disk {
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if is_empty(path) {
            make(path)?;
        }
        // Secrets are in there; one made by an earlier version could be read by everybody.
        std::fs::set_permissions(path, Permissions::from_mode(PRIVATE))
            .map_err(|e| StoreError::Engine(format!("{}: {e}", path.display())))?;
        let db = match engine(path) {
            Err(fjall::Error::JournalRecovery(torn)) => {
                let cut = torn::repair(path)
                    .map_err(|e| StoreError::Engine(format!("open {}: {e}", path.display())))?;
                tracing::warn!(
                    ?torn,
                    cut,
                    "the last writes before a power cut were not whole and are cut off"
                );
                engine(path)
            }
            result => result,
        };
        let db = db.map_err(|e| StoreError::Engine(format!("open {}: {e}", path.display())))?;
        Self::with(db)
    }

    fn with(db: Database) -> Result<Self, StoreError> {
        let options = |buffer| move || KeyspaceCreateOptions::default().max_memtable_size(buffer);
        let index = db.keyspace("index", options(INDEX_BUFFER))?;
        let log = db.keyspace("log", options(LOG_BUFFER))?;
        Ok(Self { db, index, log })
    }

    /// A set of changes that becomes visible, and survives, as a whole.
    pub fn batch(&self) -> OwnedWriteBatch {
        self.db.batch()
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    pub fn put_marks(&self, batch: &mut OwnedWriteBatch, marks: &Marks) {
        let raw = serde_json::to_vec(marks).expect("numbers always serialise");
        batch.insert(&self.index, MARKS, raw);
    }

    pub fn put(&self, batch: &mut OwnedWriteBatch, revision: Revision, record: &Record) {
        if record.value.is_some() {
            let version = Version { created: record.created, modified: revision };
            batch.insert(&self.index, record.key, version.encode());
        } else {
            batch.remove(&self.index, record.key);
        }
        batch.insert(&self.log, revision.to_be_bytes(), record.encode());
    }

    /// Removes what only states before `upto` need, of changes after `from`.
    pub fn trim(
        &self,
        batch: &mut OwnedWriteBatch,
        from: Revision,
        upto: Revision,
    ) -> Result<(), StoreError> {
        let range = (from + 1).to_be_bytes()..=upto.to_be_bytes();
        for entry in self.log.range(range) {
            let (revision, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.previous > 0 {
                batch.remove(&self.log, record.previous.to_be_bytes());
            }
            if record.value.is_none() {
                batch.remove(&self.log, revision);
            }
        }
        Ok(())
    }

    pub fn version(&self, key: &str) -> Result<Option<Version>, StoreError> {
        self.index.get(key)?.map(|raw| Version::decode(&raw)).transpose()
    }

    pub fn view(&self) -> View<'_> {
        View { disk: self, at: self.db.snapshot() }
    }
}

/// The store as it was at one moment.
pub(super) struct View<'a> {
    disk: &'a Disk,
    at: Snapshot,
}

impl View<'_> {
    pub fn marks(&self) -> Result<Marks, StoreError> {
        match self.at.get(&self.disk.index, MARKS)? {
            None => Ok(Marks::default()),
            Some(raw) => serde_json::from_slice(&raw).map_err(|_| broken()),
        }
    }

    /// The revision of the last entry in the log, 0 if it is empty.
    pub fn last(&self) -> Result<Revision, StoreError> {
        let last = self.at.last_key_value(&self.disk.log).map(Guard::key).transpose()?;
        last.map_or(Ok(0), |key| number(&key, 0))
    }

    pub fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        match self.at.get(&self.disk.index, key)? {
            None => Ok(None),
            Some(raw) => Ok(Some(self.put_at(Version::decode(&raw)?.modified)?)),
        }
    }

    /// The changes after `after` in order, at most `limit`; whatever their key.
    pub fn changes(&self, after: Revision, limit: usize) -> Result<Vec<Change>, StoreError> {
        let mut changes = Vec::new();
        for entry in self.at.range(&self.disk.log, (after + 1).to_be_bytes()..).take(limit) {
            let (revision, raw) = entry.into_inner()?;
            changes.push(Record::decode(&raw)?.change(number(&revision, 0)?));
        }
        Ok(changes)
    }

    /// All keys with the prefix as they were at the revision, which must be in the kept history.
    pub fn range(&self, prefix: &str, at: Option<Revision>) -> Result<Vec<KeyValue>, StoreError> {
        let mut versions = BTreeMap::new();
        for entry in self.at.prefix(&self.disk.index, prefix) {
            let (key, raw) = entry.into_inner()?;
            if &key[..] != MARKS.as_bytes() {
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
                let log = self.at.range(&self.disk.log, first.to_be_bytes()..=last.to_be_bytes());
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
        for entry in self.at.range(&self.disk.log, (at + 1).to_be_bytes()..) {
            let (_, raw) = entry.into_inner()?;
            let record = Record::decode(&raw)?;
            if record.key.starts_with(prefix) && !then.contains_key(record.key) {
                then.insert(record.key.to_owned(), record.previous);
            }
        }
        Ok(then)
    }

    fn put_at(&self, revision: Revision) -> Result<KeyValue, StoreError> {
        let raw = self.at.get(&self.disk.log, revision.to_be_bytes())?.ok_or_else(broken)?;
        Record::decode(&raw)?.key_value(revision).ok_or_else(broken)
    }
}
