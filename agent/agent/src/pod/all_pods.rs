//! The cgroup of all pods: limited to what the node does not reserve.

use coracle_cli::causes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::huge_pages;
use super::node_facts::NodeFacts;
use super::resources::{SWAP_MAX, shares};
use crate::config::NodeConfig;
use coracle_engine::cgroup::{Error, Hierarchy};
use coracle_engine::limits::{Files, weight_of_shares};

/// Limits of the cgroup. What eviction thresholds keep free is not taken off: pods would be killed before they are
/// evicted.
fn limits(config: &NodeConfig, memory: i64, pids: Option<i64>, allocatable_cpu: Option<i64>) -> Files {
    let reserved = |resource: &str| config.reserved.get(resource).copied().unwrap_or(0);
    let mut files = Files::new();
    if reserved("memory") > 0 && memory > reserved("memory") {
        files.insert("memory.max".to_owned(), (memory - reserved("memory")).to_string());
    }
    if let Some(pids) = pids.filter(|pids| reserved("pid") > 0 && *pids > reserved("pid")) {
        files.insert("pids.max".to_owned(), (pids - reserved("pid")).to_string());
    }
    if let Some(cpu) = allocatable_cpu.filter(|cpu| *cpu > 0) {
        files.insert("cpu.weight".to_owned(), weight_of_shares(shares(cpu)).to_string());
    }
    files
}

/// Resources that only some kernels limit.
#[derive(Debug, Default)]
pub struct Limited {
    /// Whether swap is limited.
    pub swap: bool,
    /// Sizes of huge pages that are limited, in bytes.
    pub page_sizes: BTreeSet<i64>,
}

/// What cgroups of version 1 limit: huge pages, if `root` has a hierarchy for them.
pub fn limited_by_version_1(root: &Path) -> Limited {
    let is_mounted = root.join("hugetlb").is_dir();
    let page_sizes = is_mounted.then(|| huge_pages::sizes(Path::new(huge_pages::SIZES)));
    Limited { swap: false, page_sizes: page_sizes.unwrap_or_default() }
}

fn cgroup_path(config: &NodeConfig) -> String {
    format!("{}/kubepods", config.cgroup_parent)
}

/// The directory of the cgroup of all pods, where the host has version 2 of cgroups.
pub fn directory(config: &NodeConfig) -> PathBuf {
    config.cgroup_root.join(cgroup_path(config).trim_start_matches('/'))
}

/// Makes the cgroup of all pods and sets its limits; returns what cgroups limit here. Errors are logged: pods then run
/// without these limits.
pub fn limit(hierarchy: &Hierarchy, config: &NodeConfig, capacity: &NodeFacts) -> Limited {
    let path = cgroup_path(config);
    let set = || -> Result<Limited, Error> {
        let cgroup = hierarchy.ensure(&path)?;
        let files = limits(config, capacity.memory, pids_total(), capacity.allocatable.get("cpu").copied());
        cgroup.apply(files, hierarchy.controllers())?;
        let is_there = |file: &str| cgroup.path().join(file).exists();
        let mut page_sizes = huge_pages::sizes(Path::new(huge_pages::SIZES));
        page_sizes.retain(|size| is_there(&huge_pages::limit_file(*size)));
        Ok(Limited { swap: is_there(SWAP_MAX), page_sizes })
    };
    set().unwrap_or_else(|error| {
        tracing::warn!(cgroup = path, error = %causes::chain(&error), "limits of all pods not set");
        Limited::default()
    })
}

/// As many processes and threads as the kernel allows; `None` if it does not say.
pub fn pids_total() -> Option<i64> {
    let most = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    let limits = [most("/proc/sys/kernel/pid_max"), most("/proc/sys/kernel/threads-max")];
    limits.into_iter().flatten().min()
}

/// All swap of the machine, in bytes.
pub fn swap_total() -> i64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_kept_from_all_pods_together() -> std::io::Result<()> {
        let dir = tempfile::tempdir()?;
        let mut config = NodeConfig::in_directory(dir.path());
        assert_eq!(limits(&config, 1 << 30, Some(1000), None), Files::new(), "nothing is reserved");
        config.reserved.insert("memory".to_owned(), 256 << 20);
        let files = limits(&config, 1 << 30, Some(1000), Some(2000));
        assert_eq!(files["memory.max"], (768 << 20).to_string());
        assert_eq!(files["cpu.weight"], weight_of_shares(2048).to_string());
        assert_eq!(files.get("pids.max"), None);
        assert_eq!(limits(&config, 1 << 20, None, None), Files::new(), "more is reserved than there is");
        config.reserved.insert("pid".to_owned(), 100);
        assert_eq!(limits(&config, 1 << 20, Some(1000), None)["pids.max"], "900");
        assert_eq!(limits(&config, 1 << 20, Some(100), None), Files::new(), "more is reserved than there is");
        assert_eq!(limits(&config, 1 << 20, None, None), Files::new(), "the kernel does not say");
        Ok(())
    }
}
