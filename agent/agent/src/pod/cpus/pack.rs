//! Chooses cpus: few NUMA nodes, sockets, caches and cores, those first that have the fewest cpus left. Pure.

use super::Set;
use super::topology::{Level, Topology};

/// Chooses `count` of the free cpus, `by_cache` those that share one; nothing if there are too few.
pub(super) fn packed(topology: &Topology, free: &Set, count: usize, by_cache: bool) -> Option<Set> {
    if free.len() < count {
        return None;
    }
    let mut choice = Choice { topology, free: free.clone(), left: count, taken: Set::new() };
    for level in topology.outer_levels() {
        choice.take_whole(level);
    }
    if by_cache {
        choice.take_by_cache();
    }
    choice.take_whole(Level::Core);
    choice.take_threads();
    (choice.left == 0).then_some(choice.taken)
}

/// Groups that have some of these cpus, in the order in which they are used: in each group of the levels above, those with the fewest
/// of these cpus first.
pub(super) fn sorted(topology: &Topology, free: &Set, level: Level) -> Vec<u32> {
    let mut within = vec![free.clone()];
    let mut numbers = Vec::new();
    for level in topology.path(level) {
        let counts = topology.counts(free, level);
        let mut groups: Vec<u32> = Vec::new();
        for cpus in &within {
            let mut here: Vec<(usize, u32)> =
                topology.counts(cpus, level).into_keys().map(|number| (counts[&number], number)).collect();
            here.sort_unstable();
            groups.extend(here.into_iter().map(|(_, number)| number));
        }
        // A cache of several nodes is found in each of them.
        let mut seen = Set::new();
        groups.retain(|number| seen.insert(*number));
        within = groups
            .iter()
            .map(|number| topology.group(level, *number).intersection(free).copied().collect())
            .collect();
        numbers = groups;
    }
    numbers
}

/// Cpus that are being chosen.
struct Choice<'a> {
    topology: &'a Topology,
    /// Those that can be taken.
    free: Set,
    /// How many are missing.
    left: usize,
    taken: Set,
}

