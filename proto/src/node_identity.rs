//! Names in certificates between server and agents.

/// The group of API servers towards nodes: it may use the API of nodes and nothing else.
pub const API_CLIENTS: &str = "coracle:kubelet-clients";

/// The group of API servers towards each other; nothing else is for it.
pub const API_SERVERS: &str = "coracle:api-servers";

/// A name that a node can always serve under, because nobody else has it. A node that shares its own name and addresses with
/// an API server asks for this one alone.
pub fn inner_name(node: &str) -> String {
    format!("{node}.node.coracle.internal")
}

/// An annotation of a Node: the hashes of the CAs that its agent trusts, separated by commas.
pub const TRUSTED_CAS: &str = "coracle.dev/trusted-cas";

/// An annotation of a Node: the hashes of the CAs that have signed the certificates that its agent uses, separated by commas.
pub const ISSUING_CAS: &str = "coracle.dev/issuing-cas";
