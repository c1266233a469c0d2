//! Containers: create, start, stop, remove.

// From a configuration to a bundle.
mod create;
// Mounts of volumes and images.
mod volumes;
// Inputs of the OCI configuration.
mod facts;
// Starts containers with the OCI runtime.
mod start;
// Creates the first container in parallel with the sandbox's network.
pub(super) mod precreate;
// Stop, kill, remove.
mod stop;
// Resource updates.
mod update;
// Signals by name.
mod signal;

pub(super) use self::signal::signal_named;

/// Directories of a bundle in which something is mounted.
pub(super) const MOUNTS: [&str; 3] = ["images", "mapped/layers", "mapped/mounts"];
