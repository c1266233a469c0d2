//! Files of the cluster's identity: they are in every backup.

use crate::format::File;
pub use coracle_pki::cluster_keys::ENCRYPTION;
use coracle_pki::cluster_keys::{SEALING_KEY, SHARED_FILES};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// What all servers of a cluster share, in the directory of keys, and the key that seals it in the store.
pub fn shared() -> impl Iterator<Item = &'static str> {
    SHARED_FILES.into_iter().filter(|name| *name != ENCRYPTION).chain([SEALING_KEY])
}

/// Without these there is no cluster.
pub(crate) const REQUIRED: [&str; 5] =
    ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"];
const MAX_FILE: u64 = 1 << 20;

/// Why files cannot be in a backup.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// It cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// It is no key and no certificate.
    #[error("{0} is larger than a mebibyte")]
    TooLarge(PathBuf),
    /// The backup could not be restored.
    #[error("the backup has no {0}")]
    Missing(&'static str),
}

fn read(path: &Path) -> Result<Vec<u8>, FilesError> {
    let failed = |error| FilesError::Read(path.into(), error);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE { Err(FilesError::TooLarge(path.into())) } else { Ok(bytes) }
}

/// Reads the files of a directory of keys, and the configuration of encryption at rest if there is one.
pub fn collect(pki: &Path, encryption: Option<&Path>) -> Result<Vec<File>, FilesError> {
    let mut files = Vec::new();
    for name in shared() {
        match read(&pki.join(name)) {
            Ok(bytes) => files.push(File { name: name.to_owned(), bytes }),
            Err(FilesError::Read(_, error))
                if error.kind() == ErrorKind::NotFound && !REQUIRED.contains(&name) => {}
            Err(error) => return Err(error),
        }
    }
    // A server that joined has the configuration beside its keys.
    let beside = pki.join(ENCRYPTION);
    if let Some(path) = encryption.or(beside.exists().then_some(&*beside)) {
        files.push(File { name: ENCRYPTION.to_owned(), bytes: read(path)? });
    }
    Ok(files)
}

/// Fails if a file is not there without which no server can continue the cluster.
pub fn check(files: &[File]) -> Result<(), FilesError> {
    let missing = REQUIRED.into_iter().find(|name| !files.iter().any(|file| file.name == *name));
    missing.map_or(Ok(()), |name| Err(FilesError::Missing(name)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_a_cluster_needs_is_collected() {
        let dir = tempfile::tempdir().unwrap();
        for name in REQUIRED {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::fs::write(dir.path().join("apiserver.key"), "of this server only").unwrap();
        let files = collect(dir.path(), None).unwrap();
        assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), REQUIRED);
        check(&files).unwrap();
        assert!(matches!(check(&files[1..]), Err(FilesError::Missing("ca.crt"))));
        let config = dir.path().join("config");
        std::fs::write(&config, "kind: EncryptionConfiguration").unwrap();
        assert_eq!(collect(dir.path(), Some(&config)).unwrap()[5].name, ENCRYPTION);
        std::fs::remove_file(dir.path().join("sa.key")).unwrap();
        assert!(matches!(collect(dir.path(), None), Err(FilesError::Read(..))));
        std::fs::write(dir.path().join("sa.key"), vec![0; 1 << 20 | 1]).unwrap();
        assert!(matches!(collect(dir.path(), None), Err(FilesError::TooLarge(_))));
    }
}
