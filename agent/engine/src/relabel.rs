//! Sets the SELinux label of a pod on its volumes.
//!
//! The pod may change the volume concurrently, so every step starts from an open descriptor and follows no links.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstat};

const ATTRIBUTE: &str = "security.selinux";
/// Maximum depth: every level holds a descriptor.
const MAX_DEPTH: usize = 128;

/// Labels a file, or a directory with all that is in it.
pub fn relabel(path: &Path, label: &str) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    below(AT_FDCWD, &path, label, MAX_DEPTH)
}

fn below(parent: impl AsFd + Copy, name: &CStr, label: &str, levels: usize) -> io::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let found = openat(parent, name, flags, Mode::empty())?;
    set(&found, label)?;
    if SFlag::from_bits_truncate(fstat(&found)?.st_mode) & SFlag::S_IFMT != SFlag::S_IFDIR {
        return Ok(());
    }
    let levels =
        levels.checked_sub(1).ok_or_else(|| io::Error::other("directories are nested too deeply"))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dir = Dir::openat(&found, c".", flags, Mode::empty())?;
    let names: Vec<CString> = dir
        .iter()
        .map(|entry| entry.map(|entry| entry.file_name().to_owned()))
        .collect::<nix::Result<_>>()?;
    for name in names.iter().filter(|name| ![c".", c".."].contains(&name.as_c_str())) {
        match below(found.as_fd(), name, label, levels) {
            // The pod may delete entries meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(())
}

/// Through `/proc/self/fd`: sets the attribute on the opened file, or on the link itself.
fn set(file: &OwnedFd, label: &str) -> io::Result<()> {
    xattr::set_deref(format!("/proc/self/fd/{}", file.as_raw_fd()), ATTRIBUTE, label.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;

    #[test]
    fn labels_stay_inside_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("f"), "").unwrap();
        fs::write(volume.join("a/b/f"), "").unwrap();
        std::os::unix::fs::symlink(&outside, volume.join("a/link")).unwrap();
        let of = |path: &Path| xattr::get(path, ATTRIBUTE).unwrap();
        let before = of(&outside);
        match relabel(&volume, "u:r:t:s0") {
            // Only root sets it, and only on a file system that has such attributes.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP)) => return,
            other => other.unwrap(),
        }
        for path in ["", "a", "a/b", "a/b/f"] {
            assert_eq!(of(&volume.join(path)).as_deref(), Some(&b"u:r:t:s0"[..]), "{path}");
        }
        assert_eq!((of(&outside), of(&outside.join("f"))), (before, None));
        let deep = (0..MAX_DEPTH + 1).fold(volume.clone(), |dir, _| dir.join("d"));
        fs::create_dir_all(&deep).unwrap();
        assert!(relabel(&volume, "u:r:t:s0").is_err());
    }
}
