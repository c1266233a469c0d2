//! Certificate signing requests as the API has them, and the names of their signers.

use coracle_fields::certificates::v1;
use coracle_fields::fields;
use coracle_fields::meta::ObjectMeta;
use coracle_informer::conditions::Condition;
use serde_json::Value;

/// Signs client certificates.
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Signs client certificates of nodes.
pub(super) const NODE_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs serving certificates of nodes.
pub(super) const NODE_SERVING: &str = "kubernetes.io/kubelet-serving";

fields! {
    pub(super) struct Request: v1::CertificateSigningRequest {
        pub(super) metadata: Metadata,
        pub(super) spec: Spec,
        pub(super) status: Status,
    }

    pub(super) struct Metadata: ObjectMeta {
        pub(super) creation_timestamp: Option<String>,
    }

    #[derive(Debug, Clone)]
    pub(super) struct Spec: v1::CertificateSigningRequestSpec {
        pub(super) request: String,
        pub(super) signer_name: String,
        pub(super) usages: Vec<String>,
        pub(super) expiration_seconds: Option<u64>,
        pub(super) username: String,
        pub(super) uid: String,
        pub(super) groups: Vec<String>,
        pub(super) extra: Value,
    }

    pub(super) struct Status: v1::CertificateSigningRequestStatus {
        pub(super) certificate: String,
        pub(super) conditions: Vec<Condition>,
    }
}
