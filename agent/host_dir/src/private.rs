//! The agent's own directories: created if missing, with no access for other local users.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::HostDir;

/// System directories, whose mode the agent must not change.
const SHARED: [&str; 25] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// Why a directory cannot hold data of pods.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// It is a system directory.
    #[error("{} is a directory of the whole machine: give the agent one of its own", path.display())]
    Shared {
        /// The directory.
        path: PathBuf,
    },
    /// Its owner can change everything in it.
    #[error("{} belongs to user {owner}, who could change data of pods: it must belong to user {wanted}", path.display())]
    Owner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it must be.
        wanted: u32,
    },
    /// An operation failed.
    #[error("{action} {}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// On which directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Finds what [`ensure`] would refuse, and changes nothing.
pub fn check(path: &Path) -> Result<(), PrivateError> {
    let failed = |action| move |source| PrivateError::Io { action, path: path.to_owned(), source };
    match fs::canonicalize(path) {
        Ok(real) => {
            let dir = HostDir::open(&real).map_err(failed("open"))?;
            check_owner(&dir, &real)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            let full = std::path::absolute(path).map_err(failed("find"))?;
            let above = full.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
            access(above, AccessFlags::W_OK | AccessFlags::X_OK)
                .map_err(|errno| failed("create")(errno.into()))
        }
        Err(error) => Err(failed("find")(error)),
    }
}

/// Creates a directory, or removes permissions beyond `mode` from an existing one; returns its canonical path.
pub fn ensure(path: &Path, mode: u32) -> Result<PathBuf, PrivateError> {
    let failed = |action| move |source| PrivateError::Io { action, path: path.to_owned(), source };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed("create the parent of"))?;
    }
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed("create")(error)),
        _ => {}
    }
    let real = fs::canonicalize(path).map_err(failed("find"))?;
    let dir = HostDir::open(&real).map_err(failed("open"))?;
    restrict(&dir, real, mode)
}

/// Like [`ensure`], for a directory whose parent a pod can write to: it must not be a link. Links in the path of its parent are
/// followed.
pub fn ensure_no_link(path: &Path, mode: u32) -> Result<PathBuf, PrivateError> {
    let failed = |action| move |source| PrivateError::Io { action, path: path.to_owned(), source };
    let path = std::path::absolute(path).map_err(failed("find"))?;
    let (parent, name) = super::split(&path).map_err(failed("find"))?;
    fs::create_dir_all(parent).map_err(failed("create the parent of"))?;
    let parent = fs::canonicalize(parent).map_err(failed("find the parent of"))?;
    let dir =
        HostDir::open(&parent).and_then(|parent| parent.make_dir(name, mode)).map_err(failed("open"))?;
    restrict(&dir, parent.join(name), mode)
}

/// Refuses an open directory that is not the agent's own, whose path is `real`.
fn check_owner(dir: &HostDir, real: &Path) -> Result<(), PrivateError> {
    if SHARED.iter().any(|shared| Path::new(shared) == real) {
        return Err(PrivateError::Shared { path: real.to_owned() });
    }
    let failed = |source| PrivateError::Io { action: "stat", path: real.to_owned(), source };
    let (owner, wanted) = (dir.stat().map_err(failed)?.st_uid, nix::unistd::geteuid().as_raw());
    if owner != wanted {
        return Err(PrivateError::Owner { path: real.to_owned(), owner, wanted });
    }
    Ok(())
}

/// Removes permissions beyond `mode` from an open directory, whose path is `real`; returns that path.
fn restrict(dir: &HostDir, real: PathBuf, mode: u32) -> Result<PathBuf, PrivateError> {
    check_owner(dir, &real)?;
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| PrivateError::Io { action, path, source }
    };
    let stat = dir.stat().map_err(failed("stat", &real))?;
    let old = stat.st_mode & 0o7777;
    if old & !mode != 0 {
        dir.chmod(old & mode).map_err(failed("chmod", &real))?;
        let (old, new) = (format!("{old:04o}"), format!("{:04o}", old & mode));
        tracing::info!(path = %real.display(), old, new, "directory closed to other users");
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn an_open_directory_is_closed_and_a_shared_one_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        ensure(&path, 0o700).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2777)).unwrap();
        symlink("a/b", temp.path().join("link")).unwrap();
        assert_eq!(ensure(&temp.path().join("link"), 0o750).unwrap(), fs::canonicalize(&path).unwrap());
        assert_eq!(mode(&path), 0o750);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
        ensure(&path, 0o750).unwrap();
        assert_eq!(mode(&path), 0o500, "stricter stays");
        let before = mode(Path::new("/var/log"));
        assert!(matches!(ensure(Path::new("/var/log"), 0o700), Err(PrivateError::Shared { .. })));
        assert_eq!(mode(Path::new("/var/log")), before);
    }

    #[test]
    fn what_would_be_refused_is_found_without_a_change() {
        let temp = tempfile::tempdir().unwrap();
        let open = temp.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        check(&open).unwrap();
        check(&temp.path().join("a/b/c")).unwrap();
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o7777, 0o777);
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
        assert!(matches!(check(Path::new("/var/lib")), Err(PrivateError::Shared { .. })));
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        symlink("none", temp.path().join("dangling")).unwrap();
        for refused in [file.clone(), file.join("below"), temp.path().join("dangling")] {
            assert!(matches!(check(&refused), Err(PrivateError::Io { .. })), "{}", refused.display());
        }
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(temp.path()).unwrap();
        fs::create_dir(real.join("log")).unwrap();
        symlink("log", real.join("var")).unwrap();
        let named = real.join("var/containers");
        for _ in 0..2 {
            assert_eq!(ensure_no_link(&named, 0o755).unwrap(), real.join("log/containers"));
        }
        fs::remove_dir(real.join("log/containers")).unwrap();
        fs::create_dir(real.join("other")).unwrap();
        fs::set_permissions(real.join("other"), fs::Permissions::from_mode(0o777)).unwrap();
        symlink("../other", real.join("log/containers")).unwrap();
        assert!(matches!(ensure_no_link(&named, 0o755), Err(PrivateError::Io { .. })));
        assert_eq!(fs::metadata(real.join("other")).unwrap().mode() & 0o7777, 0o777);
    }
}
