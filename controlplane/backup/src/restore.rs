//! A new store and keys from a backup. The whole backup is verified before anything is written, and nothing is written over.

use crate::age::Identity;
use crate::format::{FormatError, Part, Reader};
use crate::open::{OpenError, Verified, open, verify};
use coracle_cli::private_files;
use coracle_cli::supervise::Supervisor;
use coracle_store::load::{self, Loaded, Summary};
use coracle_store::{Datastore, KeyValue, Opening, Revision, StoreError};
use coracle_trace::Recorder;
use futures::{Stream, StreamExt, stream};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// What was restored, beside the keys: the data directory belongs to a cluster before a server has started on it.
pub const RESTORED: &str = "restored.json";
/// Parts that are read ahead of the store.
const AHEAD: usize = 2;

/// What is restored, and where to.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The backup.
    pub file: File,
    /// What decrypts it.
    pub identities: Vec<Identity>,
    /// The new data directory. It does not exist, or it has neither keys nor a store.
    pub data_dir: &'a Path,
    /// The store of the restored cluster. Members of etcd that servers run are started by callers of [`Staged`].
    pub datastore: &'a Datastore,
    /// Revisions that are skipped, so that none is used again for something else.
    pub bump: Revision,
}

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The backup.
    pub backup: Verified,
    /// What is in the store now.
    pub store: Summary,
}

/// Why nothing was restored. The target is as it was, unless the error says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] OpenError),
    /// There is something at the target.
    #[error("{0} is not empty: a backup is restored into a new data directory")]
    NotEmpty(PathBuf),
    /// A file cannot be written.
    #[error("{0}")]
    File(PathBuf, #[source] io::Error),
    /// The store does not take the keys.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store is there, but the keys of the cluster are not.
    #[error("the store is restored, but the keys of the cluster could not be moved to {0}: they are in {1}")]
    Keys(PathBuf, PathBuf, #[source] io::Error),
    /// The thread that reads has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

fn is_empty(dir: &Path) -> Result<bool, RestoreError> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(RestoreError::File(dir.into(), error)),
    }
}

/// Restores a backup into a store that runs, or the embedded one.
pub async fn restore(what: Restore<'_>) -> Result<Restored, RestoreError> {
    let Restore { file, identities, data_dir, datastore, bump } = what;
    let staged = Staged::new(file, identities, data_dir).await?;
    let store = staged.load(datastore, bump).await?;
    staged.finish(store)
}

/// A backup that was verified, with the keys of its cluster beside their place in the new data directory. Dropping it removes
/// them.
pub struct Staged<'a> {
    source: (File, Vec<Identity>),
    backup: Verified,
    keys: TempDir,
    // Dropped behind the keys, which are in it.
    target: Target<'a>,
}

/// The new data directory. One that did not exist is removed again if nothing is in it.
struct Target<'a> {
    data_dir: &'a Path,
    is_new: bool,
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        if self.is_new {
            // Only if it is empty.
            let _ = std::fs::remove_dir(self.data_dir);
        }
    }
}

impl<'a> Staged<'a> {
    /// Verifies the whole backup, then writes the keys of the cluster beside their place.
    pub async fn new(
        file: File,
        identities: Vec<Identity>,
        data_dir: &'a Path,
    ) -> Result<Self, RestoreError> {
        let (file, identities, backup) = tokio::task::spawn_blocking(move || {
            let backup = verify(&file, &identities);
            (file, identities, backup)
        })
        .await?;
        let backup = backup?;
        for dir in ["pki", "store", "etcd"].map(|name| data_dir.join(name)) {
            if !is_empty(&dir)? {
                return Err(RestoreError::NotEmpty(dir));
            }
        }
        let failed = |error| RestoreError::File(data_dir.into(), error);
        let target = Target { data_dir, is_new: !data_dir.exists() };
        std::fs::create_dir_all(data_dir).map_err(failed)?;
        let keys = tempfile::Builder::new().prefix("pki-restored-").tempdir_in(data_dir).map_err(failed)?;
        private_files::directory(keys.path()).map_err(failed)?;
        for file in &backup.files {
            let path = keys.path().join(&file.name);
            private_files::write(&path, &file.bytes).map_err(|error| RestoreError::File(path, error))?;
        }
        let path = keys.path().join(RESTORED);
        let written = serde_json::to_vec(&backup.header).map_err(io::Error::from);
        let written = written.and_then(|bytes| private_files::write(&path, &bytes));
        written.map_err(|error| RestoreError::File(path, error))?;
        Ok(Self { source: (file, identities), backup, keys, target })
    }

    /// The directory that the keys of the cluster are in until the end.
    pub fn keys(&self) -> &Path {
        self.keys.path()
    }

    /// Fills the store.
    pub async fn load(&self, datastore: &Datastore, bump: Revision) -> Result<Summary, RestoreError> {
        let (file, identities) = &self.source;
        let (reader, _) = open(file, identities)?;
        let (data_dir, supervisor) = (self.target.data_dir, &Supervisor::default());
        let opening = Opening { datastore, data_dir, supervisor, recorder: Recorder::OFF };
        let loaded = Loaded { revision: self.backup.header.revision, bump };
        Ok(load::into(&opening, keys(reader), loaded).await?)
    }

    /// Moves the keys to their place: the data directory is that of a server now.
    pub fn finish(self, store: Summary) -> Result<Restored, RestoreError> {
        let Self { backup, keys, target, .. } = self;
        let (from, to) = (keys.keep(), target.data_dir.join("pki"));
        // An empty directory may be there.
        std::fs::rename(&from, &to).map_err(|error| RestoreError::Keys(to, from, error))?;
        let synced = File::open(target.data_dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| RestoreError::File(target.data_dir.into(), error))?;
        Ok(Restored { backup, store })
    }
}

/// The keys of a backup, read by a thread.
fn keys(
    mut reader: Reader<Box<dyn Read + Send>>,
) -> impl Stream<Item = Result<KeyValue, FormatError>> + Send {
    let (sender, receiver) = mpsc::channel::<Result<Option<Vec<KeyValue>>, FormatError>>(AHEAD);
    tokio::task::spawn_blocking(move || {
        loop {
            let part = match reader.next_part() {
                Ok(Some(Part::Keys(keys))) => Ok(Some(keys)),
                Ok(Some(Part::Files(_))) => continue,
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            let is_last = !matches!(part, Ok(Some(_)));
            if sender.blocking_send(part).is_err() || is_last {
                return;
            }
        }
    });
    let parts = stream::unfold(Some(receiver), |receiver| async move {
        let mut receiver = receiver?;
        let (items, next): (Vec<_>, _) = match receiver.recv().await {
            Some(Ok(Some(keys))) => (keys.into_iter().map(Ok).collect(), Some(receiver)),
            Some(Ok(None)) => return None,
            Some(Err(error)) => (vec![Err(error)], None),
            // The reader has panicked, and did not come to the end.
            None => (vec![Err(FormatError::Read(io::ErrorKind::UnexpectedEof.into()))], None),
        };
        Some((stream::iter(items), next))
    });
    parts.flatten()
}

#[cfg(test)]
mod tests;
