//! Eviction signals: what is free on the node, and what eviction thresholds reserve of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::eviction::Threshold;
use crate::pod::all_pods;

/// Supported eviction signals.
pub(super) const SIGNALS: [&str; 8] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Available and total amount by signal.
pub type Signals = BTreeMap<&'static str, (i64, i64)>;

/// Directories on the file systems that are measured, which may all be the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disks {
    /// Volumes and logs of pods.
    pub node: PathBuf,
    /// Images.
    pub images: PathBuf,
    /// Writable layers of containers.
    pub containers: PathBuf,
}

/// Whether a disk, rather than memory or pids, is short.
pub fn is_of_disk(signal: &str) -> bool {
    ["nodefs.", "imagefs.", "containerfs."].iter().any(|disk| signal.starts_with(disk))
}

/// Reads the machine.
pub fn read_signals(disks: &Disks) -> Signals {
    let mut signals = Signals::new();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib * 1024)
    };
    if let (Some(free), Some(total)) = (field("MemAvailable:"), field("MemTotal:")) {
        signals.insert("memory.available", (free, total));
    }
    for (place, available, inodes) in [
        (&disks.node, "nodefs.available", "nodefs.inodesFree"),
        (&disks.images, "imagefs.available", "imagefs.inodesFree"),
        (&disks.containers, "containerfs.available", "containerfs.inodesFree"),
    ] {
        let (bytes, files) = read_disk(place);
        signals.extend(bytes.map(|amounts| (available, amounts)));
        signals.extend(files.map(|amounts| (inodes, amounts)));
    }
    // `0.20 0.18 0.12 1/80 11206`: the fourth says how many threads there are.
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let threads = load.split([' ', '/']).nth(4).and_then(|n| n.parse::<i64>().ok());
    if let (Some(threads), Some(most)) = (threads, all_pods::pids_total()) {
        signals.insert("pid.available", (most - threads, most));
    }
    signals
}

type Amounts = Option<(i64, i64)>;

/// Free and all bytes and inodes of a file system; nothing of one that cannot be read, or has no fixed number of inodes.
fn read_disk(place: &Path) -> (Amounts, Amounts) {
    let Ok(disk) = nix::sys::statvfs::statvfs(place) else { return (None, None) };
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(disk.fragment_size())).unwrap_or(i64::MAX);
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let files = (disk.files() > 0).then(|| (count(disk.files_available()), count(disk.files())));
    (Some((bytes(disk.blocks_available()), bytes(disk.blocks()))), files)
}

/// Amount of a resource reserved by hard eviction thresholds. It is not allocatable: otherwise a full node would evict pods
/// within their requests.
pub fn reserved_by_thresholds(
    thresholds: &BTreeMap<String, Threshold>,
    resource: &str,
    capacity: i64,
) -> i64 {
    let signal = match resource {
        "memory" => "memory.available",
        "ephemeral-storage" => "nodefs.available",
        _ => return 0,
    };
    let threshold = thresholds.get(signal).filter(|threshold| !threshold.is_off());
    threshold.map_or(0, |threshold| threshold.of(capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_thresholds_are_reserved() {
        let thresholds = BTreeMap::from([
            ("memory.available".to_owned(), Threshold::Amount(100 << 20)),
            ("nodefs.available".to_owned(), Threshold::Percent(10.0)),
        ]);
        for (resource, want) in [("memory", 100 << 20), ("ephemeral-storage", 50), ("cpu", 0)] {
            assert_eq!(reserved_by_thresholds(&thresholds, resource, 500), want, "{resource}");
        }
        assert_eq!(reserved_by_thresholds(&BTreeMap::new(), "memory", 500), 0);
        let off = BTreeMap::from([("nodefs.available".to_owned(), Threshold::Percent(100.0))]);
        assert_eq!(reserved_by_thresholds(&off, "ephemeral-storage", 500), 0);
    }

    #[test]
    fn every_signal_that_is_accepted_is_measured() {
        let dir = PathBuf::from("/proc");
        let disks = Disks { node: dir.clone(), images: dir.clone(), containers: "/nonexistent".into() };
        assert!(!read_signals(&disks).contains_key("containerfs.available"), "its file system is asked");
        let root = PathBuf::from("/dev/shm");
        let disks = Disks { node: root.clone(), images: root.clone(), containers: root };
        let measured = read_signals(&disks);
        for signal in SIGNALS {
            assert!(measured.contains_key(signal), "{signal}: {measured:?}");
        }
    }

    #[test]
    fn images_that_fill_their_disk_are_pressure_of_the_disk() {
        assert!(is_of_disk("imagefs.available") && !is_of_disk("memory.available"));
    }
}
