//! Labels and namespace of the identity Leases of API servers.

/// Label that marks identity Leases.
pub const IDENTITY: &str = "apiserver.kubernetes.io/identity";

/// Namespace of the Leases.
pub const NAMESPACE: &str = "kube-system";

/// Value of the label for API servers.
pub const SERVER: &str = "kube-apiserver";
