//! Events about policies that are not enforced as written.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Node, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kernel::KernelError;
use crate::cluster::Name;
use crate::events::{Kind, Recorder};

/// What people are told where policies cannot be read.
pub const NOT_ENFORCED: &str = "The API server does not let this node read network policies: its pods start without them. \
    The group system:nodes needs the role coracle:node-network.";

/// What people are told about a policy that is too large.
const TOO_LARGE: &str = "The policy, or all policies of its namespace together, have too many peers, exceptions and ports \
    for a node: the pods that it selects are isolated, but nothing that it allows is let through.";

/// This node may not read policies.
pub(super) fn not_enforced(events: &Recorder, node: &str) {
    let metadata = ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() };
    let node = Node { metadata, ..Node::default() };
    events.node(&node, Kind::Warning, "NetworkPoliciesNotEnforced", NOT_ENFORCED);
}

/// A policy is beyond the limits.
pub(super) fn too_large(events: &Recorder, policy: &Name) {
    tracing::warn!(%policy, "network policy is too large and allows nothing");
    events.record(reference(policy), Kind::Warning, "NetworkPolicyTooLarge", TOO_LARGE);
}

/// The kernel refuses the rules of a policy.
pub(super) fn refused(events: &Recorder, node: &str, policy: &Name, error: &KernelError) {
    tracing::warn!(%policy, error = %causes::chain(error), "kernel rejected the rules of a network policy, which allows nothing");
    let message = format!(
        "The kernel of node {node} refuses the rules of the policy ({error}): the pods that it selects there are isolated, \
        but nothing that it allows is let through. The node tries again."
    );
    events.record(reference(policy), Kind::Warning, "NetworkPolicyRefused", message);
}

fn reference(policy: &Name) -> ObjectReference {
    ObjectReference {
        kind: Some("NetworkPolicy".into()),
        api_version: Some("networking.k8s.io/v1".into()),
        namespace: Some(policy.namespace.to_string()),
        name: Some(policy.name.to_string()),
        ..ObjectReference::default()
    }
}
