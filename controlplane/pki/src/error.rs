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
    /// A file that a server makes at its first start is not there.
    #[error("{0} is missing: a server makes it when it starts for the first time")]
    Missing(PathBuf),
    /// A key belongs to no certificate of its file.
    #[error("{0}.key is not the key of a certificate in {0}.crt")]
    OtherKey(String),
    /// A certificate cannot be looked at.
    #[error(transparent)]
    Inspect(#[from] crate::inspect::InspectError),
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
