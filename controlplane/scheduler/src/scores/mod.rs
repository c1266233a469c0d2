//! Which of the possible nodes is best. Every score is 0 to [`FULL`]; weights are upstream's.

// How much is left, how evenly.
pub mod allocation;
// Preferred node affinity, tolerated taints, images that are there.
pub mod preferred_affinity;
// Even spread and preferred pod_affinity, by domain.
pub mod topology;

/// The best score. Finer than upstream's 100, so that nodes that differ a little are told apart.
pub const FULL: i64 = 100_000;

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
}

impl Weights {
    /// Nothing counts.
    pub const NONE: Self =
        Self { taints: 0, node_affinity: 0, spread: 0, pod_affinity: 0, fit: 0, balance: 0, images: 0 };
}

impl Default for Weights {
    fn default() -> Self {
        Self { taints: 3, node_affinity: 2, spread: 2, pod_affinity: 2, fit: 1, balance: 1, images: 1 }
    }
}
