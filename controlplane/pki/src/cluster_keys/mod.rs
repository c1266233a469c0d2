//! The keys that all servers of a cluster share: the files, and their sealed copy in a shared store.
//!
//! ```text
//! files in <data-dir>/pki ─ collect ─► ClusterKeys ─ SealingKey::seal ─► envelope in the store
//! envelope ─ SealingKey::open ─► ClusterKeys ─ install ─► files in the pki directory of a server that joins
//! ```
//!
//! The sealing key is in `<data-dir>/pki` of every server, never in the store. A server that joins gets it wrapped by a key
//! that is derived from its token ([`crate::server_token`]).

// The envelope.
mod sealed;
// Files of a server that joins: all or none.
mod install;
// Rotation of the cluster CA.
mod rotation;

pub use install::install;
pub use rotation::{RotationError, Stage, TrustedCa};
pub use sealed::{SealedError, SealedInfo, SealingKey};
pub(crate) use sealed::{decrypt, derive, encrypt, random};

use crate::PkiError;
use crate::authority::Authority;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// Files of the cluster's identity, in `<data-dir>/pki` of every server. Those of etcd exist only with members that the servers
/// run, `encryption.yaml` only with encryption at rest whose keys are in the file, two more of the CA only while it is rotated, and
/// one after a rotation was cancelled.
pub const SHARED_FILES: [&str; 11] = [
    "ca.crt",
    "ca.key",
    CA_NEXT_KEY,
    CA_CROSS,
    CA_CANCELLED,
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
    "etcd-ca.crt",
    "etcd-ca.key",
    ENCRYPTION,
];
/// The key of the CA that is to replace the one that signs.
pub const CA_NEXT_KEY: &str = "ca-next.key";
/// The certificate of the newer CA, signed by the older one.
pub const CA_CROSS: &str = "ca-cross.crt";
/// How many CAs were prepared for the one that signs and not used. Without it, who has the keys of a CA that was cancelled could
/// not tell that those without it are newer.
pub const CA_CANCELLED: &str = "ca-cancelled";
/// A copy of the file of `--encryption-provider-config`.
pub const ENCRYPTION: &str = "encryption.yaml";
/// The file of the key that seals the others. Every server of the cluster has it; it is never in the store.
pub const SEALING_KEY: &str = "sealing.key";
/// The sealing key of a first server until the keys that it seals are in the store. A server with [`SEALING_KEY`] has a cluster,
/// one with this file is only about to found it.
pub const PENDING_SEALING_KEY: &str = "sealing.key.pending";
/// The files without which there is no cluster.
const REQUIRED: [&str; 5] = ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"];
/// More is neither a key nor a list of certificates.
const MAX_FILE: u64 = 64 << 10;
/// All files together; the envelope has to fit into one value of etcd.
const MAX_TOTAL: usize = 256 << 10;

/// Why keys of a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterKeysError {
    /// A file cannot be read or written.
    #[error(transparent)]
    Files(#[from] PkiError),
    /// A file is missing.
    #[error("the keys of the cluster have no {0}")]
    Missing(&'static str),
    /// A file that is not shared.
    #[error("the keys of the cluster have a file that servers do not share: {0:?}")]
    Unknown(String),
    /// A file is too large.
    #[error("{0} is larger than {MAX_FILE} bytes")]
    FileSize(String),
    /// All files are too large.
    #[error("the keys of the cluster have {0} bytes, more than {MAX_TOTAL}")]
    Size(usize),
    /// `ca.crt` is no certificate.
    #[error("ca.crt of the cluster is not a certificate")]
    NoAuthority,
    /// The key of the CA belongs to another certificate.
    #[error("ca.key is not the key of a certificate in ca.crt")]
    OtherKey,
    /// The directory has files already.
    #[error("{0} is not empty: it has the keys of a cluster, or a part of them")]
    NotEmpty(PathBuf),
}

/// The shared files and their contents.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKeys(BTreeMap<String, Vec<u8>>);

impl std::fmt::Debug for ClusterKeys {
    /// Names only.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

impl ClusterKeys {
    /// Reads the shared files in `dir`. While the CA is rotated, they are read again if they do not belong together.
    pub fn collect(dir: &Path) -> Result<Self, ClusterKeysError> {
        match Self::collect_once(dir) {
            Err(ClusterKeysError::OtherKey) => Self::collect_once(dir),
            collected => collected,
        }
    }

    fn collect_once(dir: &Path) -> Result<Self, ClusterKeysError> {
        let mut files = BTreeMap::new();
        for name in SHARED_FILES {
            if let Some(bytes) = read(&dir.join(name), MAX_FILE)? {
                files.insert(name.to_owned(), bytes);
            }
        }
        Self::new(files)
    }

    /// The files by name, if they are those of a cluster: the required ones, no others than shared ones, within the limits.
    pub fn new(files: BTreeMap<String, Vec<u8>>) -> Result<Self, ClusterKeysError> {
        for (name, bytes) in &files {
            if !SHARED_FILES.contains(&name.as_str()) {
                return Err(ClusterKeysError::Unknown(name.clone()));
            }
            if bytes.len() as u64 > MAX_FILE {
                return Err(ClusterKeysError::FileSize(name.clone()));
            }
        }
        if let Some(missing) = REQUIRED.into_iter().find(|name| !files.contains_key(*name)) {
            return Err(ClusterKeysError::Missing(missing));
        }
        let total = files.values().map(Vec::len).sum();
        if total > MAX_TOTAL {
            return Err(ClusterKeysError::Size(total));
        }
        let keys = Self(files);
        if Authority::hashes_of(&keys.text("ca.crt")).is_empty() {
            return Err(ClusterKeysError::NoAuthority);
        }
        keys.authority().map_err(|_| ClusterKeysError::OtherKey)?;
        Ok(keys)
    }

    /// The contents of a file.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// The same keys with other contents of `encryption.yaml`, or without it.
    pub fn with_encryption(mut self, contents: Option<Vec<u8>>) -> Result<Self, ClusterKeysError> {
        match contents {
            Some(contents) => self.0.insert(ENCRYPTION.to_owned(), contents),
            None => self.0.remove(ENCRYPTION),
        };
        Self::new(self.0)
    }

    /// The hash of the cluster CA that signs: the one of `ca.key`.
    pub fn ca_hash(&self) -> String {
        self.ca_hashes().into_iter().next().unwrap_or_default()
    }

    /// The hashes of all trusted cluster CAs, that of the one that signs first. There are several while the CA is rotated.
    pub fn ca_hashes(&self) -> Vec<String> {
        self.authority().map(|authority| Authority::hashes_of(&authority.certificate)).unwrap_or_default()
    }

    /// The cluster CA.
    fn authority(&self) -> Result<Authority, PkiError> {
        let cross = self.file(CA_CROSS).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Authority::from_pem("ca", &self.text("ca.crt"), &self.text("ca.key"), cross)
    }

    /// The text of a file; empty if it is not there.
    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(self.file(name).unwrap_or_default()).into_owned()
    }

    /// The names of files that differ.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        SHARED_FILES.into_iter().filter(|name| self.file(name) != other.file(name)).collect()
    }

    fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }
}

