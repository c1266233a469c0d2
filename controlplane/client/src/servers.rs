//! The Leases by which servers know each other.

/// The label of identity Leases.
pub const IDENTITY: &str = "apiserver.kubernetes.io/identity";

/// Where the Leases are.
pub const NAMESPACE: &str = "kube-system";

/// What the label says on those of API servers.
pub const SERVER: &str = "kube-apiserver";
