//! Labels, annotations and namespace of the identity Leases of API servers.

/// Label that marks identity Leases.
pub const IDENTITY: &str = "apiserver.kubernetes.io/identity";

/// Namespace of the Leases.
pub const NAMESPACE: &str = "kube-system";

/// Value of the label for API servers.
pub const SERVER: &str = "kube-apiserver";

/// Annotation with host and port that the other API servers reach the server at.
pub const PEER_ADDRESS: &str = "coracle.dev/peer-address";