/// The contents of a file of at most `limit` bytes; `None` if it does not exist.
fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, ClusterKeysError> {
    let failed = |source| ClusterKeysError::Files(PkiError::File { path: path.into(), source });
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(ClusterKeysError::FileSize(path.display().to_string()));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Pki;
    use std::time::Duration;

    /// The keys of a new cluster.
    pub(super) fn cluster(dir: &Path) -> ClusterKeys {
        Pki::ensure(dir, &["localhost".to_owned()], Duration::from_secs(3600)).unwrap();
        ClusterKeys::collect(dir).unwrap()
    }

    #[test]
    fn shared_files_are_collected_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let keys = cluster(dir.path());
        assert_eq!(keys.files().map(|(name, _)| name).collect::<Vec<_>>(), {
            let mut required = REQUIRED.to_vec();
            required.sort_unstable();
            required
        });
        assert_eq!(keys.ca_hash(), Authority::ensure(dir.path(), "ca", "x").unwrap().hash());
        assert!(!format!("{keys:?}").contains("BEGIN"), "contents are not printed");
        let with = keys.clone().with_encryption(Some(b"kind: x".to_vec())).unwrap();
        assert_eq!(
            (with.file(ENCRYPTION), with.differences(&keys)),
            (Some(&b"kind: x"[..]), vec![ENCRYPTION])
        );
        assert_eq!(with.with_encryption(None).unwrap(), keys);
    }

    #[test]
    fn several_authorities_are_known_while_the_first_signs() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (old, new) = (cluster(one.path()), cluster(two.path()));
        let both = [new.file("ca.crt").unwrap(), old.file("ca.crt").unwrap()].concat();
        std::fs::write(two.path().join("ca.crt"), both).unwrap();
        let rotated = ClusterKeys::collect(two.path()).unwrap();
        assert_eq!(rotated.ca_hashes(), [new.ca_hash(), old.ca_hash()]);
        assert_eq!(rotated.ca_hash(), new.ca_hash());
    }

    #[test]
    fn what_is_no_cluster_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let ClusterKeys(files) = cluster(dir.path());
        let changed = |change: fn(&mut BTreeMap<String, Vec<u8>>)| {
            let mut files = files.clone();
            change(&mut files);
            ClusterKeys::new(files).unwrap_err()
        };
        let missing = changed(|files| drop(files.remove("sa.key")));
        assert!(matches!(missing, ClusterKeysError::Missing("sa.key")));
        let unknown = changed(|files| drop(files.insert("../../etc/passwd".into(), Vec::new())));
        assert!(matches!(unknown, ClusterKeysError::Unknown(_)));
        let large = changed(|files| drop(files.insert("ca.crt".into(), vec![b'a'; 65 << 10])));
        assert!(matches!(large, ClusterKeysError::FileSize(_)));
        let text = changed(|files| drop(files.insert("ca.crt".into(), b"nothing".to_vec())));
        assert!(matches!(text, ClusterKeysError::NoAuthority));
        let total = changed(|files| {
            for name in SHARED_FILES.into_iter().filter(|name| *name != "ca.crt") {
                files.insert(name.into(), vec![b'a'; 60 << 10]);
            }
        });
        assert!(matches!(total, ClusterKeysError::Size(_)));
        std::fs::write(dir.path().join("sa.key"), vec![b'a'; 65 << 10]).unwrap();
        assert!(matches!(ClusterKeys::collect(dir.path()), Err(ClusterKeysError::FileSize(_))));
    }
}
