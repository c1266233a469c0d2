//! The scheduler: assigns pods to nodes.
//!
//! queue → filters → scores → assume → bind. The deciding part ([`place::Placer`], [`queue::Queue`], [`preempt`]) is
//! pure: it changes only its own memory, and the time is passed in. The clocks that it reads are for records: no decision
//! depends on them.
//!
//! May depend on `coracle-informer`, `coracle-client`, `coracle-kinds` and `coracle-expressions`. It does not depend on the API
//! server or the controllers; its tests do.

#![forbid(unsafe_code)]

// The fields of API objects that the scheduler reads.
pub mod wire;
// Why a node is refused.
pub mod rejection;
// Which rules apply to a pod.
pub mod rules;
// Resource quantities.
pub mod resources;
// What counts for a pod that is resized.
pub mod resize;
// What a pod asks for.
pub mod requests;
// Affinity terms and spread constraints: selector, namespaces, topology.
pub mod terms;
// Extended resources of a pod's containers.
pub mod extended_uses;
// Features that nodes declare.
pub mod declared_features;
// A pod as the scheduler sees it.
pub mod pod;
// A node as the scheduler sees it.
pub mod node;
// Node selectors.
pub mod node_selector;
// Pods that match a term, counted per topology domain.
pub mod counts;
// Claims and volumes.
pub mod volumes;
// Claims of devices.
pub mod devices;
// The incremental snapshot of the cluster.
pub mod snapshot;
// How long pods waited in the queue, and for what.
pub mod waits;
// How long pods wait after attempts that failed.
pub mod backoff;
// The scheduling queue: active, backoff, unschedulable, gated.
pub mod queue;
// Profiles: which rules apply to the pods of a scheduler name.
pub mod profile;
// Filters: where a pod can run.
pub mod filters;
// Scores: where a pod runs best.
pub mod scores;
// Identical pods, scheduled as a batch.
pub mod equivalence;
// Chooses the node of the next pod.
pub mod place;
// Preemption.
pub mod preempt;
// Why a pod is pending, per node.
pub mod diagnosis;
// The files that configure it.
pub mod config;
// Processes of the operator that are asked by HTTP.
pub mod extender;
// Event handlers: update the snapshot and the queue.
pub mod event_handlers;
// The span of a scheduling attempt.
pub mod attempt;
// Writes: bindings, conditions, evictions, claims, events.
pub mod writes;
// The scheduling loop.
pub mod run;
// Metrics of scheduling attempts.
pub mod metrics;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod device_run_tests;
#[cfg(test)]
mod extender_tests;
#[cfg(test)]
mod span_tests;

pub use run::{PendingReasons, start};
