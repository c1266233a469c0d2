//! Errors of this crate.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why an operation was rejected before any system call. Returned inside an `io::Error`.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// A path, the directory itself or its parent in the place of a name.
    #[error("{name:?} is not the name of a directory entry")]
    Name {
        /// The name as given.
        name: OsString,
    },
    /// A relative path that leads out of the directory.
    #[error("{} leaves its directory", path.display())]
    Outside {
        /// The path as given.
        path: PathBuf,
    },
    /// A path that depends on the working directory.
    #[error("{} is not an absolute path", path.display())]
    Relative {
        /// The path as given.
        path: PathBuf,
    },
    /// The entry kept being replaced by another process.
    #[error("{name:?} is replaced again and again")]
    Replaced {
        /// Name of the entry.
        name: OsString,
    },
    /// Links have no mode of their own.
    #[error("a symbolic link has no mode")]
    LinkMode,
    /// A device, FIFO, socket, link or directory.
    #[error("not a regular file")]
    NotRegular,
    /// A file could not be opened.
    #[error("{name:?}: {error}")]
    File {
        /// Name of the entry.
        name: OsString,
        /// The cause.
        error: io::Error,
    },
}

impl From<EntryError> for io::Error {
    fn from(error: EntryError) -> Self {
        let kind = match &error {
            EntryError::Replaced { .. } => io::ErrorKind::ResourceBusy,
            EntryError::File { error, .. } => error.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
