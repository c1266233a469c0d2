//! Errors of this crate.

use std::path::PathBuf;

/// Why keys could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file could not be read or written.
    #[error("{path}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A key or certificate could not be made or parsed.
    #[error("certificate for {what}")]
    Certificate {
        /// For what.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
}
