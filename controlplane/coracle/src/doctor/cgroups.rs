//! Control groups and their controllers.

use super::finding::Finding;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PART: &str = "cgroup";
/// Controllers and what pods lose without them.
const WANTED: [(&str, &str); 5] = [
    ("cpu", "cpu limits and weights"),
    ("memory", "memory limits, OOMKilled, usage"),
    ("pids", "limits of processes"),
    ("cpuset", "whole cpus of one's own"),
    ("io", "io statistics"),
];
const ALONE: &str = "boot with cgroup v2 alone: systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all on the kernel's command line";

/// Where cgroup2 is mounted, and which controllers it gives.
pub fn findings() -> Vec<Finding> {
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let is_v2 = |path: &&Path| statfs(*path).is_ok_and(|s| s.filesystem_type() == CGROUP2_SUPER_MAGIC);
    let mount = places.into_iter().find(is_v2);
    let controllers = mount.and_then(|m| fs::read_to_string(m.join("cgroup.controllers")).ok());
    let supported = fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\tcgroup2\n");
    judge(mount, supported, controllers.as_deref())
}

fn judge(mount: Option<&Path>, supported: bool, controllers: Option<&str>) -> Vec<Finding> {
    if !supported {
        return vec![Finding::missing(
            PART,
            "version 2",
            "the kernel has none",
            "a kernel with CONFIG_CGROUPS",
        )];
    }
    let version = match mount {
        Some(path) if path == Path::new("/sys/fs/cgroup") => Finding::ok(PART, "version 2", "the only one"),
        Some(path) => {
            let seen = format!("beside version 1, at {}: nodes take a view of their own", path.display());
            Finding::limited(PART, "version 2", seen, ALONE)
        }
        None => {
            let seen = "not mounted: nodes mount a view of their own";
            Finding::limited(PART, "version 2", seen, ALONE)
        }
    };
    let there: BTreeSet<&str> = controllers.unwrap_or_default().split_whitespace().collect();
    let lost: Vec<String> = WANTED
        .iter()
        .filter(|(name, _)| !there.contains(name))
        .map(|(name, what)| format!("{name} ({what})"))
        .collect();
    let controllers = if lost.is_empty() {
        Finding::ok(PART, "controllers", WANTED.map(|(name, _)| name).join(", "))
    } else {
        Finding::limited(PART, "controllers", format!("without {}", lost.join(", ")), ALONE)
    };
    vec![version, controllers]
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome::{Limited, Missing, Ok};
    use super::*;

    #[test]
    fn hosts_of_every_kind() {
        let all = Some("cpuset cpu io memory hugetlb pids rdma misc");
        for (mount, supported, controllers, want) in [
            (Some("/sys/fs/cgroup"), true, all, vec![Ok, Ok]),
            (Some("/sys/fs/cgroup"), true, Some("cpu memory"), vec![Ok, Limited]),
            (Some("/sys/fs/cgroup/unified"), true, Some(""), vec![Limited, Limited]),
            (None, true, None, vec![Limited, Limited]),
            (None, false, None, vec![Missing]),
        ] {
            let findings = judge(mount.map(Path::new), supported, controllers);
            assert_eq!(findings.iter().map(|f| f.outcome).collect::<Vec<_>>(), want, "{mount:?}");
        }
        let findings = judge(Some(Path::new("/sys/fs/cgroup")), true, Some("cpu cpuset io pids"));
        assert_eq!(findings[1].seen, "without memory (memory limits, OOMKilled, usage)");
    }
}
