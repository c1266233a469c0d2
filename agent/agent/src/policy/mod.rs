//! Network policies of the pods on this node, in nftables: nothing at all until the cluster has a policy, and from then
//! on in place before a pod's first packet.

// Data model.
pub mod model;
// Decodes API objects.
mod wire;
// Inputs of the compiler.
pub mod input;
// Directions of traffic.
pub mod direction;
// Policies to rules. Pure.
pub mod compile;
// One entry of a policy to rules. Pure.
mod rule;
// The ports of an entry. Pure.
mod ports;
// Size limits of policies. Pure.
mod limits;
// Rules as data, and the changes between them.
pub mod ruleset;
// Finds policies that the kernel rejects, by bisection. Pure.
mod bisect;
// Applies rules to nftables.
mod kernel;
// Enables filtering of bridged packets.
mod br_netfilter;
// Inputs of the compiler at one moment.
mod snapshot;
// Events about policies that are not enforced as written.
mod events;
// The task that enforces policies.
mod enforce;

pub use enforce::{Policies, PolicyError, pod_with_addresses};
pub use events::NOT_ENFORCED;

#[cfg(test)]
mod tests;
