//! Images: pull, verification, unpacking, storage and garbage collection.
//!
//! Everything is under one directory. Visible layers and records are complete: they appear by rename, under the store's lock,
//! after they were synced. Work in progress is in `ingest/`, where a later pull resumes it.

// Image names, normalised.
pub mod reference;
// Credentials and docker's config files.
pub mod auth;
// Registry configuration: mirrors, credentials, TLS.
pub mod registry_config;
// Manifests, indexes and configs as registries and archives hold them.
pub mod manifest;
// Why an image cannot be used on this machine.
mod unsupported;
// Image records.
pub mod record;
// Files of the store.
mod files;
// Use of the disk.
mod disk;
// Leftovers of pulls and imports that died.
mod ingest;
// Records and names of images.
mod records;
// Which containers use an image.
mod holds;
// Deletions under way.
mod trash;
// The store on disk.
pub mod store;
// Layers in the store, by chain id.
mod chain;
// Registry client.
mod registry;
// Fetching from registries.
mod pull;
// One blob, resumed and verified.
mod blob;
// From compressed bytes to a layer directory.
pub mod layer;
// From staged layers to a visible image.
mod commit;
// Reasons to reject a layer.
mod violation;
// Limits the size of tar headers.
mod tar_limit;
// Owner, mode, time and extended attributes.
mod attributes;
// Tar entries onto a directory that they cannot leave.
mod unpack;
// OCI and docker archives.
mod import;
// Garbage collection.
pub mod gc;

pub use auth::{Credentials, DockerConfig};
pub use pull::{Progress, ProgressEvent};
pub use record::{ImageConfig, ImageRecord};
pub use reference::{Reference, ReferenceError};
pub use registry::{DeniedError, RegistryError};
pub use registry_config::{RegistryConfig, RegistryConfigError};
pub use store::ImageStore;
pub use unsupported::{ArchiveError, Unsupported};
pub use violation::LayerViolation;

use std::{io, path::PathBuf};

use coracle_cli::causes;

/// Why an image could not be named, fetched, unpacked, found or removed. A `reason` is part of the text, with its causes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an image name.
    #[error("couldn't parse image name {name:?}: {reason}")]
    BadReference {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: ReferenceError,
    },
    /// The registry has no such image, or the store does not.
    #[error("{name}: not found")]
    NotFound {
        /// What was looked for.
        name: String,
    },
    /// The registry has no such image, or no such repository, and says which.
    #[error("{name}: not found: {words}")]
    Unknown {
        /// What was looked for.
        name: String,
        /// Code and message of the registry.
        words: String,
    },
    /// The registry wants other credentials.
    #[error(
        "pull access denied for {name}, repository does not exist or may require authorization: {}",
        causes::chain(reason)
    )]
    Unauthorized {
        /// The image.
        name: String,
        /// The registry's error.
        reason: DeniedError,
    },
    /// The registry cannot be reached or fails.
    #[error("failed to pull {name}: {}", causes::chain(reason))]
    Registry {
        /// The image or blob.
        name: String,
        /// The cause.
        reason: RegistryError,
    },
    /// Digest mismatch.
    #[error("{what}: unexpected digest {actual}, expected {expected}")]
    Digest {
        /// Layer, manifest, config.
        what: String,
        /// Actual digest.
        actual: String,
        /// Expected digest.
        expected: String,
    },
    /// Valid bytes that do not make an image for this machine.
    #[error("{what}: {}", causes::chain(reason))]
    Unsupported {
        /// The image or archive.
        what: String,
        /// Why it cannot be used.
        reason: Unsupported,
    },
    /// Layers that the disk has no room for.
    #[error("No space left on device: {bytes} bytes of layers, {room} bytes left for images")]
    NoRoom {
        /// What the layers need.
        bytes: u64,
        /// What is free beyond the reserve of the machine.
        room: u64,
    },
    /// A layer that must not be unpacked.
    #[error("refusing layer {layer}: {reason}")]
    RejectedLayer {
        /// Its diff id or digest.
        layer: String,
        /// The violation.
        reason: LayerViolation,
    },
    /// The image has containers.
    #[error("image {id} is in use by {}", holders.join(", "))]
    InUse {
        /// The image.
        id: String,
        /// Containers that use it.
        holders: Vec<String>,
    },
    /// The file system failed.
    #[error("{action} {}", path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io<'a>(
        action: &'static str,
        path: &'a std::path::Path,
    ) -> impl FnOnce(io::Error) -> Error + 'a {
        move |source| Error::Io { action, path: path.into(), source }
    }

    pub(crate) fn unsupported(what: impl Into<String>, reason: impl Into<Unsupported>) -> Error {
        Error::Unsupported { what: what.into(), reason: reason.into() }
    }

    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Error::Registry { .. })
    }
}

/// Outcome of an image operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
