//! Where mounts go. An image can have links there, also to what is not there: runc makes it, libcontainer fails.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Mount;

/// Links that are followed on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Changes the destinations to what they lead to in the root file system at `root`.
pub fn resolve(mounts: &mut [Mount], root: &Path) {
    let mut earlier: Vec<PathBuf> = Vec::new();
    for mount in mounts {
        let destination = match mount.typ().as_deref() {
            // Paths in them are hidden by name: libcontainer refuses a link in their place.
            Some("proc" | "sysfs") => mount.destination().clone(),
            _ => follow(mount.destination(), root, &earlier),
        };
        earlier.push(destination.clone());
        mount.set_destination(destination);
    }
}

/// Nothing is looked up below a mount: its content is not that of the image. libcontainer opens the result without leaving the
/// root file system.
fn follow(path: &Path, root: &Path, mounts: &[PathBuf]) -> PathBuf {
    let (mut clean, mut links) = (PathBuf::from("/"), 0);
    let mut rest = parts(path);
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            clean.pop();
            continue;
        }
        clean.push(part);
        let below = clean.strip_prefix("/").unwrap_or(&clean);
        let covered = mounts.iter().any(|mount| mount != Path::new("/") && clean.starts_with(mount));
        let Ok(target) = fs::read_link(root.join(below)) else { continue };
        if covered || links == MAX_LINKS {
            continue;
        }
        links += 1;
        clean.pop();
        if target.is_absolute() {
            clean = "/".into();
        }
        let mut further = parts(&target);
        further.append(&mut rest);
        rest = further;
    }
    clean
}

/// Names and `..`.
fn parts(path: &Path) -> VecDeque<OsString> {
    let named = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    named.map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_the_image_are_followed_within_it_but_not_below_mounts() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["etc", "var", "data"] {
            fs::create_dir(dir.path().join(path)).unwrap();
        }
        for (link, target) in [
            ("etc/localtime", "/usr/share/zoneinfo/UTC"),
            ("etc/up", "../../../run/up"),
            ("etc/loop", "loop"),
            ("var/run", "/run"),
            ("data/link", "/elsewhere"),
        ] {
            symlink(target, dir.path().join(link)).unwrap();
        }
        let mounts = [PathBuf::from("/data")];
        for (path, wanted) in [
            ("/dev/", "/dev"),
            ("/a/./b/../c", "/a/c"),
            ("/../../x", "/x"),
            ("/etc/localtime", "/usr/share/zoneinfo/UTC"),
            ("/etc/up/there", "/run/up/there"),
            ("/var/run/secrets", "/run/secrets"),
            ("/data/link/x", "/data/link/x"),
            ("/etc/loop", "/etc/loop"),
        ] {
            assert_eq!(follow(Path::new(path), dir.path(), &mounts), Path::new(wanted), "{path}");
        }
    }
}
