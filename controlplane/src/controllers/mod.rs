//! Control loops: each a pure core that plans and a thin shell that reads caches and writes through the client.

// API timestamps.
pub mod time;
// Label selectors.
pub mod selector;
// Numbers or percentages.
pub mod amount;
// Status conditions.
pub mod conditions;
// Pod templates: equality and hash.
pub mod template;
// Pods as controllers see them.
pub mod pod;
// Adoption and release.
pub mod claim;
// The work queue.
pub mod queue;
// As many pods as wanted.
pub mod replicaset;
// ReplicaSets per template.
pub mod deployment;
// Objects for tests.
#[cfg(test)]
mod testing;
