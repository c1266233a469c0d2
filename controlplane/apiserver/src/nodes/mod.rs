//! Connections to node agents: by address, or through a tunnel that the agent opened, to this server or to another one. Other endpoints in the cluster are
//! dialled through the agent of their node.

// Forwards HTTP exchanges, upgrades included.
pub mod forward;
// Connections, and HTTP exchanges over them.
pub mod connection;
// Reverse tunnels of agents, for nodes that cannot be dialled.
pub mod tunnel;
// Tunnels that agents keep to other API servers.
pub mod relay;
// Addresses that the server may connect to.
pub mod address;
// TLS to node agents.
pub mod node_tls;
// Where agents are, as Nodes say.
mod agent_address;
// Connections to node agents.
pub mod agent;
// Dials endpoints in the cluster.
pub mod dial;
// Local volumes of nodes.
pub mod volumes;
