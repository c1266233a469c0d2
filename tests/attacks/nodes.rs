//! Nodes that want to be more than a node.
