//! Network policies of the pods on this node, in nftables: nothing at all until the cluster has a policy, and from then
//! on in place before a pod's first packet.

// What policies say.
pub mod model;
// Reading it from the API.
mod wire;
// Policies to rules. Pure.
pub mod compile;
// One entry of a policy to rules. Pure.
mod rule;
// The ports of an entry. Pure.
mod ports;
// How much policies may take of the node. Pure.
mod limits;
// Rules as data, and the changes between them.
pub mod ruleset;
// Bridged packets through the node's rules.
mod bridged;
// Keeping the kernel's rules right.
mod keep;

pub use keep::{NOT_ENFORCED, Policies, PolicyError, starting};

#[cfg(test)]
mod tests;
