//! What is wrong with a file of the store, and what a person can do about it.

use crate::StoreError;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why the files are not what the store wrote.
#[derive(Debug, thiserror::Error)]
pub(super) enum Damage {
    /// Bytes are not what was written.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Bytes { file: PathBuf, offset: u64, what: String },
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
    /// The engine does not open the files.
    #[error("{}: {source}", directory.display())]
    Engine { directory: PathBuf, source: Box<fjall::Error> },
    /// The engine panicked on the files.
    #[error("{}: the storage engine panicked: {message}", directory.display())]
    Panic { directory: PathBuf, message: String },
}

impl Damage {
    pub fn bytes(file: &Path, offset: usize, what: impl Into<String>) -> Self {
        Self::Bytes { file: file.to_owned(), offset: offset as u64, what: what.into() }
    }

    pub fn io(file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { file, source }
    }

    /// Whether trying again may help: the disk refused, but nothing says that bytes are wrong.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Engine { source, .. } => super::health::io_error(source.as_ref()).is_some(),
            Self::Bytes { .. } | Self::Panic { .. } => false,
        }
    }

    /// What the server says when it does not start because of it.
    pub fn refusal(&self, store: &Path) -> StoreError {
        let advice = match self {
            Self::Io { .. } => String::new(),
            Self::Engine { source, .. } if matches!(**source, fjall::Error::Locked) => {
                "; another process has the store open".to_owned()
            }
            _ => format!(
                ". The store is not opened. Stop the server and restore {} from a copy that was made while the server was stopped",
                store.display()
            ),
        };
        StoreError::Engine(format!("open {}: {self}{advice}", store.display()))
    }
}
