//! What is measured between two rounds, when no pod of them is left.

use coracle_tests::pods::{Cluster, run};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Numbers that must not grow.
#[derive(Debug, Clone)]
pub struct Sample(Vec<(&'static str, u64)>);

/// In MiB; what an allocator keeps differs from round to round. The others are counts.
const MEMORY: [&str; 2] = ["agent MiB", "keeper MiB"];

/// MiB that all journals of the store may take: the engine begins another one when a journal has 64 MiB, and removes the one before it
/// when all of it is in tables.
const JOURNALS: u64 = 2 * 64 + 8;

/// MiB that the tables of the store may grow by in any case: 16 of history, which is removed only beyond that, and 8 that wait for the
/// next compaction.
const TABLES: u64 = 16 + 8;

/// MiB that the server may grow by in any case: it keeps Events and recent changes of earlier rounds.
const SERVER: u64 = 16;

fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or_default() / 1024
}

fn entries(pid: u32, dir: &str) -> u64 {
    fs::read_dir(format!("/proc/{pid}/{dir}")).map_or(0, |entries| entries.count() as u64)
}

/// Bytes on disk below a directory: of journals, and of all other files. Files may go meanwhile; without a directory, as with etcd,
/// there are none.
fn store_bytes(dir: &Path) -> (u64, u64) {
    let (mut journals, mut others) = (0, 0);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            let below = store_bytes(&entry.path());
            (journals, others) = (journals + below.0, others + below.1);
        } else if entry.path().extension().is_some_and(|extension| extension == "jnl") {
            journals += metadata.blocks() * 512;
        } else {
            others += metadata.blocks() * 512;
        }
    }
    (journals, others)
}

fn number(script: &str) -> u64 {
    run(script).trim().parse().unwrap()
}

impl Sample {
    /// Of the node as it is.
    pub fn take(cluster: &Cluster) -> Self {
        let (agent, keeper) = (cluster.agent_pid(), cluster.keeper_pid());
        let dir = |name: &str| cluster.path(name).display().to_string();
        let (journals, tables) = store_bytes(&cluster.server.data_dir().join("store"));
        Self(vec![
            ("server MiB", resident(cluster.server.pid())),
            ("store tables MiB", tables >> 20),
            ("store journals MiB", journals >> 20),
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

/// How many of the first and of the last samples are printed.
const PRINTED: usize = 3;

/// Prints the first and the last samples side by side, with the numbers of their rounds.
pub fn print_ends(samples: &[(usize, Sample)]) {
    let last = samples.len().saturating_sub(PRINTED).max(PRINTED).min(samples.len());
    let shown: Vec<_> = samples.iter().take(PRINTED).chain(&samples[last..]).collect();
    let header = shown.iter().map(|(round, _)| format!("{:>10}", format!("round {round}")));
    println!("{:20}{}", "", header.collect::<String>());
    let Some((_, first)) = samples.first() else { return };
    for (at, (name, _)) in first.0.iter().enumerate() {
        let values = shown.iter().map(|(_, sample)| format!("{:>10}", sample.0[at].1));
        println!("{name:20}{}", values.collect::<String>());
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// Compares the first half with the second; growth fails.
pub fn verdict(samples: &[(usize, Sample)]) {
    let (first, second) = samples.split_at(samples.len() / 2);
    let mut grown = Vec::new();
    println!("{:20} {:>10} {:>10} {:>10}", "", "first half", "second", "most");
    for (at, (name, _)) in samples[0].1.0.iter().enumerate() {
        let values = |samples: &[(usize, Sample)]| {
            samples.iter().map(|(_, sample)| sample.0[at].1).collect::<Vec<_>>()
        };
        let (before, after) = (median(values(first)), median(values(second)));
        println!("{name:20} {before:>10} {after:>10} {:>10}", values(samples).into_iter().max().unwrap());
        let allowed = match *name {
            name if MEMORY.contains(&name) => before + before / 5 + 4,
            "server MiB" => before + before / 5 + SERVER,
            "store tables MiB" => before + before / 4 + TABLES,
            "store journals MiB" => JOURNALS,
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
