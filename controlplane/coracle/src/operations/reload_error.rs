//! Why a server does not use a configuration of encryption at rest.

use super::distribution::DistributionError;
use coracle_store::StoreError;
use coracle_store::encryption::config::FormatError;
use std::path::PathBuf;

/// A larger file is none.
pub(super) const MAX_FILE: u64 = 1 << 20;

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is too large.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    /// It is none.
    #[error("{0} is no EncryptionConfiguration: {1}")]
    Format(PathBuf, FormatError),
    /// Its keys cannot be used, or one that stored values need is missing.
    #[error("{0} is not used")]
    Keys(PathBuf, #[source] Box<StoreError>),
    /// Other servers could not read what is written with it.
    #[error(
        "{path} is not used: other servers do not have {provider} for {resource} yet. Let it only decrypt first (behind the provider that encrypts now), or run coracle secrets-encrypt rotate"
    )]
    TooEarly {
        /// The file.
        path: PathBuf,
        /// What would be written.
        resource: String,
        /// The provider that would write it.
        provider: String,
    },
    /// Other servers do not get it.
    #[error("{0} is not used")]
    Distribution(PathBuf, #[source] Box<DistributionError>),
    /// The configuration of the cluster is used, but this server will not find it when it starts without the store.
    #[error("{0} does not have the configuration of the cluster")]
    Write(PathBuf, #[source] std::io::Error),
}
