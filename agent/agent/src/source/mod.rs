//! Sources of pods and of container events.

// Pods bound to this node.
pub mod api;
// Pods from manifests on this node.
pub mod manifests;
// Mirror pods.
pub mod mirror;
// Orphaned pods.
pub mod orphans;
// Events of the runtime.
pub mod runtime;
