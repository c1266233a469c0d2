//! Connections to node agents: by address, or through a tunnel that the agent opened. Other endpoints in the cluster are
//! dialled through the agent of their node.

// Forwards HTTP exchanges, upgrades included.
pub mod forward;
// Reverse tunnels of agents, for nodes that cannot be dialled.
pub mod tunnel;
// Addresses that the server may connect to.
pub mod address;
// TLS to node agents.
pub mod node_tls;
// Connections to node agents.
pub mod agent;
// Dials endpoints in the cluster.
pub mod dial;
// Local volumes of nodes.
pub mod volumes;
