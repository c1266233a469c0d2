//! Memory that is not swapped out, for what must not reach a disk.

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::path::Path;

use super::{FileError, io, teardown};
use coracle_engine::host::kernel_at_least;
use coracle_host_dir::{HostDir, PRIVATE};

/// Mounts a tmpfs that is not swapped out. Kernels before 6.4 and user namespaces know none: there it is one like any other.
pub fn mount_tmpfs(dir: &Path, options: &str) -> Result<(), FileError> {
    match mount_with(dir, &unswapped(options)) {
        Err(error) if is_unknown_option(error) => mount_with(dir, options),
        other => other,
    }
    .map_err(|error| io("mount tmpfs on", dir)(error.into()))
}

/// Makes a directory whose files are not swapped out, where the machine swaps and the kernel can promise that. Elsewhere it is a
/// part of the tmpfs around it. What is in the directory already stays visible: a tmpfs over it would only
/// hide copies that may be swapped out. Repeatable.
pub fn ensure_unswapped(dir: &Path) -> Result<(), FileError> {
    // Older kernels have no such tmpfs: there it is no news, and would be logged for every volume after the first.
    if ensure_memory(dir, is_swapping())? == Memory::Swapped && kernel_at_least(6, 4) {
        tracing::error!(dir = %dir.display(), "files of the pod may be swapped out: they are older than the swap of this machine");
    }
    Ok(())
}

/// Where the files of a directory are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Where they always were: the machine does not swap, or the kernel knows nothing better.
    Around,
    /// In a tmpfs of its own.
    Own,
    /// In the tmpfs around it, although the machine swaps.
    Swapped,
}

fn ensure_memory(dir: &Path, swapping: bool) -> Result<Memory, FileError> {
    let opened = HostDir::create(dir).map_err(io("create", dir))?;
    if !swapping {
        return Ok(Memory::Around);
    }
    if teardown::is_mount(dir) {
        return Ok(Memory::Own);
    }
    if opened.names().map_err(io("list", dir))?.next().is_some() {
        return Ok(Memory::Swapped);
    }
    match mount_with(dir, &unswapped(&format!("mode={PRIVATE:o}"))) {
        Ok(()) => Ok(Memory::Own),
        Err(error) if is_unknown_option(error) => Ok(Memory::Around),
        Err(error) => Err(io("mount tmpfs on", dir)(error.into())),
    }
}

fn mount_with(dir: &Path, options: &str) -> nix::Result<()> {
    let options = Some(options).filter(|options| !options.is_empty());
    mount(Some("tmpfs"), dir, Some("tmpfs"), MsFlags::empty(), options)
}

fn is_unknown_option(error: Errno) -> bool {
    matches!(error, Errno::EINVAL | Errno::EPERM)
}

fn unswapped(options: &str) -> String {
    if options.is_empty() { "noswap".to_owned() } else { format!("{options},noswap") }
}

fn is_swapping() -> bool {
    #[allow(clippy::disallowed_methods, reason = "the kernel's own file")]
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    has_swap(&swaps)
}

/// The first line is a heading.
fn has_swap(swaps: &str) -> bool {
    swaps.lines().nth(1).is_some()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;

    #[test]
    fn only_machines_with_swap_need_another_tmpfs() {
        let heading = "Filename\tType\tSize\tUsed\tPriority\n";
        assert!(!has_swap("") && !has_swap(heading));
        assert!(has_swap(&format!("{heading}/swapfile file 524284 0 -2\n")));
        assert_eq!(["", "size=5"].map(unswapped), ["noswap", "size=5,noswap"]);
        assert!(is_unknown_option(Errno::EINVAL) && !is_unknown_option(Errno::ENOMEM));
    }

    #[test]
    fn files_from_before_swap_was_switched_on_are_not_covered() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().canonicalize().unwrap().join("uid");
        assert_eq!(ensure_memory(&dir, false).unwrap(), Memory::Around);
        let secret = dir.join("secret");
        std::fs::write(&secret, "x").unwrap();
        assert_eq!(ensure_memory(&dir, true).unwrap(), Memory::Swapped);
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "x");
    }
}
