//! Pod status: generation and reports.

// What a status is made from.
pub mod facts;
// The whole status.
pub mod generate;
// CPU and memory that were given, and that are there.
pub mod sizes;
// States of containers.
pub mod containers;
// The phase, from states of containers.
pub mod phase;
// The conditions the node owns.
pub mod conditions;
// The difference of two statuses as a patch.
pub mod patch;
// A request about a pod.
mod request;
// Sending it.
pub mod report;
