//! Privilege, disk, memory, clock.

use super::finding::Finding;
use super::role::Role;
use std::fs;
use std::path::Path;

const PART: &str = "machine";
const GIB: u64 = 1 << 30;

/// Root, and the capabilities that root of a container may lack.
pub fn privilege(role: Role, root: bool) -> Finding {
    if !root && role == Role::Server {
        return Finding::ok(PART, "privilege", "none: the server needs none above port 1023");
    }
    if !root {
        let seen = "not root: nodes make namespaces, mounts and links";
        return Finding::missing(PART, "privilege", seen, "run as root");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap_or("0").trim().to_owned();
    judge_capabilities(u64::from_str_radix(&mask, 16).unwrap_or(0))
}

fn judge_capabilities(mask: u64) -> Finding {
    let has = |bit: u32| mask & (1 << bit) != 0;
    let needed = [(21, "CAP_SYS_ADMIN"), (12, "CAP_NET_ADMIN"), (18, "CAP_SYS_CHROOT"), (27, "CAP_MKNOD")];
    let lost: Vec<&str> = needed.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect();
    if !lost.is_empty() {
        let seen = format!("root without {}", lost.join(", "));
        return Finding::missing(PART, "privilege", seen, "run on the host or in a privileged container");
    }
    if !has(24) {
        let seen =
            "root without CAP_SYS_RESOURCE: scores of the OOM killer are not lowered, limits not raised";
        return Finding::limited(PART, "privilege", seen, "run on the host or in a privileged container");
    }
    Finding::ok(PART, "privilege", "root")
}

/// Room for state and images.
pub fn disk(data_dir: &Path) -> Finding {
    let home = data_dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    match nix::sys::statvfs::statvfs(home) {
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let inodes = if disk.files() == 0 { u64::MAX } else { disk.files_available() };
            judge_disk(home, free, inodes)
        }
        Err(error) => Finding::missing(
            PART,
            "disk",
            format!("{}: {error}", home.display()),
            "choose another --data-dir",
        ),
    }
}

fn judge_disk(home: &Path, free: u64, inodes: u64) -> Finding {
    let seen = format!("{:.1} GiB free at {}", free as f64 / GIB as f64, home.display());
    let advice = "make room, or choose another --data-dir";
    if free < GIB / 2 || inodes < 1000 {
        Finding::missing(PART, "disk", format!("{seen}, {inodes} inodes"), advice)
    } else if free < 4 * GIB || inodes < 100_000 {
        Finding::limited(PART, "disk", format!("{seen}: pods are evicted when it runs short"), advice)
    } else {
        Finding::ok(PART, "disk", seen)
    }
}

/// Room for processes.
pub fn memory() -> Finding {
    judge_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())
}

fn judge_memory(meminfo: &str) -> Finding {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    let seen = format!("{} MiB available", kib >> 10);
    if kib < 128 << 10 {
        return Finding::missing(
            PART,
            "memory",
            seen,
            "128 MiB are the least; nodes evict pods below 100 MiB",
        );
    }
    Finding::ok(PART, "memory", seen)
}

/// Certificates and leases need a clock that is right.
pub fn clock() -> Finding {
    // SAFETY: an all-zero timex asks for nothing to be changed, and the kernel fills it in.
    #[allow(unsafe_code)]
    let (state, timex) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut timex), timex)
    };
    judge_clock(jiff::Timestamp::now().as_second(), state != -1 && timex.status & libc::STA_UNSYNC == 0)
}

/// When this was written; a clock before it is wrong.
const WRITTEN: i64 = 1_767_225_600;

fn judge_clock(now: i64, synchronised: bool) -> Finding {
    let text = jiff::Timestamp::from_second(now).map(|t| t.to_string()).unwrap_or_default();
    if now < WRITTEN {
        let advice = "set the clock: certificates would not be valid (timedatectl set-ntp true)";
        return Finding::missing(PART, "clock", text, advice);
    }
    if synchronised {
        return Finding::ok(PART, "clock", format!("{text}, synchronised"));
    }
    let advice = "several machines need the same time: apt-get install systemd-timesyncd";
    Finding::limited(PART, "clock", format!("{text}, not synchronised"), advice)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::finding::Outcome::{Limited, Missing, Ok as Fine};
    use super::*;

    #[test]
    fn limits_of_the_machine() {
        let home = Path::new("/var/lib");
        for (free, inodes, want) in [
            (10 * GIB, 1 << 20, Fine),
            (10 * GIB, 50_000, Limited),
            (GIB, 1 << 20, Limited),
            (GIB / 4, 1 << 20, Missing),
        ] {
            assert_eq!(judge_disk(home, free, inodes).outcome, want, "{free} {inodes}");
        }
        assert_eq!(judge_memory("MemTotal: 9 kB\nMemAvailable:  1048576 kB\n").outcome, Fine);
        assert_eq!(judge_memory("MemAvailable:  1024 kB\n").outcome, Missing);
        assert_eq!(judge_clock(0, true).outcome, Missing);
        assert_eq!(judge_clock(WRITTEN, true).outcome, Fine);
        assert_eq!(judge_clock(WRITTEN, false).outcome, Limited);
        let all = (1 << 41) - 1;
        assert_eq!(judge_capabilities(all).outcome, Fine);
        assert_eq!(judge_capabilities(all & !(1 << 24)).outcome, Limited);
        assert_eq!(judge_capabilities(all & !(1 << 21)).seen, "root without CAP_SYS_ADMIN");
    }
}
