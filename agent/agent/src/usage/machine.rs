//! The machine as a whole, from `/proc` and its file system.

use std::fs;
use std::path::Path;

/// A kernel tick in nanoseconds; `USER_HZ` is 100 everywhere.
const TICK: u64 = 10_000_000;

/// Space of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Space {
    /// All bytes.
    pub capacity: u64,
    /// Bytes for anyone.
    pub available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// What the machine uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineUsage {
    /// Nanoseconds of all cpus since boot.
    pub cpu_total: u64,
    /// Nanocores now.
    pub cpu_rate: Option<u64>,
    /// Memory in use, without what the kernel gives back easily.
    pub working_set: u64,
    /// Memory in use.
    pub memory_used: u64,
    /// Memory that is not in the working set.
    pub memory_available: u64,
    /// Memory of processes.
    pub rss: u64,
    /// Swap in use.
    pub swap_used: u64,
    /// Swap that is left.
    pub swap_free: u64,
    /// Where pods' data is.
    pub disk: Space,
    /// When it was started, seconds since the epoch.
    pub boot: i64,
    /// Processes and threads.
    pub processes: u64,
    /// How many there may be.
    pub processes_most: u64,
}

/// Reads it; what cannot be read is zero.
pub fn read(data: &Path) -> MachineUsage {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (stat, memory) = (text("/proc/stat"), text("/proc/meminfo"));
    let kib = |name: &str| field(&memory, name) * 1024;
    let total = kib("MemTotal:");
    let used = total.saturating_sub(kib("MemFree:"));
    let working_set = used.saturating_sub(kib("Inactive(file):"));
    MachineUsage {
        cpu_total: busy(&stat) * TICK,
        cpu_rate: None,
        working_set,
        memory_used: used,
        memory_available: total.saturating_sub(working_set),
        rss: kib("AnonPages:"),
        swap_used: kib("SwapTotal:").saturating_sub(kib("SwapFree:")),
        swap_free: kib("SwapFree:"),
        disk: space(data),
        boot: i64::try_from(field(&stat, "btime")).unwrap_or(0),
        processes: text("/proc/loadavg")
            .split_whitespace()
            .nth(3)
            .and_then(|running| running.split_once('/')?.1.parse().ok())
            .unwrap_or(0),
        processes_most: text("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
    }
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Ticks that were not idle: user, nice, system, irq, softirq, steal.
fn busy(stat: &str) -> u64 {
    let ticks: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|tick| tick.parse().ok())
        .collect();
    [0, 1, 2, 5, 6, 7].iter().filter_map(|at| ticks.get(*at)).sum()
}

/// Space of the file system that a path is on.
pub fn space(path: &Path) -> Space {
    let Ok(disk) = nix::sys::statvfs::statvfs(path) else { return Space::default() };
    Space {
        capacity: disk.blocks() * disk.fragment_size(),
        available: disk.blocks_available() * disk.fragment_size(),
        inodes: disk.files(),
        inodes_free: disk.files_available(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_no_use() {
        assert_eq!(busy("cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 9\n"), 63);
        assert_eq!(busy(""), 0);
        assert_eq!(field("MemTotal:  100 kB\nMemFree: 40 kB\n", "MemFree:"), 40);
    }
}
