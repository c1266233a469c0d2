//! The store on disk: made, checked and opened, closed and opened again.

use super::{
    batch::Batch,
    check,
    damage::Damage,
    durable_revision::DurableRevision,
    error::EmbeddedError,
    files::{Files, locked, wait_until_closed},
    health::Health,
    panics::joined,
    pinned::Exports,
    record::{MARKS, Marks, Version},
    tables, torn_writes,
    view::View,
};
use crate::{Revision, StoreError, Unhealthy};
use coracle_cli::causes;
use fjall::PersistMode;
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::{
    fs::{DirBuilder, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

/// Whether there is no store in the directory.
pub(super) fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

/// Mode of the directory of the store.
const PRIVATE: u32 = 0o700;

/// A store that is made aside and moved into place when it is whole: the engine cannot open what it was killed in the middle
/// of making.
pub(super) struct Unfinished {
    path: PathBuf,
    aside: PathBuf,
    pub files: Files,
}

impl Unfinished {
    /// Begins a store that will be at the path. What an earlier attempt has left is removed.
    pub fn begin(path: &Path) -> Result<Self, StoreError> {
        let mut aside = path.as_os_str().to_owned();
        aside.push(".new");
        let aside = PathBuf::from(aside);
        let failed = |error: io::Error| EmbeddedError::Make { path: path.to_owned(), error };
        match std::fs::remove_dir_all(&aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error).into()),
            _ => DirBuilder::new().recursive(true).mode(PRIVATE).create(&aside).map_err(failed)?,
        }
        let files = Files::open(&aside).map_err(|e| e.refusal(path))?;
        Ok(Self { path: path.to_owned(), aside, files })
    }

    /// Writes the marks last and moves the store into place.
    pub fn finish(self, marks: Marks) -> Result<(), StoreError> {
        let Self { path, aside, files } = self;
        let failed = |error: io::Error| EmbeddedError::Make { path: path.clone(), error };
        let mut batch = files.db.batch();
        batch.insert(&files.index, MARKS, Marks { no_orphans: true, ..marks }.encode());
        batch.durability(Some(PersistMode::SyncAll)).commit()?;
        drop(files);
        std::fs::rename(&aside, &path).map_err(failed)?;
        let parent = path.parent().unwrap_or(&path);
        std::fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        Ok(())
    }

    /// Removes it.
    pub fn remove(self) -> Result<(), StoreError> {
        drop(self.files);
        let failed = |error: io::Error| EmbeddedError::Make { path: self.path.clone(), error };
        Ok(std::fs::remove_dir_all(&self.aside).map_err(failed)?)
    }
}

/// The store's files. All clones share them, also when they are closed and opened again.
#[derive(Clone)]
pub(super) struct Disk {
    pub path: Arc<Path>,
    /// There was no durable revision: the store is new, or was created by an earlier version.
    pub first: bool,
    pub health: Arc<Health>,
    pub durable: Arc<DurableRevision>,
    pub exports: Arc<Exports>,
    files: Arc<RwLock<Option<Files>>>,
}

impl Disk {
    /// Opens or makes the store, after all of it has been checked. Returns the revisions of values to be removed, too:
    /// see [`check::verify`].
    pub fn open(path: &Path) -> Result<(Self, Vec<Revision>), StoreError> {
        if is_empty(path) {
            Unfinished::begin(path)?.finish(Marks::default())?;
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
        let (health, exports, durable) = (Arc::default(), Arc::default(), Arc::new(durable));
        let disk = Self { path, first, health, durable, exports, files };
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
        // They would keep the engine open.
        self.exports.end();
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
        Ok(Batch::new(self.files()?))
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
        Ok(View::new(self.files()?))
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
