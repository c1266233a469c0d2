//! The Node object: registration, status, lease, eviction.

// Properties of the machine.
pub mod machine;
// The Node object as this node registers it.
pub mod object;
// Conditions and allocatable resources.
pub mod status;
// The Lease.
pub mod lease;
// The CNI configuration for the pod CIDRs.
pub mod cni_conf;
// Free resources.
pub mod eviction_signals;
// Reads thresholds of evictions.
pub mod eviction_parse;
// Which thresholds are crossed, and since when.
mod eviction_watch;
// What evictions measure and act on.
mod eviction_parts;
// Eviction of pods under resource pressure.
pub mod eviction;
// Container log rotation.
pub mod log_rotation;
// The task that registers the node and reports its status.
pub mod reconcile;
// Enforces local storage limits of pods.
pub mod local_storage;
// Graceful node shutdown.
pub mod shutdown;
