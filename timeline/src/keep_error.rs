//! Why spans cannot be kept or read.

use std::io;
use std::path::{Path, PathBuf};

/// Why spans cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The directory, or a segment in it.
    #[error("cannot {what} {path}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer of the kernel.
        #[source]
        source: io::Error,
    },
}

pub(crate) fn io_error(what: &'static str, path: &Path, source: io::Error) -> KeepError {
    KeepError::Io { what, path: path.to_owned(), source }
}

pub(crate) fn at<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> KeepError + use<'a> {
    move |source| io_error(what, path, source)
}
