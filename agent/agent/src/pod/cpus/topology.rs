//! Where cpus are: which of them share a core, a cache, a socket, a NUMA node. Pure.

use std::collections::BTreeMap;

use super::Set;

/// Groups of cpus, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Threads of a core.
    Core,
    /// Cores that share a cache of the last level.
    Uncore,
    /// Cores of a processor.
    Socket,
    /// Cores that are near to the same memory.
    Node,
}

/// The groups of a cpu. Cores and caches have the number of their first cpu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its core.
    pub core: u32,
    /// Its last level cache; its socket if the whole NUMA node shares one.
    pub uncore: u32,
    /// Its processor.
    pub socket: u32,
    /// Its NUMA node.
    pub node: u32,
}

impl Place {
    /// The group of a level.
    pub fn at(self, level: Level) -> u32 {
        match level {
            Level::Core => self.core,
            Level::Uncore => self.uncore,
            Level::Socket => self.socket,
            Level::Node => self.node,
        }
    }
}

/// The cpus of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Groups by cpu.
    pub places: BTreeMap<u32, Place>,
}

impl Topology {
    /// All cpus.
    pub fn cpus(&self) -> Set {
        self.places.keys().copied().collect()
    }

    /// The cpus of a group.
    pub fn group(&self, level: Level, number: u32) -> Set {
        self.places.iter().filter(|(_, place)| place.at(level) == number).map(|(cpu, _)| *cpu).collect()
    }

    /// The numbers of all groups.
    pub fn groups(&self, level: Level) -> Set {
        self.places.values().map(|place| place.at(level)).collect()
    }

    /// How many of the cpus each group has; groups without any are left out.
    pub fn counts(&self, cpus: &Set, level: Level) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for place in cpus.iter().filter_map(|cpu| self.places.get(cpu)) {
            *counts.entry(place.at(level)).or_default() += 1;
        }
        counts
    }

    /// Threads per core, at least one. Of machines with different cores it is the average, rounded down, as for kubelets.
    pub fn threads(&self) -> usize {
        (self.places.len() / self.groups(Level::Core).len().max(1)).max(1)
    }

    /// These cpus, and those that share a core with one of them.
    pub fn with_siblings(&self, cpus: &Set) -> Set {
        let cores = self.counts(cpus, Level::Core);
        self.places.iter().filter(|(_, place)| cores.contains_key(&place.core)).map(|(cpu, _)| *cpu).collect()
    }

    /// Nodes and sockets, the larger ones first: nodes are within sockets if there are more of them.
    pub fn outer_levels(&self) -> [Level; 2] {
        let nodes_first = self.groups(Level::Socket).len() >= self.groups(Level::Node).len();
        if nodes_first { [Level::Node, Level::Socket] } else { [Level::Socket, Level::Node] }
    }

    /// The levels that lead to one, the outermost first.
    pub fn path(&self, to: Level) -> Vec<Level> {
        let outer = self.outer_levels();
        // Caches are looked for within nodes.
        let last = if to == Level::Uncore { Level::Node } else { to };
        let end = outer.iter().position(|level| *level == last).map_or(outer.len(), |at| at + 1);
        let below = (!outer.contains(&to)).then_some(to);
        outer[..end].iter().copied().chain(below).collect()
    }
}

#[cfg(test)]
impl Topology {
    /// A machine whose cores are numbered one after the other, first all first threads: `sockets` processors of `nodes` NUMA nodes of
    /// `caches` groups of `cores` cores of `threads` threads.
    pub fn of(sockets: u32, nodes: u32, caches: u32, cores: u32, threads: u32) -> Self {
        let all = sockets * nodes * caches * cores;
        let place = |cpu: u32| {
            let core = cpu % all;
            let cache = core / cores;
            let node = cache / caches;
            (cpu, Place { core, uncore: cache * cores, socket: node / nodes, node })
        };
        Self { places: (0..all * threads).map(place).collect() }
    }
}
