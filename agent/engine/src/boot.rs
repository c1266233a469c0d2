//! Detects a reboot since the records were written.

use std::fs;
use std::io;
use std::path::Path;

use super::paths::Paths;

/// Changes with every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Whether the machine was rebooted since the recorded boot; false if none is recorded.
pub(crate) fn has_rebooted(paths: &Paths) -> bool {
    differs(&paths.boot(), Path::new(BOOT_ID))
}

/// Records the current boot, atomically.
pub(crate) fn record(paths: &Paths) -> io::Result<()> {
    write(&paths.boot(), Path::new(BOOT_ID))
}

fn differs(known: &Path, current: &Path) -> bool {
    matches!((fs::read(known), fs::read(current)), (Ok(known), Ok(current)) if known != current)
}

fn write(known: &Path, current: &Path) -> io::Result<()> {
    let boot = fs::read(current)?;
    if fs::read(known).is_ok_and(|known| known == boot) {
        return Ok(());
    }
    let fresh = known.with_extension("new");
    fs::write(&fresh, boot)?;
    fs::rename(fresh, known)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn boots_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (known, current) = (dir.path().join("known"), dir.path().join("current"));
        fs::write(&current, "b\n").unwrap();
        assert!(!differs(&known, &current), "an engine that wrote none down ran in this boot, perhaps");
        fs::write(&known, "a\n").unwrap();
        assert!(differs(&known, &current));
        write(&known, &current).unwrap();
        assert!(!differs(&known, &current));
    }
}
