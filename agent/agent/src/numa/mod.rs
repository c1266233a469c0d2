//! Topology manager: which NUMA nodes a container gets its cpus, memory and devices from. Pure, except for reading the machine.
//!
//! Each resource gives hints: sets of nodes that have enough of it. Merging takes one hint of each resource, and the policy says
//! whether what comes out is good enough to admit the pod.

// Sets of nodes.
mod nodes;
// How far nodes are from each other.
mod distances;
// The nodes of the machine.
mod machine;
// Hints of a resource.
mod hints;
// Merging hints.
mod merge;

pub use distances::Distances;
pub use hints::{Hint, Hints, hints};
pub(crate) use machine::parse_list;
pub use machine::{Machine, MachineNode};
pub use merge::{MOST_NODES, Policy, Scope, Verdict, merge};
pub use nodes::Nodes;
