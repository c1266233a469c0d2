//! Eviction signals: what is free on the node, and the thresholds below which pods are evicted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Threshold;
use crate::pod::{all_pods, amount};

/// Supported eviction signals.
const SIGNALS: [&str; 8] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
];

/// Why a list of thresholds is not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ThresholdError {
    /// Not a signal.
    #[error("unknown eviction signal {signal:?}")]
    Signal {
        /// The signal as given.
        signal: String,
    },
    /// A signal of kubelets that this node does not measure.
    #[error("eviction signal {signal:?} is not measured: pods together are limited to what is allocatable")]
    NotMeasured {
        /// The signal as given.
        signal: String,
    },
    /// Not a comparison with an amount.
    #[error("{text:?} is not of the form signal<quantity or signal<percent%")]
    Form {
        /// The value as given.
        text: String,
    },
}

/// `memory.available<100Mi,nodefs.available<10%,…`.
pub fn parse_thresholds(text: &str) -> Result<BTreeMap<String, Threshold>, ThresholdError> {
    let one = |part: &str| {
        let form = || ThresholdError::Form { text: part.to_owned() };
        let (signal, value) = part.split_once('<').ok_or_else(form)?;
        if signal == "allocatableMemory.available" {
            return Err(ThresholdError::NotMeasured { signal: signal.to_owned() });
        }
        if !SIGNALS.contains(&signal) {
            return Err(ThresholdError::Signal { signal: signal.to_owned() });
        }
        let threshold = match value.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|percent| (0.0..=100.0).contains(percent)).map(Threshold::Percent)
            }
            None => amount::parse_units(value).filter(|amount| *amount >= 0).map(Threshold::Amount),
        };
        Ok((signal.to_owned(), threshold.ok_or_else(form)?))
    };
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

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

/// The signals below their threshold, with threshold and free amount; memory, which kills, first.
pub fn thresholds_met(
    signals: &Signals,
    thresholds: &BTreeMap<String, Threshold>,
) -> Vec<(&'static str, i64, i64)> {
    let met = signals.iter().filter_map(|(signal, (free, total))| {
        let least = thresholds.get(*signal)?.of(*total);
        (*free < least).then_some((*signal, least, *free))
    });
    let mut met: Vec<_> = met.collect();
    met.sort_by_key(|(signal, ..)| !signal.starts_with("memory."));
    met
}

/// Amount of a resource reserved by eviction thresholds. It is not allocatable: otherwise a full node would evict pods
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
    thresholds.get(signal).map_or(0, |threshold| threshold.of(capacity))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn thresholds_are_met_by_amount_and_by_percent() {
        assert!(parse_thresholds("nodefs.available<10%,nonsense").is_err());
        let thresholds = parse_thresholds("memory.available<100Mi,nodefs.available<10%").unwrap();
        assert_eq!(thresholds.len(), 2);
        let signals =
            Signals::from([("memory.available", (99 << 20, 1 << 30)), ("nodefs.available", (11, 100))]);
        assert_eq!(thresholds_met(&signals, &thresholds), [("memory.available", 100 << 20, 99 << 20)]);
        let signals =
            Signals::from([("memory.available", (100 << 20, 1 << 30)), ("nodefs.available", (9, 100))]);
        assert_eq!(thresholds_met(&signals, &thresholds), [("nodefs.available", 10, 9)]);
        for (resource, want) in [("memory", 100 << 20), ("ephemeral-storage", 50), ("cpu", 0)] {
            assert_eq!(reserved_by_thresholds(&thresholds, resource, 500), want, "{resource}");
        }
        assert_eq!(reserved_by_thresholds(&BTreeMap::new(), "memory", 500), 0);
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
        assert_eq!(
            parse_thresholds("allocatableMemory.available<1Mi"),
            Err(ThresholdError::NotMeasured { signal: "allocatableMemory.available".to_owned() })
        );
    }

    #[test]
    fn images_that_fill_their_disk_are_pressure_and_memory_comes_first() {
        let thresholds = parse_thresholds("imagefs.available<15%,memory.available<100Mi").unwrap();
        let signals = Signals::from([
            ("imagefs.available", (14, 100)),
            ("memory.available", (1, 1 << 30)),
            ("nodefs.available", (14, 100)),
        ]);
        let met: Vec<_> = thresholds_met(&signals, &thresholds).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(met, ["memory.available", "imagefs.available"]);
        assert!(is_of_disk("imagefs.available") && !is_of_disk("memory.available"));
    }
}
