//! Connections between pods: ports, policies.

// NetworkPolicies, by their definition.
pub mod policy;
// Addresses and blocks of addresses.
mod address;
// From a source to a destination.
pub mod connection;
