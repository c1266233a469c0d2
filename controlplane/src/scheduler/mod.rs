//! The scheduler: pods without a node get one.
//!
//! queue → filters → scores → assume → bind. The deciding part ([`place::Placer`], [`queue::Queue`], [`preempt`]) is
//! pure: it changes only its own memory and is told the time.

// The parts of API objects that are read.
pub mod wire;
// Amounts of resources.
pub mod resources;
// Which pods a rule is about.
pub mod terms;
// A pod as the scheduler sees it.
pub mod pod;
// A node as the scheduler sees it.
pub mod node;
// How many pods a rule is about, per domain.
pub mod counts;
// Claims and volumes.
pub mod volumes;
// The cluster, changed in place by events.
pub mod snapshot;
// Pods that wait.
pub mod queue;
// Where a pod may run.
pub mod filters;
// Where it runs best.
pub mod scores;
// Pods that are alike, scheduled as a batch.
pub mod class;
// Where the next pod goes.
pub mod place;
// Making room.
pub mod preempt;
// Why a pod waits.
pub mod why;
// Profiles and weights.
pub mod config;
// From changes of objects to the snapshot and the queue.
pub mod intake;
// What is written.
pub mod writes;
// The loop.
pub mod run;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod run_tests;

pub use run::{Verdicts, start};
