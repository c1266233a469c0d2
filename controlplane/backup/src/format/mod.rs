//! The format of a backup. All numbers are big-endian.
//!
//! ```text
//! magic (16 bytes)  version (u32)
//! length (u32)  header (JSON)  SHA-256 of the header
//! chunk…: tag (u8)  packed length (u32)  plain length (u32)  SHA-256 of the packed bytes  packed bytes (zstd)
//! SHA-256 of everything before it
//! ```
//!
//! Chunks of files come first, then chunks of keys, and one that has the counts. Records do not cross chunks, so that a reader
//! needs the memory of one chunk.

// Writes.
mod encode;
// Reads and verifies.
mod decode;
// What is inside a chunk.
mod record;
#[cfg(test)]
mod tests;

pub use decode::{Part, Reader};
pub use encode::Encoder;

use coracle_store::Revision;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The first bytes of every backup.
pub const MAGIC: [u8; 16] = *b"CORACLE BACKUP\r\n";
/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;

/// Chunks are closed when they have this many plain bytes.
const CHUNK: usize = 1 << 20;
/// A chunk with one large record is larger than [`CHUNK`], but not larger than this.
const MAX_CHUNK: usize = 16 << 20;
const MAX_HEADER: usize = 64 << 10;
const DIGEST: usize = 32;

/// What a backup is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The program that made it.
    pub made_by: String,
    /// When it was begun.
    pub time: Timestamp,
    /// The revision of the store.
    pub revision: Revision,
    /// `embedded` or `etcd`.
    pub datastore: String,
    /// The cluster.
    pub cluster: Cluster,
}

/// Which cluster a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    /// Hash of the public key of the cluster CA, `sha256:…`.
    pub ca_hash: String,
    /// UID of the namespace `kube-system`; empty if it is not known.
    #[serde(default)]
    pub uid: String,
}

/// What a backup has, said at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Number of keys.
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Names of the files.
    pub files: Vec<String>,
}

/// A file of the cluster's identity.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Its name, without directories.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl std::fmt::Debug for File {
    // The bytes are keys.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "File({})", self.name)
    }
}

/// Why bytes are not a backup, or a backup cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// It begins with something else.
    #[error("this is not a backup of Coracle")]
    NotABackup,
    /// A newer program made it.
    #[error("the backup has format {found}; this program reads formats up to {supported}")]
    Newer {
        /// Version of the backup.
        found: u32,
        /// Newest version that can be read.
        supported: u32,
    },
    /// It ends early.
    #[error("the backup is truncated: it ends after {0} bytes")]
    Truncated(u64),
    /// Bytes are not those that were written.
    #[error("the backup is damaged or was changed: {what} at byte {at}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where the part begins that is wrong.
        at: u64,
    },
    /// The header is not what it should be.
    #[error("the header of the backup cannot be read")]
    Header(#[source] serde_json::Error),
    /// A key that is too large for a chunk.
    #[error("{0}: too large for a backup")]
    TooLarge(String),
    /// A name that a file cannot have.
    #[error("{0:?} is no name of a file in a backup")]
    FileName(String),
    /// The bytes cannot be read.
    #[error("the backup cannot be read")]
    Read(#[source] std::io::Error),
    /// zstd failed.
    #[error("a part of the backup cannot be compressed")]
    Compress(#[source] std::io::Error),
}
