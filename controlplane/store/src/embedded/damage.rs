//! What is wrong with a file of the store, and what a person can do about it.

use super::health;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why the files are not what the store wrote.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Bytes are not what was written.
    #[error("{} is damaged at byte {offset}: {what}", file.display())]
    Bytes {
        /// The damaged file.
        file: PathBuf,
        /// The first byte that is wrong.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The engine does not open the files.
    #[error("{}: {source}", directory.display())]
    Engine {
        /// Where the files are.
        directory: PathBuf,
        /// What the engine says.
        source: Box<fjall::Error>,
    },
    /// The engine panicked on the files.
    #[error("{}: the storage engine panicked: {message}", directory.display())]
    Panic {
        /// Where the files are.
        directory: PathBuf,
        /// The message of the panic.
        message: String,
    },
}

impl Damage {
    pub(super) fn bytes(file: &Path, offset: usize, what: impl Into<String>) -> Self {
        Self::Bytes { file: file.to_owned(), offset: offset as u64, what: what.into() }
    }

    pub(super) fn io(file: &Path) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { file, source }
    }

    /// Whether trying again may help: the disk refused, but nothing says that bytes are wrong.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Io { .. } => true,
            Self::Engine { source, .. } => health::io_error(source.as_ref()).is_some(),
            Self::Bytes { .. } | Self::Panic { .. } => false,
        }
    }

    /// What a person can do about it, as it follows the error.
    pub(super) fn advice(&self, store: &Path) -> String {
        match self {
            Self::Io { .. } => String::new(),
            Self::Engine { source, .. } if matches!(**source, fjall::Error::Locked) => {
                "; another process has the store open".to_owned()
            }
            _ => format!(
                ". The store is not opened. Stop the server and restore {} from a copy that was made while the server was stopped",
                store.display()
            ),
        }
    }
}
