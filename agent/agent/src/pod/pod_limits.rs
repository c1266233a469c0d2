//! Limits of a pod's own cgroup, and the order in which a resize writes them. Pure.

use coracle_engine::limits::weight_of_shares;
use coracle_proto::cri::LinuxContainerResources;

/// The kernel keeps memory limits in whole pages.
const PAGE: i64 = 4096;

/// What limits a pod; 0 is unlimited. Nothing is known of controllers that the kernel does not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodLimits {
    /// Weight among other pods.
    pub weight: Option<u64>,
    /// CPU quota, in microseconds per period.
    pub quota: Option<i64>,
    /// The period, in microseconds.
    pub period: Option<i64>,
    /// Memory, in bytes.
    pub memory: Option<i64>,
}

impl PodLimits {
    /// From the cgroup's files.
    pub fn read(file: impl Fn(&str) -> Option<String>) -> Self {
        let number = |text: &str| if text == "max" { Some(0) } else { text.parse().ok() };
        let cpu = file("cpu.max");
        let mut cpu = cpu.iter().flat_map(|text| text.split_whitespace());
        PodLimits {
            weight: file("cpu.weight").and_then(|text| text.trim().parse().ok()),
            quota: cpu.next().and_then(number),
            period: cpu.next().and_then(number),
            memory: file("memory.max").and_then(|text| number(text.trim())),
        }
    }

    /// Whether the CPU weight is that of `target`, as far as it is known.
    pub fn has_weight_of(&self, target: &LinuxContainerResources) -> bool {
        self.weight.is_none_or(|weight| weight == weight_of_shares(target.cpu_shares))
    }

    /// Whether the CPU quota is that of `target`, as far as it is known; of another period if it is as many CPUs.
    pub fn has_quota_of(&self, target: &LinuxContainerResources) -> bool {
        // Quotas that are not enforced are negative.
        self.quota_in(target.cpu_period).is_none_or(|quota| quota == target.cpu_quota.max(0))
    }

    /// The quota as one of another period.
    fn quota_in(&self, period: i64) -> Option<i64> {
        let own = self.period.filter(|own| *own > 0).unwrap_or(period);
        self.quota.map(|quota| if own == period { quota } else { quota.saturating_mul(period) / own })
    }

    /// Whether the memory limit is that of `target`, as far as it is known. A limit is never removed.
    pub fn has_memory_of(&self, target: &LinuxContainerResources) -> bool {
        let wanted = target.memory_limit_in_bytes;
        wanted == 0 || self.memory.is_none_or(|memory| memory > 0 && memory / PAGE == wanted / PAGE)
    }
}

/// Writes to the pod's cgroup. Fields that are zero are not written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodWrites {
    /// What grows, before the containers change: they would not get more than the pod has.
    pub grow: LinuxContainerResources,
    /// What shrinks, after the containers have shrunk.
    pub shrink: LinuxContainerResources,
}

impl PodWrites {
    /// The writes that make `has` into `target`.
    pub fn plan(has: &PodLimits, target: &LinuxContainerResources) -> Self {
        let mut writes = PodWrites::default();
        let unlimited = |amount: i64| if amount <= 0 { i64::MAX } else { amount };
        if !has.has_weight_of(target) {
            let grows = has.weight < Some(weight_of_shares(target.cpu_shares));
            writes.side(grows).cpu_shares = target.cpu_shares;
        }
        if let Some(quota) = has.quota_in(target.cpu_period).filter(|_| !has.has_quota_of(target)) {
            let grows = unlimited(target.cpu_quota) > unlimited(quota);
            let side = writes.side(grows);
            (side.cpu_quota, side.cpu_period) = (target.cpu_quota, target.cpu_period);
        }
        if let Some(memory) = has.memory.filter(|_| !has.has_memory_of(target)) {
            let grows = target.memory_limit_in_bytes > unlimited(memory);
            writes.side(grows).memory_limit_in_bytes = target.memory_limit_in_bytes;
        }
        writes
    }

    fn side(&mut self, grows: bool) -> &mut LinuxContainerResources {
        if grows { &mut self.grow } else { &mut self.shrink }
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == PodWrites::default()
    }

