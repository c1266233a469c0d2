//! Chooses cpus as the options of the policy say. Pure.

use super::Set;
use super::distribute::distributed;
use super::pack::packed;
use super::topology::Topology;
use crate::config::cpu_options::CpuOptions;

/// Chooses `count` of the free cpus; nothing if there are too few.
pub fn take(topology: &Topology, free: &Set, count: usize, options: CpuOptions) -> Option<Set> {
    if !options.across_nodes {
        return packed(topology, free, count, options.prefer_uncore_cache);
    }
    // Whole cores where the node gives only such.
    let group = if options.full_cores_only { topology.threads() } else { 1 };
    distributed(topology, free, count, group)
}
