//! Writes the files of a server that joins, all or none: into a directory beside the final one, which is renamed.

use super::{ClusterKeys, ClusterKeysError, SealingKey};
use crate::PkiError;
use crate::files::{private_directory, sync_directory, write_private};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Makes `dir` the pki directory of a server of the cluster, with one more file of the caller. Fails, and changes nothing, if
/// the directory exists and is not empty.
pub fn install(
    dir: &Path,
    keys: &ClusterKeys,
    sealing: &SealingKey,
    (name, contents): (&str, &[u8]),
) -> Result<(), ClusterKeysError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| ClusterKeysError::Files(PkiError::File { path, source })
    };
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(at(dir)(error)),
        Ok(mut entries) => match entries.next() {
            None => {}
            Some(_) => return Err(ClusterKeysError::NotEmpty(dir.into())),
        },
    }
    let new = dir.with_extension("joining");
    // Of an attempt that was interrupted.
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(&new)(error)),
        _ => {}
    }
    let written = write(&new, keys, sealing, (name, contents)).and_then(|()| {
        // Replaces a directory only if it is empty.
        fs::rename(&new, dir).map_err(|error| match error.kind() {
            ErrorKind::DirectoryNotEmpty => ClusterKeysError::NotEmpty(dir.into()),
            _ => at(dir)(error),
        })
    });
    if written.is_err() {
        let _ = fs::remove_dir_all(&new);
        return written;
    }
    Ok(sync_directory(dir.parent().unwrap_or(Path::new(".")))?)
}

fn write(
    dir: &Path,
    keys: &ClusterKeys,
    sealing: &SealingKey,
    (name, contents): (&str, &[u8]),
) -> Result<(), ClusterKeysError> {
    private_directory(dir)?;
    for (name, bytes) in keys.files().chain([(name, contents)]) {
        write_private(&dir.join(name), bytes)?;
    }
    sealing.write(dir)?;
    Ok(sync_directory(dir)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::tests::cluster;
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn all_files_are_written_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let keys = cluster(&dir.path().join("first"));
        let sealing = SealingKey::generate().unwrap();
        let pki = dir.path().join("pki");
        // An attempt that was interrupted, and an empty directory.
        fs::create_dir_all(dir.path().join("pki.joining/old")).unwrap();
        fs::create_dir(&pki).unwrap();
        install(&pki, &keys, &sealing, ("joined.json", b"{}")).unwrap();
        assert_eq!(ClusterKeys::collect(&pki).unwrap(), keys);
        assert_eq!(SealingKey::read(&pki).unwrap(), Some(sealing.clone()));
        assert!(!dir.path().join("pki.joining").exists());
        for entry in fs::read_dir(&pki).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{entry:?}");
        }
        assert_eq!(fs::metadata(&pki).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_with_files_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let keys = cluster(&dir.path().join("first"));
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("apiserver.key"), "mine").unwrap();
        let sealing = SealingKey::generate().unwrap();
        let refused = install(&other, &keys, &sealing, ("joined.json", b"{}")).unwrap_err();
        assert!(matches!(refused, ClusterKeysError::NotEmpty(_)), "{refused}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
        assert!(!dir.path().join("other.joining").exists());
    }
}
