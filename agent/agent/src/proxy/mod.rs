//! The service proxy: translates connections to Services with nftables, in a table of its own.
//!
//! A packet is looked up by address, protocol and port in a verdict map, which leads to the chain of its class: services
//! with as many endpoints, whose clients stay as long, share one. The chain draws a number; what the packet was recognised
//! by and the number lead to an endpoint in a second map. Services and endpoints are only elements of these maps: neither a
//! packet nor a change costs more when there are more services. Only the first packet of a connection comes this way.

// Which endpoints take connections here.
pub mod pick;
// Leaves out API servers that this node found dead. Pure.
mod live_servers;
// Desired state of a Service. Pure.
pub mod plan;
// The table: maps and chains.
mod rules;
// Installed state and incremental changes.
mod state;
// Kernel settings.
mod sysctl;
// Removes stale conntrack entries.
mod stale;
// The listener of health checks.
mod health_listener;
// Health checks of the proxy itself.
pub mod healthz;
// `healthCheckNodePort` server.
mod health;
// Records how long changes take.
pub mod trace;
// The task.
mod run;

pub use run::{Proxy, ProxyError};
