//! Connections between pods: ports, policies.

// NetworkPolicies, by their definition.
pub mod policy;
// Addresses and blocks of addresses.
mod address;
// What policies deny.
mod denied;
// From a source to a destination.
pub mod connection;
// What lets a connection pass.
pub mod permitted;
