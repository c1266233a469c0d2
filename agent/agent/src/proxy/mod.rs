//! The service proxy: connections to services are led to endpoints by nftables, in one table of our own.
//!
//! A packet is looked up by address, protocol and port in a verdict map, which leads to the chain of its class: services
//! with as many endpoints, whose clients stay as long, share one. The chain draws a number; what the packet was recognised
//! by and the number lead to an endpoint in a second map. Services and endpoints are only elements of these maps: neither a
//! packet nor a change costs more when there are more services. Only the first packet of a connection comes this way.

// Which endpoints take connections here.
pub mod pick;
// What a service needs in the kernel.
pub mod plan;
// The table: maps and chains.
mod rules;
// What is in the table, and how it changes.
mod state;
// Switches of the kernel.
mod sysctl;
// Connections that lead nowhere any more.
mod stale;
// Whether the node has endpoints, by HTTP.
mod health;
// The task.
mod run;

pub use run::{Proxy, ProxyError};
