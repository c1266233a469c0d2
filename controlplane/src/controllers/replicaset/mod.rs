//! ReplicaSets and ReplicationControllers: as many pods as wanted.

// The next step.
pub mod plan;
