//! What a machine is checked for.

use clap::ValueEnum;

/// Role of the machine in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Server and nodes in namespaces of their own, as `coracle up` starts them.
    Up,
    /// The control plane.
    Server,
    /// A node.
    Agent,
}
