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
// Policies that the kernel refuses. Pure.
mod refusal;
// Changing the kernel's rules.
mod kernel;
// Bridged packets through the node's rules.
mod bridged;
// What rules are made from, at one moment.
mod snapshot;
// Telling people about policies that are not enforced as written.
mod tell;
// Keeping the kernel's rules right.
mod keep;

pub use keep::{Policies, PolicyError, starting};
pub use tell::NOT_ENFORCED;

#[cfg(test)]
mod tests;
