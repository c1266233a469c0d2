//! Paths of the host: checked, or made, as their type says.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks a host path against its type; creates what `…OrCreate` may create.
pub fn check(path: &str, kind: &str) -> Result<(), String> {
    let at = Path::new(path);
    let failed = |what: &str| Err(format!("hostPath type check failed: {path} is not {what}"));
    let meta = fs::metadata(at);
    match kind {
        "" => Ok(()),
        "DirectoryOrCreate" => {
            if meta.is_err() {
                let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(at);
                return made.map_err(|error| format!("mkdir {path}: {error}"));
            }
            if meta.is_ok_and(|meta| meta.is_dir()) { Ok(()) } else { failed("a directory") }
        }
        "FileOrCreate" => {
            if meta.is_err() {
                let made = fs::OpenOptions::new().create(true).append(true).mode(0o644).open(at);
                return made.map(|_| ()).map_err(|error| format!("open {path}: {error}"));
            }
            if meta.is_ok_and(|meta| meta.is_file()) { Ok(()) } else { failed("a file") }
        }
        "Directory" if meta.as_ref().is_ok_and(|meta| meta.is_dir()) => Ok(()),
        "Directory" => failed("a directory"),
        "File" if meta.as_ref().is_ok_and(|meta| meta.is_file()) => Ok(()),
        "File" => failed("a file"),
        "Socket" if meta.as_ref().is_ok_and(|meta| meta.file_type().is_socket()) => Ok(()),
        "Socket" => failed("a socket file"),
        "CharDevice" if meta.as_ref().is_ok_and(|meta| meta.file_type().is_char_device()) => Ok(()),
        "CharDevice" => failed("a character device"),
        "BlockDevice" if meta.as_ref().is_ok_and(|meta| meta.file_type().is_block_device()) => Ok(()),
        "BlockDevice" => failed("a block device"),
        other => Err(format!("{other} is an invalid volume type")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
            check(&path("file"), "Directory").unwrap_err(),
            format!("hostPath type check failed: {} is not a directory", path("file"))
        );
    }
}
