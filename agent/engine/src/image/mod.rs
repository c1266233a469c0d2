//! Images: named, fetched, verified, unpacked once per layer, and kept until nobody needs them.
//!
//! Everything lives under one directory. What is visible there is whole: layers and records appear by rename, under
//! the store's lock, after their bytes are on disk. Work in progress lies in `ingest/`, where a later pull resumes it.

// Image names, normalised.
pub mod reference;
// Credentials and docker's config files.
pub mod auth;
// Where a registry is really reached: mirrors and plain HTTP.
pub mod hosts;
// Manifests, indexes and configs as registries and archives hold them.
pub mod manifest;
// What the store knows about an image.
pub mod record;
// The store on disk.
pub mod store;
// Layers in the store, shared above the same layers only.
mod chain;
// The protocol of registries.
mod registry;
// Fetching from registries.
mod pull;
// One blob, resumed and verified.
mod blob;
// From compressed bytes to a layer directory.
pub mod layer;
// Tars whose headers end.
mod bounded;
// Owner, mode, time and extended attributes.
mod attributes;
// Tar entries onto a directory that they cannot leave.
mod unpack;
// OCI and docker archives.
mod import;
// Disk thresholds.
pub mod gc;

pub use auth::{Credentials, DockerConfig};
pub use hosts::Hosts;
pub use pull::{Progress, ProgressEvent};
pub use record::{ImageConfig, ImageRecord};
pub use reference::Reference;
pub use store::ImageStore;

use std::{io, path::PathBuf};

/// Why an image could not be named, fetched, unpacked, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not an image name.
    #[error("couldn't parse image name {name:?}: {reason}")]
    BadReference {
        /// What was given.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The registry has no such image, or the store does not.
    #[error("{name}: not found")]
    NotFound {
        /// What was looked for.
        name: String,
    },
    /// The registry wants other credentials.
    #[error(
        "pull access denied for {name}, repository does not exist or may require authorization: {reason}"
    )]
    Unauthorized {
        /// The image.
        name: String,
        /// The registry's words.
        reason: String,
    },
    /// The registry cannot be reached or fails.
    #[error("failed to pull {name}: {reason}")]
    Registry {
        /// The image or blob.
        name: String,
        /// What went wrong.
        reason: String,
    },
    /// Bytes are not what their digest promises.
    #[error("{what}: unexpected digest {actual}, expected {expected}")]
    Digest {
        /// Layer, manifest, config.
        what: String,
        /// Computed.
        actual: String,
        /// Promised.
        expected: String,
    },
    /// Valid bytes that do not make an image for this machine.
    #[error("{what}: {reason}")]
    Unsupported {
        /// The image or archive.
        what: String,
        /// Why it cannot be used.
        reason: String,
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
    EvilLayer {
        /// Its diff id or digest.
        layer: String,
        /// What it tried.
        reason: String,
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
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
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

    /// Whether another attempt may succeed without anyone changing anything.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Error::Registry { .. })
    }
}

/// Outcome of an image operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;
