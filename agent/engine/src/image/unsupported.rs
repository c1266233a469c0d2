//! Reasons why a valid image cannot be used on this machine.

use std::io;

use super::registry_config::RegistryConfigError;

/// Reasons of [`Error::Unsupported`](super::Error::Unsupported).
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// A manifest or index that is too long to be read.
    #[error("a manifest of {bytes} bytes")]
    LongManifest {
        /// Its length.
        bytes: usize,
    },
    /// Neither a manifest nor an index in JSON.
    #[error("invalid manifest")]
    Manifest(#[source] serde_json::Error),
    /// A manifest of docker before 1.10.
    #[error("manifest schema version 1 is not supported")]
    SchemaVersion,
    /// overlayfs takes no more layers.
    #[error("{layers} layers; there may be {most}")]
    TooManyLayers {
        /// Of the image.
        layers: usize,
        /// Of any image.
        most: usize,
    },
    /// JSON with neither a config nor manifests.
    #[error("neither an image manifest nor an index")]
    NoManifest,
    /// An index without an entry for this machine.
    #[error("no match for platform in manifest: linux/{architecture}")]
    NoPlatform {
        /// This machine's.
        architecture: String,
    },
    /// An entry of an index that is an index.
    #[error("an index inside an index")]
    NestedIndex,
    /// Not `sha256:` and 64 hexadecimal digits.
    #[error("unsupported digest algorithm or malformed digest")]
    Digest,
    /// Not an image config in JSON.
    #[error("invalid image config")]
    Config(#[source] serde_json::Error),
    /// An image config that is too long to be read.
    #[error("a config of {bytes} bytes")]
    LongConfig {
        /// Its length.
        bytes: u64,
    },
    /// Diff ids of the config without layers of the manifest, or the other way round.
    #[error("the config and the manifest disagree about the layers")]
    LayersDiffer,
    /// A document of another length than its descriptor says.
    #[error("a {document} of {bytes} bytes that is said to have {described}")]
    Size {
        /// `manifest` or `config`.
        document: &'static str,
        /// Its length.
        bytes: usize,
        /// As described.
        described: u64,
    },
    /// A blob longer than its descriptor says.
    #[error("longer than its {bytes} bytes")]
    LongBlob {
        /// As described.
        bytes: u64,
    },
    /// A registry that sends more than it was asked for.
    #[error("the registry's answer has more than {most} bytes")]
    LongAnswer {
        /// What is read.
        most: u64,
    },
    /// A layer that is no tar, or a damaged one.
    #[error("{0}")]
    Layer(io::Error),
    /// An archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The file with mirrors of registries.
    #[error(transparent)]
    RegistryConfig(#[from] RegistryConfigError),
}

/// Why an archive cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// More than any archive of its size should hold.
    #[error("it decompresses to more than {most} bytes")]
    DecompressesTooFar {
        /// What it may become.
        most: u64,
    },
    /// Not a tar. What the reader of tars says is left out: it quotes the bytes it found.
    #[error("neither an OCI nor a docker archive, or damaged")]
    Damaged,
    /// A tar without `index.json` and `manifest.json`.
    #[error("neither an OCI nor a docker archive")]
    UnknownLayout,
    /// Only images for other machines.
    #[error("no image for linux/{architecture}")]
    NoImage {
        /// This machine's.
        architecture: String,
    },
    /// `index.json` is something else.
    #[error("index.json is not an index")]
    NotAnIndex,
    /// More entries of indexes than are followed.
    #[error("too many images or indexes inside each other")]
    TooManyIndexes,
    /// `manifest.json` of `docker save`.
    #[error("invalid manifest.json")]
    DockerManifest(#[source] serde_json::Error),
    /// More entries of `manifest.json` than are imported.
    #[error("{images} images; there may be {most}")]
    TooManyImages {
        /// In the archive.
        images: usize,
        /// In any archive.
        most: usize,
    },
    /// A member that another one refers to.
    #[error("{name} is missing from the archive")]
    Missing {
        /// In the archive.
        name: String,
    },
    /// A member that is too long to be read at once.
    #[error("{name} has {bytes} bytes")]
    LongMember {
        /// In the archive.
        name: String,
        /// Its length.
        bytes: u64,
    },
}
