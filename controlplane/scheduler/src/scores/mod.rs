//! Which of the possible nodes is best. Every score is 0 to [`FULL`]; weights are upstream's.

// How much is left, how evenly.
pub mod allocation;
// Preferred node affinity, tolerated taints, images that are there.
pub mod preferred_affinity;
// Even spread and preferred pod_affinity, by domain.
pub mod topology;

/// The best score. Finer than upstream's 100, so that nodes that differ a little are told apart.
pub const FULL: i64 = 100_000;

/// How node usage is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// Emptier is better.
    #[default]
    LeastAllocated,
    /// Fuller is better.
    MostAllocated,
}

/// How much each score counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Weights {
    pub taints: i64,
    pub node_affinity: i64,
    pub spread: i64,
    pub pod_affinity: i64,
    pub fit: i64,
    pub balance: i64,
    pub images: i64,
    pub packing: Packing,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            taints: 3,
            node_affinity: 2,
            spread: 2,
            pod_affinity: 2,
            fit: 1,
            balance: 1,
            images: 1,
            packing: Packing::LeastAllocated,
        }
    }
}
