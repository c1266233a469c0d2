//! What is measured between two rounds, when no pod of them is left.

use coracle_tests::pods::{Cluster, run};
use std::fmt;
use std::fs;

/// Numbers that must not grow.
#[derive(Debug, Clone)]
pub struct Sample(Vec<(&'static str, u64)>);

/// In MiB; what an allocator keeps differs from round to round. The others are counts.
const MEMORY: [&str; 2] = ["agent MiB", "keeper MiB"];

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024
}

fn entries(pid: u32, dir: &str) -> u64 {
    fs::read_dir(format!("/proc/{pid}/{dir}")).map_or(0, |entries| entries.count() as u64)
}

fn number(script: &str) -> u64 {
    run(script).trim().parse().unwrap()
}

impl Sample {
    /// Of the node as it is.
    pub fn take(cluster: &Cluster) -> Self {
        let (agent, keeper) = (cluster.agent_pid(), cluster.keeper_pid());
        let dir = |name: &str| cluster.path(name).display().to_string();
        Self(vec![
            ("agent MiB", resident(agent)),
            ("agent descriptors", entries(agent, "fd")),
            ("agent threads", entries(agent, "task")),
            ("keeper MiB", resident(keeper)),
            ("keeper descriptors", entries(keeper, "fd")),
            ("mounts", number("wc -l < /proc/self/mountinfo")),
            ("links", number("ip -o link | wc -l")),
            ("cgroups", cluster.picture().iter().filter(|line| line.starts_with("cgroup ")).count() as u64),
            ("log files", number(&format!("find {} -type f | wc -l", dir("logs")))),
            ("images", number(&format!("ls {}/engine/images/images 2>/dev/null | wc -l", dir("")))),
            ("files in engine", number(&format!("find {} -xdev | wc -l", dir("engine")))),
            ("disk MiB", number(&format!("df -BM --output=used {} | tail -1 | tr -dc 0-9", dir("")))),
        ])
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(&parts.join(", "))
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Compares the first half with the second; growth fails.
pub fn verdict(samples: &[Sample]) {
    let (first, second) = samples.split_at(samples.len() / 2);
    let mut grown = Vec::new();
    println!("{:20} {:>10} {:>10} {:>10}", "", "first half", "second", "most");
    for (at, (name, _)) in samples[0].0.iter().enumerate() {
        let values = |samples: &[Sample]| samples.iter().map(|sample| sample.0[at].1).collect::<Vec<_>>();
        let (before, after) = (median(values(first)), median(values(second)));
        println!("{name:20} {before:>10} {after:>10} {:>10}", values(samples).into_iter().max().unwrap());
        let allowed = match *name {
            name if MEMORY.contains(&name) => before + before / 5 + 4,
            // Removed when the disk is short, and at most those of one round until then; connections come and go.
            "images" | "files in engine" | "disk MiB" => before + before / 4 + 8,
            "agent descriptors" | "agent threads" => before + 6,
            _ => before,
        };
        if after > allowed {
            grown.push(format!("{name}: from {before} to {after}"));
        }
    }
    assert!(grown.is_empty(), "grown: {grown:#?}");
}
