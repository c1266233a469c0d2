//! Reasons to reject a layer.

use std::{ffi::OsString, path::PathBuf};

/// Maximum size of the extended headers and long names of one entry.
pub(super) const HEADERS: u64 = 1 << 20;
/// Directories inside each other: each is held open while missing ones are made.
pub(super) const MAX_DEPTH: usize = 200;

/// Reasons of [`Error::RejectedLayer`](super::Error::RejectedLayer). Readers carry it inside an `io::Error`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayerViolation {
    /// A decompression bomb.
    #[error("unpacks to more than its compressed size warrants")]
    TooBig,
    /// Extended headers that would fill the memory.
    #[error("headers of an entry are longer than {HEADERS} bytes")]
    LongHeaders,
    /// More files than any layer has.
    #[error("more than {most} entries")]
    TooManyEntries {
        /// What a layer may have.
        most: u64,
    },
    /// A path that the kernel does not take.
    #[error("a path of {bytes} bytes")]
    LongPath {
        /// Its length.
        bytes: usize,
    },
    /// A path above the layer's root.
    #[error("path {path:?} leaves the root")]
    PathOutside {
        /// Of the entry.
        path: PathBuf,
    },
    /// More open directories than the engine can hold.
    #[error("more than {MAX_DEPTH} directories inside each other")]
    TooDeep,
    /// More directories than the engine can remember.
    #[error("too many directories with too long names")]
    TooManyDirectories,
    /// A hard link to a file above the layer's root.
    #[error("hard link {path:?} to {target:?} leaves the root")]
    LinkOutside {
        /// Of the entry.
        path: PathBuf,
        /// What it links to.
        target: PathBuf,
    },
    /// A hard link to the layer's root.
    #[error("hard link to the root")]
    LinkToRoot,
    /// A hard link to nothing.
    #[error("hard link to {target:?}, which is not in the layer")]
    LinkTarget {
        /// What it links to.
        target: PathBuf,
    },
    /// A link that links to nothing at all.
    #[error("a link without target")]
    EmptyLink,
    /// A whiteout of a directory itself or of its parent.
    #[error("whiteout of {name:?}")]
    Whiteout {
        /// What it hides.
        name: OsString,
    },
    /// Not a type of tar entry.
    #[error("{path:?} has the unknown entry type {kind:?}")]
    EntryType {
        /// Of the entry.
        path: PathBuf,
        /// Its type.
        kind: tar::EntryType,
    },
}