impl Choice<'_> {
    fn take(&mut self, cpus: Set) {
        self.left = self.left.saturating_sub(cpus.len());
        self.free.retain(|cpu| !cpus.contains(cpu));
        self.taken.extend(cpus);
    }

    /// Takes groups that are free as a whole, as long as a whole one is needed.
    fn take_whole(&mut self, level: Level) {
        if self.left == 0 {
            return;
        }
        for number in sorted(self.topology, &self.free, level) {
            let all = self.topology.group(level, number);
            if all.len() <= self.left && all.is_subset(&self.free) {
                self.take(all);
            }
        }
    }

    /// Takes whole groups that share a cache, and the rest from one group.
    fn take_by_cache(&mut self) {
        let groups = sorted(self.topology, &self.free, Level::Uncore);
        self.take_whole(Level::Uncore);
        for number in groups {
            if self.left == 0 {
                return;
            }
            let cpus = self.part_of_cache(number);
            if cpus.len() == self.left {
                self.take(cpus);
            }
        }
    }

    /// As many cpus as are missing, of the first cores of a group; fewer if these have fewer.
    fn part_of_cache(&self, number: u32) -> Set {
        let here: Set =
            self.topology.group(Level::Uncore, number).intersection(&self.free).copied().collect();
        let cores = self.left.div_ceil(self.topology.threads());
        let cores = self.topology.counts(&here, Level::Core).into_keys().take(cores);
        let cpus =
            cores.flat_map(|core| self.topology.group(Level::Core, core)).filter(|cpu| here.contains(cpu));
        cpus.take(self.left).collect()
    }

    /// Takes threads, those of partly used cores first.
    fn take_threads(&mut self) {
        if self.left == 0 {
            return;
        }
        for core in sorted(self.topology, &self.free, Level::Core) {
            let threads = self
                .topology
                .group(Level::Core, core)
                .intersection(&self.free)
                .take(self.left)
                .copied()
                .collect();
            self.take(threads);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::parse_list;

    fn check(topology: &Topology, by_cache: bool, table: &[(&str, usize, &str)]) {
        for (free, count, want) in table {
            let taken = packed(topology, &parse_list(free), *count, by_cache);
            assert_eq!(taken, Some(parse_list(want)), "{count} of {free}, {by_cache}");
        }
        assert_eq!(packed(topology, &[0, 1].into(), 3, by_cache), None);
        assert_eq!(packed(topology, &[0, 1].into(), 0, by_cache), Some(Set::new()));
    }

    #[test]
    fn few_sockets_and_whole_cores() {
        // One socket of four cores with two threads: 0,4 1,5 2,6 3,7.
        let one = Topology::of(1, 1, 1, 4, 2);
        check(
            &one,
            false,
            &[
                ("0-7", 1, "0"),
                ("0-7", 2, "0,4"),
                ("1-7", 2, "1,5"),
                // A thread of a core that is in use already.
                ("1-7", 1, "4"),
                ("1-7", 3, "1,4-5"),
                ("1-7", 7, "1-7"),
                ("0-7", 8, "0-7"),
            ],
        );
        // Two sockets of three cores with two threads: 0-2,6-8 and 3-5,9-11.
        let two = Topology::of(2, 1, 1, 3, 2);
        check(
            &two,
            false,
            &[
                ("0-11", 6, "0-2,6-8"),
                // The socket with fewer free cpus is filled first.
                ("0-2,4-8,10-11", 2, "4,10"),
                ("0-2,4-8,10-11", 1, "4"),
                // A whole socket, although the other one is in use.
                ("0-11", 8, "0-3,6-9"),
                ("1-11", 6, "3-5,9-11"),
                ("1-11", 7, "3-6,9-11"),
            ],
        );
    }

    #[test]
    fn nodes_within_sockets_and_sockets_within_nodes() {
        // Two sockets of two nodes of two cores: nodes 0-1, 2-3, 4-5, 6-7.
        let nodes = Topology::of(2, 2, 1, 2, 1);
        check(
            &nodes,
            false,
            &[
                ("0-7", 2, "0-1"),
                ("0-7", 4, "0-3"),
                // The rest of a socket that is in use, by whole nodes.
                ("0-5", 2, "4-5"),
                ("1-7", 2, "2-3"),
                ("1-7", 3, "1-3"),
                ("1-7", 5, "1,4-7"),
            ],
        );
        // One node with two sockets of two cores: 0-1, 2-3.
        let mut sockets = Topology::of(2, 1, 1, 2, 1);
        sockets.places.values_mut().for_each(|place| place.node = 0);
        check(&sockets, false, &[("0-3", 2, "0-1"), ("1-3", 2, "2-3"), ("1-3", 1, "1")]);
    }

    #[test]
    fn caches_are_preferred_where_asked_for() {
        // One socket with three caches of two cores with two threads: 0-1,6-7 2-3,8-9 4-5,10-11.
        let caches = Topology::of(1, 1, 3, 2, 2);
        check(
            &caches,
            true,
            &[
                ("0-11", 4, "0-1,6-7"),
                ("0-11", 8, "0-3,6-9"),
                // A whole group, and a part of another one.
                ("0-11", 6, "0-2,6-8"),
                // The group with the fewest cpus that has enough.
                ("1-5,7-11", 2, "1,7"),
                ("1-5,7-11", 4, "2-3,8-9"),
                ("1-5,7-11", 3, "2-3,8"),
                // No group has enough.
                ("1,3,5,7,9,11", 4, "1,3,7,9"),
            ],
        );
        // Without the option cores of different groups are as good.
        check(&caches, false, &[("1-5,7-11", 4, "1-2,7-8"), ("1-5,7-11", 3, "1-2,7")]);
        // No two cores share less than the socket.
        let plain = Topology::of(2, 1, 1, 2, 2);
        // The first core that has a free thread counts, even if it has too few: another group is taken then, as by kubelets.
        check(&plain, true, &[("0-7", 2, "0,4"), ("1-7", 2, "2,6"), ("1-7", 4, "2-3,6-7")]);
    }
}
