//! Eviction signals: what is free on the node, and what eviction thresholds reserve of it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::config::eviction::{ALLOCATABLE_MEMORY, MEMORY, Threshold};
use crate::pod::all_pods;
use coracle_engine::cgroup;

/// Supported eviction signals.
pub(super) const SIGNALS: [&str; 9] = [
    MEMORY,
    ALLOCATABLE_MEMORY,
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

impl Disks {
    /// The disk whose thresholds count for the layers of containers: that of the images if these are together and on a disk of
    /// their own, otherwise that of the node, as for kubelets.
    pub fn of_containers(&self) -> &'static str {
        let device = |dir: &Path| std::fs::metadata(dir).map(|at| at.dev()).ok();
        let (node, images, containers) = (device(&self.node), device(&self.images), device(&self.containers));
        if images != node && images == containers { "imagefs" } else { "nodefs" }
    }
}

/// Whether memory is short, of the machine or of all pods together.
pub fn is_of_memory(signal: &str) -> bool {
    matches!(signal, MEMORY | ALLOCATABLE_MEMORY)
}

/// Whether a disk, rather than memory or pids, is short.
pub fn is_of_disk(signal: &str) -> bool {
    ["nodefs.", "imagefs.", "containerfs."].iter().any(|disk| signal.starts_with(disk))
}

/// Reads the machine. `pods` is the directory of the cgroup of all pods.
pub fn read_signals(disks: &Disks, pods: &Path) -> Signals {
    let mut signals = Signals::new();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some((free, total)) = memory(&meminfo) {
        signals.insert(MEMORY, (free, total));
        signals.extend(read_pods(pods, total).map(|amounts| (ALLOCATABLE_MEMORY, amounts)));
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

/// Memory that is not in the working set, and all of it, of `/proc/meminfo`. As for pods and in `kubectl top node`, pages of files that
/// were read more than once belong to the working set; those of `MemAvailable` do not.
fn memory(meminfo: &str) -> Amounts {
    let field = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<i64>().ok().map(|kib| kib.saturating_mul(1024))
    };
    Some((field("MemFree:")?.saturating_add(field("Inactive(file):")?), field("MemTotal:")?))
}

/// What all pods together may still use of memory, and what they may use at all: the limit of their cgroup, at most `total`, which
/// the machine has. What the kernel can drop at once is not used. Nothing without cgroups of version 2.
fn read_pods(dir: &Path, total: i64) -> Amounts {
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).ok();
    let used = read("memory.current")?.trim().parse::<i64>().ok()?;
    let inactive = cgroup::field(&read("memory.stat")?, "inactive_file")?;
    let used = used.saturating_sub(i64::try_from(inactive).unwrap_or(i64::MAX)).max(0);
    // Without a limit it says `max`.
    let limit = read("memory.max").and_then(|limit| limit.trim().parse().ok());
    let most = limit.map_or(total, |limit: i64| limit.min(total));
    Some((most.saturating_sub(used), most))
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
        "memory" => MEMORY,
        "ephemeral-storage" => "nodefs.available",
        _ => return 0,
    };
    let threshold = thresholds.get(signal).filter(|threshold| !threshold.is_off());
    threshold.map_or(0, |threshold| threshold.of(capacity))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        let measured = read_signals(&disks, &dir);
        assert!(!measured.contains_key("containerfs.available"), "its file system is asked");
        assert!(!measured.contains_key(ALLOCATABLE_MEMORY), "there is no cgroup");
        let root = PathBuf::from("/dev/shm");
        let disks = Disks { node: root.clone(), images: root.clone(), containers: root };
        let pods = pods("max");
        let measured = read_signals(&disks, pods.path());
        for signal in SIGNALS {
            assert!(measured.contains_key(signal), "{signal}: {measured:?}");
        }
    }

    #[test]
    fn memory_that_is_available_is_not_in_the_working_set() {
        let text = "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 700 kB\nActive(file): 200 kB\nInactive(file): 300 kB\n";
        assert_eq!(memory(text), Some((400 << 10, 900 << 10)));
        assert_eq!(memory("MemTotal: 900 kB\nMemFree: 100 kB\n"), None);
    }

    /// A cgroup that uses 900 bytes, of which 300 can be dropped.
    fn pods(limit: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("memory.current", "900\n"),
            ("memory.stat", "anon 500\ninactive_file 300\nactive_file 100\n"),
            ("memory.max", &format!("{limit}\n")),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        dir
    }

    #[test]
    fn pods_together_may_use_what_their_cgroup_may() {
        for (limit, want) in [("max", (400, 1000)), ("700", (100, 700)), ("5000", (400, 1000))] {
            assert_eq!(read_pods(pods(limit).path(), 1000), Some(want), "{limit}");
        }
    }

    #[test]
    fn layers_are_on_the_disk_of_the_images_only_if_it_is_another_than_that_of_the_node() {
        for (node, images, containers, want) in [
            ("/proc", "/proc", "/proc", "nodefs"),
            ("/proc", "/sys", "/sys", "imagefs"),
            ("/proc", "/sys", "/proc", "nodefs"),
            ("/proc", "/sys", "/dev/shm", "nodefs"),
            ("/proc", "/proc", "/sys", "nodefs"),
        ] {
            let disks = Disks { node: node.into(), images: images.into(), containers: containers.into() };
            assert_eq!(disks.of_containers(), want, "{disks:?}");
        }
    }

    #[test]
    fn images_that_fill_their_disk_are_pressure_of_the_disk() {
        assert!(is_of_disk("imagefs.available") && !is_of_disk("memory.available"));
    }
}
