//! Paths of the host: checked, or made, as their type says.
//!
//! Who may use such a volume may name any path, and links in it are followed. But what is not there is made where the path
//! says, not where a link says that another pod left in its place.

use nix::errno::Errno;
use nix::sys::stat::{SFlag, stat};
use std::io;
use std::path::Path;

use coracle_host_dir::HostDir;

/// Why a host path cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum HostPathError {
    /// Not a type of host paths.
    #[error("{kind} is an invalid volume type")]
    Kind {
        /// The type as given.
        kind: String,
    },
    /// A missing directory was not made.
    #[error("mkdir {path}: {source}")]
    MakeDir {
        /// The host path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// A missing file was not made.
    #[error("open {path}: {source}")]
    MakeFile {
        /// The host path.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// Nothing is there, or something else.
    #[error("hostPath type check failed: {path} is not {wanted}")]
    WrongType {
        /// The host path.
        path: String,
        /// What the type asks for.
        wanted: &'static str,
    },
}

/// Checks a host path against its type; creates what `…OrCreate` may create.
pub fn check(path: &str, kind: &str) -> Result<(), HostPathError> {
    let at = Path::new(path);
    let found = stat(at).map(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT);
    let (wanted, name) = match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" | "Directory" => (SFlag::S_IFDIR, "a directory"),
        "FileOrCreate" | "File" => (SFlag::S_IFREG, "a file"),
        "Socket" => (SFlag::S_IFSOCK, "a socket file"),
        "CharDevice" => (SFlag::S_IFCHR, "a character device"),
        "BlockDevice" => (SFlag::S_IFBLK, "a block device"),
        other => return Err(HostPathError::Kind { kind: other.to_owned() }),
    };
    let path = path.to_owned();
    match found {
        Err(Errno::ENOENT) if kind == "DirectoryOrCreate" => {
            make_dirs(at).map(drop).map_err(|source| HostPathError::MakeDir { path, source })
        }
        Err(Errno::ENOENT) if kind == "FileOrCreate" => {
            make_file(at).map_err(|source| HostPathError::MakeFile { path, source })
        }
        Ok(found) if found == wanted => Ok(()),
        _ => Err(HostPathError::WrongType { path, wanted: name }),
    }
}

/// Below the last directory that is there, nothing is a link.
fn make_dirs(path: &Path) -> io::Result<HostDir> {
    match HostDir::open_named(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    make_dirs(parent)?.make_dir(name, 0o755)
}

fn make_file(path: &Path) -> io::Result<()> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidInput)?;
    HostDir::open_named(parent)?.write_new(name, b"", (None, None), 0o644)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use std::fs;

    #[test]
    fn every_type() {
        let temp = tempfile::tempdir().unwrap();
        let path = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
        fs::create_dir(path("dir")).unwrap();
        fs::write(path("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("sock")).unwrap();
        for (target, kind, ok) in [
            (path("none"), "", true),
            (path("dir"), "Directory", true),
            (path("file"), "Directory", false),
            (path("none"), "Directory", false),
            (path("new/deep"), "DirectoryOrCreate", true),
            (path("file"), "DirectoryOrCreate", false),
            (path("made"), "FileOrCreate", true),
            (path("dir"), "FileOrCreate", false),
            (path("file"), "File", true),
            (path("dir"), "File", false),
            (path("sock"), "Socket", true),
            (path("file"), "Socket", false),
            ("/dev/null".to_owned(), "CharDevice", true),
            ("/dev/null".to_owned(), "BlockDevice", false),
            (path("dir"), "Nonsense", false),
        ] {
            assert_eq!(check(&target, kind).is_ok(), ok, "{target} {kind}");
        }
        assert!(temp.path().join("new/deep").is_dir() && temp.path().join("made").is_file());
        assert_eq!(
            check(&path("file"), "Directory").unwrap_err().to_string(),
            format!("hostPath type check failed: {} is not a directory", path("file"))
        );
    }

    #[test]
    fn nothing_is_made_behind_a_link_that_leads_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("../outside", temp.path().join("link")).unwrap();
        let link = temp.path().join("link").to_str().unwrap().to_owned();
        for (path, kind) in [
            (link.clone(), "FileOrCreate"),
            (link.clone(), "DirectoryOrCreate"),
            (format!("{link}/x"), "DirectoryOrCreate"),
        ] {
            assert!(check(&path, kind).is_err(), "{path} {kind}");
        }
        assert!(!temp.path().parent().unwrap().join("outside").exists());
        fs::create_dir(temp.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", temp.path().join("good")).unwrap();
        let through = temp.path().join("good/new/deep").to_str().unwrap().to_owned();
        check(&through, "DirectoryOrCreate").unwrap();
        assert!(temp.path().join("real/new/deep").is_dir());
    }
}
