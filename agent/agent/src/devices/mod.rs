//! Device plugins: extended resources of the node, and the devices that containers are given.
//!
//! A device belongs to at most one pod. It is reserved before its plugin is asked ([`state`]), and the allocation is on disk
//! ([`allocations`]) before the container is made, so that neither a restart of the agent nor one of the plugin gives it twice.
#![allow(
    clippy::disallowed_methods,
    reason = "no pod can write to these directories, and an administrator may have linked them"
)]

// Names and paths.
pub mod names;
// The devices that plugins have.
pub mod inventory;
// The devices that pods have, on disk.
pub mod allocations;
// Why a container does not get its devices.
pub mod allocate_error;
// Both, and what is being allocated.
pub mod state;
// Devices for a pod: the calls to plugins.
pub mod allocate;
// What a container needs to use its devices.
pub mod run_options;
// Plugins that register themselves.
pub mod registration;

pub use allocate::Spare;
pub use allocate_error::AllocateError;
pub use run_options::RunOptions;
pub use state::Devices;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
