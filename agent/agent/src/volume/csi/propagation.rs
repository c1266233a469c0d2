//! The directory of drivers as a mount that is shared: what a driver mounts in its pod has to appear on the node, and the other
//! way round.

use nix::mount::{MsFlags, mount};
use std::io;
use std::path::Path;

use super::names::ensure_dir;

/// Where kubelets have seccomp profiles.
const SECCOMP: &str = "seccomp";

/// Makes sure that mounts below `dir` are shared with pods. On most machines they are. In a mount namespace of its own, such as
/// that of a node of `coracle up`, nothing is: there `own` is mounted at `dir`, so that several nodes on a machine can use the
/// same path, the one that drivers expect.
pub fn ensure(dir: &Path, own: &Path) -> io::Result<()> {
    const NONE: Option<&str> = None;
    ensure_dir(dir)?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    if is_shared(&table, &dir.canonicalize()?) {
        return Ok(());
    }
    ensure_dir(own)?;
    // Profiles that an administrator has put there stay visible.
    let (profiles, below) = (dir.join(SECCOMP), own.join(SECCOMP));
    if profiles.is_dir() {
        ensure_dir(&below)?;
        mount(Some(&profiles), &below, NONE, MsFlags::MS_BIND, NONE)?;
    }
    mount(Some(own), dir, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    mount(NONE, dir, NONE, MsFlags::MS_PRIVATE | MsFlags::MS_REC, NONE)?;
    mount(NONE, dir, NONE, MsFlags::MS_SHARED | MsFlags::MS_REC, NONE)?;
    Ok(())
}

/// Whether the mount that a directory is on is shared: the one with the longest path, and of several on one path the last.
fn is_shared(table: &str, dir: &Path) -> bool {
    let mounts = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(4);
        let point = Path::new(fields.next()?);
        let shared =
            fields.skip(1).take_while(|field| *field != "-").any(|field| field.starts_with("shared:"));
        dir.starts_with(point).then(|| (point.components().count(), shared))
    });
    mounts.max_by_key(|(length, _)| *length).is_some_and(|(_, shared)| shared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_decides() {
        let table = "1 0 0:1 / / rw shared:1 - ext4 x rw\n2 1 0:2 / /var rw,relatime - ext4 x rw\n\
            3 2 0:3 / /var/lib/kubelet rw - ext4 x rw\n4 2 0:3 / /var/lib/kubelet rw master:1 shared:7 - ext4 x rw\n";
        for (dir, want) in [
            ("/etc", true),
            ("/var/lib", false),
            ("/var/lib/kubelet/pods", true),
            ("/var/lib/kubelet2", false),
        ] {
            assert_eq!(is_shared(table, Path::new(dir)), want, "{dir}");
        }
    }
}
