//! Containers: create, start, stop, remove.

// From a configuration to a bundle.
mod create;
// What the pod mounts.
mod volumes;
// What the specification needs to know of pod and image.
mod facts;
// The OCI runtime at work.
mod start;
// The first one of a sandbox, made beside its network.
pub(super) mod first;
// Stopped, killed, removed.
mod end;
// Resources of a running one.
mod update;
// Signals by name.
mod signal;

pub(super) use self::signal::signal_named;

/// Directories of a bundle in which something is mounted.
pub(super) const MOUNTS: [&str; 3] = ["images", "mapped/layers", "mapped/mounts"];
