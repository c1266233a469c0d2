//! Why a pod's claims keep it from every node.

/// A claim that a pod has to wait for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ClaimError {
    #[error("pod {pod:?}: ResourceClaim not created yet")]
    NotCreated { pod: String },
    #[error("resourceclaim.resource.k8s.io {name:?} not found")]
    NotFound { name: String },
    #[error("resourceclaim {name:?} is being deleted")]
    Deleted { name: String },
    #[error("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)")]
    OfAnotherPod { claim: String, pod: String },
    /// No more pods can share it.
    #[error("resourceclaim in use")]
    InUse,
    #[error("resource claim {claim} is in the process of being allocated")]
    BeingAllocated { claim: String },
    #[error("request {request}: device class {class} does not exist")]
    NoClass { request: String, class: String },
    #[error(
        "resource claim {claim}, request {request}: admin access to devices requires the `{label}: true` label on the containing namespace",
        label = super::ADMIN_ACCESS
    )]
    AdminAccess { claim: String, request: String },
}
