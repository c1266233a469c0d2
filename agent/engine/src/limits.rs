//! CRI resources as cgroup v2 files. Pure.

use std::collections::{BTreeMap, BTreeSet};

use coracle_proto::cri::LinuxContainerResources;

/// File name → content.
pub type Files = BTreeMap<String, String>;

/// `cpu.weight` (1–10000) for v1 shares (2–262144), with the kernel's default at both ends of the scale.
///
/// 1024 shares, one CPU's worth, are weight 100 in the curve every runtime agreed on in 2025; before that the mapping
/// was linear and gave small pods too little.
pub fn weight_of_shares(shares: i64) -> u64 {
    if shares == 0 {
        return 0;
    }
    let shares = shares.clamp(2, 262_144);
    // log10 of the weight is a parabola in log2 of the shares, through (2, 1), (1024, 100) and (262144, 10000).
    let l = (shares as f64).log2();
    let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
    (10f64.powf(exponent).ceil() as u64).clamp(1, 10_000)
}

/// The cgroup files for `resources`. Zero and empty fields are skipped: they stay unchanged.
pub fn files(resources: &LinuxContainerResources) -> Files {
    let mut files = Files::new();
    let mut set = |name: &str, value: String| drop(files.insert(name.to_owned(), value));
    if resources.cpu_shares > 0 {
        set("cpu.weight", weight_of_shares(resources.cpu_shares).to_string());
    }
    if resources.cpu_quota != 0 || resources.cpu_period != 0 {
        let period = if resources.cpu_period > 0 { resources.cpu_period } else { 100_000 };
        let quota = if resources.cpu_quota > 0 { resources.cpu_quota.to_string() } else { "max".into() };
        set("cpu.max", format!("{quota} {period}"));
    }
    if resources.memory_limit_in_bytes != 0 {
        set("memory.max", limit(resources.memory_limit_in_bytes));
    }
    if resources.memory_swap_limit_in_bytes != 0 {
        // CRI counts memory and swap together, cgroup v2 swap alone.
        let swap = match (resources.memory_swap_limit_in_bytes, resources.memory_limit_in_bytes) {
            (both, memory) if both > 0 && memory > 0 => limit((both - memory).max(0)),
            (both, _) => limit(both),
        };
        set("memory.swap.max", swap);
    }
    if !resources.cpuset_cpus.is_empty() {
        set("cpuset.cpus", resources.cpuset_cpus.clone());
    }
    if !resources.cpuset_mems.is_empty() {
        set("cpuset.mems", resources.cpuset_mems.clone());
    }
    for huge in &resources.hugepage_limits {
        set(&format!("hugetlb.{}.max", huge.page_size), huge.limit.to_string());
    }
    // Explicit `unified` values have precedence.
    for (name, value) in &resources.unified {
        set(name, value.clone());
    }
    files
}

fn limit(bytes: i64) -> String {
    if bytes < 0 { "max".into() } else { bytes.to_string() }
}

/// Removes the files of unavailable controllers; returns those controllers.
pub fn keep_available(files: &mut Files, controllers: &BTreeSet<String>) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    files.retain(|name, _| {
        let controller = name.split('.').next().unwrap_or_default();
        let there = controller == "cgroup" || controllers.contains(controller);
        if !there {
            missing.insert(controller.to_owned());
        }
        there
    });
    missing
}

/// `update` over `old`: fields that are zero or empty in the update stay.
pub fn merge(old: &LinuxContainerResources, update: &LinuxContainerResources) -> LinuxContainerResources {
    let number = |old: i64, new: i64| if new == 0 { old } else { new };
    let text = |old: &String, new: &String| if new.is_empty() { old.clone() } else { new.clone() };
    let mut unified = old.unified.clone();
    unified.extend(update.unified.clone());
    let huge = if update.hugepage_limits.is_empty() { old } else { update };
    LinuxContainerResources {
        cpu_period: number(old.cpu_period, update.cpu_period),
        cpu_quota: number(old.cpu_quota, update.cpu_quota),
        cpu_shares: number(old.cpu_shares, update.cpu_shares),
        memory_limit_in_bytes: number(old.memory_limit_in_bytes, update.memory_limit_in_bytes),
        oom_score_adj: number(old.oom_score_adj, update.oom_score_adj),
        cpuset_cpus: text(&old.cpuset_cpus, &update.cpuset_cpus),
        cpuset_mems: text(&old.cpuset_mems, &update.cpuset_mems),
        hugepage_limits: huge.hugepage_limits.clone(),
        unified,
        memory_swap_limit_in_bytes: number(old.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shares_become_weights() {
        for (shares, weight) in
            [(0, 0), (1, 1), (2, 1), (102, 17), (1024, 100), (2048, 174), (262_144, 10_000)]
        {
            assert_eq!(weight_of_shares(shares), weight, "{shares}");
        }
    }

    #[test]
    fn resources_become_files() {
        let mut resources = LinuxContainerResources {
            cpu_period: 100_000,
            cpu_quota: 50_000,
            cpu_shares: 1024,
            memory_limit_in_bytes: 64 << 20,
            memory_swap_limit_in_bytes: 96 << 20,
            cpuset_cpus: "0-1".into(),
            ..Default::default()
        };
        resources
            .hugepage_limits
            .push(coracle_proto::cri::HugepageLimit { page_size: "2MB".into(), limit: 9 });
        resources.unified.insert("memory.high".into(), "60000000".into());
        let expected: Files = [
            ("cpu.max", "50000 100000"),
            ("cpu.weight", "100"),
            ("cpuset.cpus", "0-1"),
            ("hugetlb.2MB.max", "9"),
            ("memory.high", "60000000"),
            ("memory.max", "67108864"),
            ("memory.swap.max", "33554432"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        assert_eq!(files(&resources), expected);
        assert_eq!(files(&LinuxContainerResources::default()), Files::new());
        let unlimited =
            LinuxContainerResources { cpu_quota: -1, memory_limit_in_bytes: -1, ..Default::default() };
        assert_eq!(files(&unlimited)["cpu.max"], "max 100000");
        assert_eq!(files(&unlimited)["memory.max"], "max");
    }

    #[test]
    fn absent_controllers_are_left_out_and_named() {
        let resources =
            LinuxContainerResources { cpu_shares: 2, memory_limit_in_bytes: 9, ..Default::default() };
        let mut files = files(&resources);
        let missing = keep_available(&mut files, &BTreeSet::from(["memory".to_owned()]));
        assert_eq!(files.keys().collect::<Vec<_>>(), ["memory.max"]);
        assert_eq!(missing, BTreeSet::from(["cpu".to_owned()]));
    }

    #[test]
    fn updates_keep_what_they_do_not_name() {
        let old = LinuxContainerResources { cpu_shares: 100, memory_limit_in_bytes: 5, ..Default::default() };
        let update = LinuxContainerResources { memory_limit_in_bytes: 9, ..Default::default() };
        let merged = merge(&old, &update);
        assert_eq!((merged.cpu_shares, merged.memory_limit_in_bytes), (100, 9));
    }
}
