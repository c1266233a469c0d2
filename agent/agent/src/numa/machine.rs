//! The NUMA nodes of the machine, from sysfs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::distances::Distances;
use super::nodes::Nodes;

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineNode {
    /// Numbers of its cpus.
    pub cpus: BTreeSet<u32>,
    /// Bytes of its memory.
    pub memory: u64,
}

/// The nodes of the machine, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The nodes.
    pub nodes: BTreeMap<u32, MachineNode>,
    /// How far they are from each other.
    pub distances: Distances,
}

impl Machine {
    /// Reads the nodes below a directory such as `/sys/devices/system`. A kernel without NUMA has one node with everything.
    pub fn read(system: &Path) -> Self {
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let numbers = parse_list(&read(system.join("node/online")));
        let (mut nodes, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for number in &numbers {
            let dir = system.join(format!("node/node{number}"));
            let cpus = parse_list(&read(dir.join("cpulist")));
            nodes.insert(*number, MachineNode { cpus, memory: memory(&read(dir.join("meminfo"))) });
            let words = read(dir.join("distance"));
            rows.insert(*number, words.split_whitespace().map_while(|word| word.parse().ok()).collect());
        }
        if nodes.is_empty() {
            let cpus = parse_list(&read(system.join("cpu/online")));
            nodes.insert(0, MachineNode { cpus, memory: 0 });
        }
        let numbers: Vec<u32> = numbers.into_iter().collect();
        Self { nodes, distances: Distances::new(&numbers, &rows) }
    }

    /// All nodes.
    pub fn all(&self) -> Nodes {
        Nodes::of(self.nodes.keys().copied())
    }

    /// The cpus of some nodes.
    pub fn cpus(&self, of: Nodes) -> BTreeSet<u32> {
        let nodes = self.nodes.iter().filter(|(number, _)| of.has(**number));
        nodes.flat_map(|(_, node)| &node.cpus).copied().collect()
    }
}

/// `MemTotal` of `Node 0 MemTotal:  16318232 kB`.
fn memory(text: &str) -> u64 {
    let line = text.lines().find(|line| line.contains("MemTotal:")).unwrap_or_default();
    let number = line.split_whitespace().rev().nth(1).and_then(|word| word.parse::<u64>().ok());
    number.unwrap_or_default().saturating_mul(1024)
}

/// Parses `0-3,8`; invalid parts are skipped, and so are ranges that no machine has.
pub(crate) fn parse_list(text: &str) -> BTreeSet<u32> {
    let part = |part: &str| -> Option<std::ops::RangeInclusive<u32>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last <= u32::from(u16::MAX)).then_some(first..=last)
    };
    text.split(',').filter_map(part).flatten().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_are_read_from_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-7\n");
        let flat = Machine::read(dir.path());
        assert_eq!(flat.cpus(flat.all()), (0..8).collect());
        write("node/online", "0-1\n");
        write("node/node0/cpulist", "0-1,4-5\n");
        write("node/node0/meminfo", "Node 0 MemTotal:       16777216 kB\nNode 0 MemFree: 1 kB\n");
        write("node/node1/cpulist", "2-3,6-7\n");
        let machine = Machine::read(dir.path());
        assert_eq!(machine.all(), Nodes::of([0, 1]));
        assert_eq!(machine.cpus(Nodes::of([1])), [2, 3, 6, 7].into());
        assert_eq!((machine.nodes[&0].memory, machine.nodes[&1].memory), (16 << 30, 0));
        assert!(!machine.distances.is_complete(machine.all()));
        write("node/node0/distance", "10 21\n");
        write("node/node1/distance", "21 10\n");
        let machine = Machine::read(dir.path());
        assert!(machine.distances.is_complete(machine.all()));
        assert_eq!(machine.distances.sum(machine.all()), 62);
        assert_eq!(parse_list("x,1-,2,0-4294967295"), [2].into());
    }
}