    /// The memory limit, where it becomes less.
    pub fn lower_memory(&self) -> Option<i64> {
        Some(self.shrink.memory_limit_in_bytes).filter(|bytes| *bytes > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(shares: i64, quota: i64, memory: i64) -> LinuxContainerResources {
        LinuxContainerResources {
            cpu_period: 100_000,
            cpu_shares: shares,
            cpu_quota: quota,
            memory_limit_in_bytes: memory,
            ..LinuxContainerResources::default()
        }
    }

    fn limits(weight: &str, cpu: &str, memory: &str) -> PodLimits {
        PodLimits::read(|file| {
            let text = match file {
                "cpu.weight" => weight,
                "cpu.max" => cpu,
                "memory.max" => memory,
                other => panic!("{other}"),
            };
            Some(text.to_owned()).filter(|text| !text.is_empty())
        })
    }

    #[test]
    fn limits_are_read_from_the_files() {
        let some = |weight, quota, memory| PodLimits {
            weight: Some(weight),
            quota: Some(quota),
            period: Some(100_000),
            memory: Some(memory),
        };
        assert_eq!(limits("100\n", "50000 100000\n", "67108864\n"), some(100, 50_000, 64 << 20));
        assert_eq!(limits("1\n", "max 100000\n", "max\n"), some(1, 0, 0));
        assert_eq!(limits("", "", ""), PodLimits::default());
    }

    #[test]
    fn as_many_cpus_are_the_same_quota_in_any_period() {
        let has = limits("100", "10000 20000", "max");
        for (quota, same) in [(50_000, true), (60_000, false), (0, false), (-1, false)] {
            assert_eq!(has.has_quota_of(&target(0, quota, 0)), same, "{quota}");
        }
        let plan = |quota: i64| PodWrites::plan(&has, &target(0, quota, 0));
        assert_eq!((plan(60_000).grow.cpu_quota, plan(40_000).shrink.cpu_quota), (60_000, 40_000));
        assert_eq!(plan(-1).grow.cpu_quota, -1, "quotas are not enforced any more");
        let unlimited = limits("100", "max 100000", "max");
        assert!(unlimited.has_quota_of(&target(0, -1, 0)) && unlimited.has_quota_of(&target(0, 0, 0)));
    }

    #[test]
    fn a_pod_grows_before_its_containers_and_shrinks_after_them() {
        let zero = LinuxContainerResources { cpu_period: 0, ..target(0, 0, 0) };
        let quota = |quota: i64| target(0, quota, 0);
        let memory = |memory: i64| LinuxContainerResources { memory_limit_in_bytes: memory, ..zero.clone() };
        let shares = |shares: i64| LinuxContainerResources { cpu_shares: shares, ..zero.clone() };
        let has = limits("100", "50000 100000", "67108864");
        let (none, mi) = (zero.clone(), 1 << 20);
        for (has, target, grow, shrink) in [
            (has, target(1024, 50_000, 64 * mi), none.clone(), none.clone()),
            // The kernel has it in pages.
            (has, target(1024, 50_000, 64 * mi + 1), none.clone(), none.clone()),
            (has, target(1024, 60_000, 64 * mi), quota(60_000), none.clone()),
            (has, target(1024, 40_000, 64 * mi), none.clone(), quota(40_000)),
            // Without a limit is more than with any.
            (has, target(1024, 0, 64 * mi), quota(0), none.clone()),
            (limits("100", "max 100000", "max"), target(1024, 1000, 0), none.clone(), quota(1000)),
            (limits("100", "max 100000", "max"), target(1024, 0, mi), none.clone(), memory(mi)),
            // A limit of memory is not removed.
            (has, target(1024, 50_000, 0), none.clone(), none.clone()),
            (has, target(1024, 50_000, 65 * mi), memory(65 * mi), none.clone()),
            (has, target(2048, 50_000, 63 * mi), shares(2048), memory(63 * mi)),
            (has, target(2, 50_000, 64 * mi), none.clone(), shares(2)),
            // What cannot be read is not written.
            (PodLimits::default(), target(2, 1, 1), none.clone(), none.clone()),
        ] {
            let writes = PodWrites::plan(&has, &target);
            assert_eq!(writes, PodWrites { grow, shrink }, "{has:?} {target:?}");
        }
        assert_eq!(PodWrites::plan(&has, &target(1024, 50_000, 63 * mi)).lower_memory(), Some(63 * mi));
        assert_eq!(PodWrites::plan(&has, &target(1024, 50_000, 65 * mi)).lower_memory(), None);
    }
}
