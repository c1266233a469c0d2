//! Errors of the embedded store.

use super::damage::Damage;
use crate::Unhealthy;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why the embedded store is not opened, or does not do what it is asked for.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The directory cannot be made.
    #[error("make {}: {error}", path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// The directory cannot be removed.
    #[error("remove {}: {error}", path.display())]
    Remove {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// The directory cannot be closed to others.
    #[error("{}: {error}", path.display())]
    Permissions {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        error: io::Error,
    },
    /// The files are damaged, or cannot be read.
    #[error("open {}: {damage}{}", store.display(), damage.advice(store))]
    Open {
        /// The directory.
        store: PathBuf,
        /// What is wrong with which file.
        damage: Damage,
    },
    /// The thread that writes cannot be started.
    #[error("start the writer: {0}")]
    Start(io::Error),
    /// The key has more bytes than a key may have.
    #[error("a key of {0} bytes is too long")]
    Key(usize),
    /// A batch failed, and this write may be in what reached the disk of it.
    #[error("{0}; whether this write happened is not known")]
    Write(Unhealthy),
    /// The files had to be opened again while they were exported.
    #[error("the export was interrupted: the files of the store were closed after a failure of the disk")]
    ExportEnded,
    /// The store was closed under a watch.
    #[error("the store is closed")]
    Closed,
}

impl Damage {
    /// The error of a server that does not start because of it.
    pub(super) fn refusal(self, store: &Path) -> EmbeddedError {
        EmbeddedError::Open { store: store.to_owned(), damage: self }
    }
}
