//! Volumes of the built-in provisioner: directories on this node's own disk, made for their first pod and removed with
//! their volume. Only what is directly inside one of the node's directories for them is ever made or removed here.

use coracle_proto::local_path::is_of;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{FileError, io, teardown};
use coracle_host_dir::{HostDir, private};

/// Only the node itself looks around among volumes.
const ROOT_MODE: u32 = 0o700;
/// World-writable: pods run as any user, and the claim decides who uses the volume.
const VOLUME_MODE: u32 = 0o777;

/// Whether a path is a directory that this node may have been asked to make.
pub fn is_own(roots: &[PathBuf], path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some() && roots.iter().any(|root| path.parent() == Some(root))
}

/// Makes a volume's directory. One that is there stays as it is.
pub fn ensure(path: &Path) -> Result<(), FileError> {
    let (root, name) = path
        .parent()
        .zip(path.file_name())
        .ok_or_else(|| io("mkdir", path)(ErrorKind::InvalidInput.into()))?;
    let real = private::ensure(root, ROOT_MODE).or_else(|error| match error {
        private::PrivateError::Shared { path } => {
            tracing::warn!(path = %path.display(), "volumes are in a directory that local users can enter");
            Ok(path)
        }
        error => Err(io("open", root)(std::io::Error::other(error))),
    })?;
    let root = HostDir::open(&real).map_err(io("open", &real))?;
    root.make_dir(name, VOLUME_MODE).map(drop).map_err(io("mkdir", path))
}

/// Removes what this node has of a volume; what is not there is no error. After a failure, or an end in the middle, it can
/// be done again. Links are removed, not followed, and what pods mounted inside is unmounted first.
pub fn remove(roots: &[PathBuf], volume: &str) -> Result<(), FileError> {
    for root in roots {
        // The mount table knows real paths only.
        #[allow(clippy::disallowed_methods, reason = "a directory that the administrator named")]
        let root = match std::fs::canonicalize(root) {
            Ok(root) => root,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(io("open", root)(error)),
        };
        let dir = HostDir::open(&root).map_err(io("open", &root))?;
        for name in dir.names().map_err(io("list", &root))? {
            let name = name.map_err(io("list", &root))?;
            if name.to_str().is_some_and(|name| is_of(name, volume)) {
                let path = root.join(name);
                teardown::remove_tree(&path)?;
                tracing::info!(volume, path = %path.display(), "volume removed");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_is_for_anybody_and_found_by_nobody() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("storage");
        let path = root.join("pvc-1_default_data");
        assert!(is_own(std::slice::from_ref(&root), &path));
        ensure(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&root), mode(&path)), (ROOT_MODE, VOLUME_MODE));
        fs::set_permissions(&path, Permissions::from_mode(0o750)).unwrap();
        ensure(&path).unwrap();
        assert_eq!(mode(&path), 0o750, "as its pods made it");
    }

    #[test]
    fn paths_that_are_not_the_nodes_own() {
        let roots = [PathBuf::from("/s")];
        for path in ["/s", "/s/a/b", "/s/..", "/other/a", "/s/a/..", "/"] {
            assert!(!is_own(&roots, Path::new(path)), "{path}");
        }
    }

    #[test]
    fn only_the_volume_goes_and_nothing_behind_links() {
        let temp = tempfile::tempdir().unwrap();
        let (root, outside) = (temp.path().join("storage"), temp.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        for name in ["pvc-1_a_b/deep/deeper", "pvc-10_a_b", "other"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        symlink(&outside, root.join("pvc-1_a_b/deep/link")).unwrap();
        symlink(&outside, root.join("pvc-2_a_b")).unwrap();
        symlink(temp.path().join("nowhere"), root.join("pvc-3_a_b")).unwrap();
        let link = temp.path().join("storage-link");
        symlink(&root, &link).unwrap();
        let roots = [temp.path().join("not-there"), link];
        for volume in ["pvc-1", "pvc-2", "pvc-3", "pvc-1", "", "..", "."] {
            remove(&roots, volume).unwrap();
        }
        let mut left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["other", "pvc-10_a_b"]);
        assert!(outside.join("kept").exists());
    }
}
