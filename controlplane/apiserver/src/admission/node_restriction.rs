//! NodeRestriction: a node may change only its own Node, its Lease and its pods. It cannot set protected labels or
//! taints on itself, and cannot request tokens or certificates of others.

use super::token_audience::names_audience;
use super::{Attributes, Operation, Phase, Plugin};
use crate::authz::graph::references;
use crate::authz::{Authorizer, Decision};
use crate::request_info::RequestInfo;
use crate::verb::Verb;
use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_fields::authentication::v1::TokenRequest;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::core::v1::{Node, PersistentVolumeClaim, Pod};
use coracle_fields::meta::{ObjectMeta, PartialObjectMetadata};
use coracle_fields::resource::v1::ResourceSlice;
use coracle_fields::{Schema as _, View};
use coracle_proto::status::ApiError;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

const MIRROR: &str = "kubernetes.io/config.mirror";
/// Labels in Kubernetes' own name spaces that nodes set on themselves.
const LABELS: [&str; 14] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.kubernetes.io/region",
    "failure-domain.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Verb of the permission to request tokens for an audience, which takes the place of the resource.
const REQUEST_AUDIENCE: &str = "request-serviceaccounts-token-audience";

/// The plugin.
pub struct NodeRestriction(pub Arc<dyn Authorizer>);

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, at: &Attributes<'_>, phase: Phase) -> bool {
        phase == Phase::Validate && at.user.in_group("system:nodes")
    }

    async fn validate(&self, at: &mut Attributes<'_>, object: &Value) -> Result<(), ApiError> {
        if !at.user.in_group("system:nodes") {
            return Ok(());
        }
        let Some(node) = at.user.node().filter(|node| !node.is_empty()).map(str::to_owned) else {
            // A component in the nodes' group that is no node of its own is bound by its roles.
            return Ok(());
        };
        let node = node.as_str();
        match (at.kind.group.as_str(), at.kind.plural.as_str(), at.subresource) {
            ("", "pods", "") => pod(at, node, object),
            ("", "pods", "status") => pod_status(at, node, object),
            ("", "pods", "eviction") => eviction(at, node),
            ("", "pods", sub) => Err(at.forbidden(format!(
                "unexpected pod subresource {sub:?}, only 'status' and 'eviction' are allowed"
            ))),
            ("", "nodes", _) => node_object(at, node, object),
            ("", "persistentvolumeclaims", "status") => claim_status(at, node, object),
            ("", "persistentvolumeclaims", _) => Err(at.forbidden("may only update PVC status")),
            ("", "serviceaccounts", "token") => match token(at, node, object)? {
                None => Ok(()),
                Some(audience) => self.authorize_audience(at, &audience).await,
            },
            ("coordination.k8s.io", "leases", _) => lease(at, node, object),
            ("storage.k8s.io", "csinodes", _) => csi_node(at, node, object),
            ("resource.k8s.io", "resourceslices", _) => slice(at, node, object),
            ("certificates.k8s.io", "certificatesigningrequests", "") => request(at, node, object),
            _ => Ok(()),
        }
    }
}

impl NodeRestriction {
    /// Whether the node may request tokens of the service account for an audience that no volume of the pod names.
    async fn authorize_audience(&self, at: &Attributes<'_>, audience: &str) -> Result<(), ApiError> {
        let request = RequestInfo {
            verb: Verb::Custom(REQUEST_AUDIENCE.into()),
            is_resource: true,
            version: "v1".into(),
            namespace: at.namespace.into(),
            resource: audience.into(),
            name: at.name.into(),
            ..RequestInfo::default()
        };
        let (node, found) = (&at.user.name, format!("audience {audience:?} not found in pod spec volume"));
        match self.0.authorize(at.user, &request).await {
            Decision::Allow => Ok(()),
            Decision::Failed(why) | Decision::Contradiction(why) => Err(at.forbidden(format!(
                "{found}, error authorizing {node} to request tokens for this audience: {why}"
            ))),
            Decision::Deny(_) | Decision::NoOpinion(_) => Err(at
                .forbidden(format!("{found}, {node} is not authorized to request tokens for this audience"))),
        }
    }
}

/// The name of the object: on creation it stands in the object only.
fn name_of<'a>(at: &Attributes<'a>, object: &'a Value) -> &'a str {
    if at.name.is_empty() { PartialObjectMetadata::of(object).metadata().name().text() } else { at.name }
}

fn node_of_pod(at: &Attributes<'_>, name: &str) -> Result<(String, String), ApiError> {
    let kind = at.api.objects().registry.resource("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let pod = at.api.objects().cached(&kind, at.namespace, name)?;
    let node = pod.doc().view::<Pod>().spec().node_name().text().to_owned();
    Ok((node, pod.meta.uid.clone()))
}

fn pod(at: &Attributes<'_>, node: &str, pod: &Value) -> Result<(), ApiError> {
    match at.operation {
        Operation::Create => mirror_pod(at, node, pod),
        Operation::Delete if node_of_pod(at, at.name)?.0 == node => Ok(()),
        Operation::Delete => {
            Err(at.forbidden(format!("node {node:?} can only delete pods with spec.nodeName set to itself")))
        }
        other => Err(at.forbidden(format!(
            "unexpected operation {:?}, node {node:?} can only create and delete mirror pods",
            other.as_str()
        ))),
    }
}

fn mirror_pod(at: &Attributes<'_>, node: &str, object: &Value) -> Result<(), ApiError> {
    let pod = Pod::of(object);
    if !pod.metadata().annotations().has_key(MIRROR) {
        return Err(at.forbidden(format!(
            "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
        )));
    }
    if pod.spec().node_name().get() != Some(node) {
        let why = format!("node {node:?} can only create pods with spec.nodeName set to itself");
        return Err(at.forbidden(why));
    }
    let owners: Vec<_> = pod.metadata().owner_references().items().collect();
    let owner = match owners.as_slice() {
        [owner] => owner,
        [] => {
            let why = format!("node {node:?} can only create pods with an owner reference set to itself");
            return Err(at.forbidden(why));
        }
        _ => {
            let why =
                format!("node {node:?} can only create pods with a single owner reference set to itself");
            return Err(at.forbidden(why));
        }
    };
    if owner.api_version() != "v1" || owner.kind() != "Node" || owner.name().get() != Some(node) {
        let why = format!("node {node:?} can only create pods with an owner reference set to itself");
        return Err(at.forbidden(why));
    }
    if owner.controller().get() != Some(true) {
        let why =
            format!("node {node:?} can only create pods with a controller owner reference set to itself");
        return Err(at.forbidden(why));
    }
    if owner.block_owner_deletion().get() == Some(true) {
        let why = format!("node {node:?} must not set blockOwnerDeletion on an owner reference");
        return Err(at.forbidden(why));
    }
    let kind = at.api.objects().registry.resource("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
    let uid = at.api.objects().cached(&kind, "", node)?.meta.uid.clone();
    if owner.uid().get() != Some(uid.as_str()) {
        let got = owner.uid().text();
        return Err(at.forbidden(format!("node {node} UID mismatch: expected {got} got {uid}")));
    }
    // As a mirror pod it would refer to nothing; as any other pod it shows what it would reach.
    let mut plain = object.clone();
    Pod::edit(&mut plain).metadata().annotations().clear();
    if let Some((resource, _)) = references(Pod::of(&plain)).into_iter().next() {
        return Err(at.forbidden(format!("node {node:?} can not create pods that reference {resource}")));
    }
    Ok(())
}

fn pod_status(at: &Attributes<'_>, node: &str, pod: &Value) -> Result<(), ApiError> {
    let Some(old) = at.old.filter(|_| at.operation == Operation::Update) else {
        return Err(at.forbidden(format!("unexpected operation {:?}", at.operation.as_str())));
    };
    let (old, pod) = (Pod::of(old), Pod::of(pod));
    if old.spec().node_name().get() != Some(node) {
        return Err(at.forbidden(format!(
            "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
        )));
    }
    if !old.metadata().labels().same_as(pod.metadata().labels()) {
        return Err(at.forbidden(format!("node {node:?} cannot update labels through pod status")));
    }
    let (before, after) = (old.status(), pod.status());
    if !before.resource_claim_statuses().same_as(after.resource_claim_statuses()) {
        return Err(at.forbidden(format!("node {node:?} cannot update resource claim statues")));
    }
    if !before.extended_resource_claim_status().same_as(after.extended_resource_claim_status()) {
        return Err(at.forbidden(format!("node {node:?} cannot update extended resource claim status")));
    }
    Ok(())
}

fn eviction(at: &Attributes<'_>, node: &str) -> Result<(), ApiError> {
    if node_of_pod(at, at.name)?.0 != node {
        return Err(at.forbidden(format!("node {node} can only evict pods with spec.nodeName set to itself")));
    }
    Ok(())
}

fn node_object(at: &Attributes<'_>, node: &str, object: &Value) -> Result<(), ApiError> {
    let name = name_of(at, object);
    if name != node {
        return Err(at.forbidden(format!("node {node:?} is not allowed to modify node {name:?}")));
    }
    if at.operation == Operation::Delete {
        return Ok(());
    }
    let nothing = Value::Null;
    let (object, old) = (Node::of(object), Node::of(at.old.unwrap_or(&nothing)));
    let source = object.spec().config_source();
    if source.is_set() && !source.same_as(old.spec().config_source()) {
        let why =
            format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
        return Err(at.forbidden(why));
    }
    if at.operation == Operation::Update {
        if object.spec().taints().to_values() != old.spec().taints().to_values() {
            return Err(at.forbidden(format!("node {node:?} is not allowed to modify taints")));
        }
        let owners = |node: View<'_, Node>| node.metadata().owner_references().to_values();
        if owners(object) != owners(old) {
            return Err(at.forbidden(format!("node {node:?} is not allowed to modify ownerReferences")));
        }
    }
    let forbidden = forbidden_labels(object.metadata(), old.metadata());
    if forbidden.is_empty() {
        return Ok(());
    }
    Err(at.forbidden(match at.operation {
        Operation::Create => format!("node {node:?} is not allowed to set the following labels: {forbidden}"),
        _ => format!("is not allowed to modify labels: {forbidden}"),
    }))
}

/// Labels that differ and that a node has no say in.
fn forbidden_labels(new: View<'_, ObjectMeta>, old: View<'_, ObjectMeta>) -> String {
    let (new, old) = (new.labels(), old.labels());
    let all: BTreeSet<&str> = new.entries().chain(old.entries()).map(|(key, _)| key).collect();
    let differs = |key: &str| new.has_key(key) != old.has_key(key) || !new.key(key).same_as(old.key(key));
    all.into_iter().filter(|key| differs(key) && is_forbidden(key)).collect::<Vec<_>>().join(", ")
}

fn is_forbidden(label: &str) -> bool {
    let Some((space, _)) = label.split_once('/') else { return false };
    let within = |domain: &str| space == domain || space.ends_with(&format!(".{domain}"));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    let free = LABELS.contains(&label) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    (within("kubernetes.io") || within("k8s.io")) && !free
}

fn claim_status(at: &Attributes<'_>, node: &str, claim: &Value) -> Result<(), ApiError> {
    let Some(old) = at.old else {
        return Err(at.forbidden(format!("unexpected operation {:?}", at.operation.as_str())));
    };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        let mut root = PersistentVolumeClaim::edit(&mut claim);
        let mut status = root.status().section();
        status.capacity().clear();
        status.conditions().clear();
        status.allocated_resources().clear();
        status.allocated_resource_statuses().clear();
        let mut meta = root.metadata().section();
        meta.resource_version().clear();
        meta.managed_fields().clear();
        claim
    };
    if rest(old) != rest(claim) {
        return Err(at.forbidden(format!(
            "node {node:?} is not allowed to update fields other than status.quantity and status.conditions"
        )));
    }
    Ok(())
}

/// The audience of the token, if no volume of its pod names it: the node then needs a permission of its own for it.
fn token(at: &Attributes<'_>, node: &str, request: &Value) -> Result<Option<String>, ApiError> {
    let spec = TokenRequest::of(request).spec();
    let bound = spec.bound_object_ref();
    let (name, uid) = (bound.name().text(), bound.uid().text());
    if bound.api_version() != "v1" || bound.kind() != "Pod" || name.is_empty() {
        return Err(at.forbidden("node requested token not bound to a pod"));
    }
    if uid.is_empty() {
        return Err(at.forbidden("node requested token with a pod binding without a uid"));
    }
    let kind = at.api.objects().registry.resource("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let pod = at.api.objects().cached(&kind, at.namespace, name)?;
    if pod.meta.uid != uid {
        return Err(at.forbidden(format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        )));
    }
    let doc = pod.doc();
    let pod = doc.view::<Pod>();
    if pod.spec().node_name().get() != Some(node) {
        return Err(at.forbidden("node requested token bound to a pod scheduled on a different node"));
    }
    if spec.audiences().len() > 1 {
        return Err(at.forbidden("node may only request 0 or 1 audiences"));
    }
    let wanted = spec.audiences().nth(0).text();
    let is_named = names_audience(at, pod, wanted)
        .map_err(|error| at.forbidden(format!("error validating audience {wanted:?}: {error}")))?;
    Ok((!is_named).then(|| wanted.to_owned()))
}

fn lease(at: &Attributes<'_>, node: &str, lease: &Value) -> Result<(), ApiError> {
    if at.namespace != "kube-node-lease" {
        return Err(at.forbidden("can only access leases in the \"kube-node-lease\" system namespace"));
    }
    if name_of(at, lease) != node {
        return Err(at.forbidden("can only access node lease with the same name as the requesting node"));
    }
    Ok(())
}

fn csi_node(at: &Attributes<'_>, node: &str, object: &Value) -> Result<(), ApiError> {
    if name_of(at, object) != node {
        return Err(at.forbidden("can only access CSINode with the same name as the requesting node"));
    }
    Ok(())
}

fn slice(at: &Attributes<'_>, node: &str, object: &Value) -> Result<(), ApiError> {
    let of = |slice: &Value| ResourceSlice::of(slice).spec().node_name().get() == Some(node);
    if (object.is_object() && !of(object)) || at.old.is_some_and(|old| !of(old)) {
        return Err(
            at.forbidden("can only access ResourceSlices with the same NodeName as the requesting node")
        );
    }
    Ok(())
}

fn request(at: &Attributes<'_>, node: &str, object: &Value) -> Result<(), ApiError> {
    let spec = CertificateSigningRequest::of(object).spec();
    let signer = spec.signer_name().text();
    let ours = ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"];
    if at.operation != Operation::Create || !ours.contains(&signer) {
        return Ok(());
    }
    let pem = STANDARD.decode(spec.request().text()).unwrap_or_default();
    let parsed = x509_parser::pem::parse_x509_pem(&pem).ok().map(|(_, pem)| pem);
    let parsed = parsed.as_ref().and_then(|pem| X509CertificationRequest::from_der(&pem.contents).ok());
    let Some((_, parsed)) = parsed else { return Err(at.forbidden("unable to parse csr")) };
    let subject = &parsed.certification_request_info.subject;
    let names = subject.iter_common_name().map(|name| name.as_str().unwrap_or_default());
    let name = names.collect::<Vec<_>>().join(", CN=");
    let wanted = format!("system:node:{node}");
    if name != wanted {
        return Err(at.forbidden(format!("can only create a node CSR with CN={wanted}, requested CN={name}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nodes_do_not_label_themselves_into_trust() {
        let cases = [
            (json!({"kubernetes.io/hostname": "a", "free": "x", "example.com/y": "z"}), json!({}), ""),
            (
                json!({"node-restriction.kubernetes.io/pci": "1"}),
                json!({}),
                "node-restriction.kubernetes.io/pci",
            ),
            (
                json!({"x.node-restriction.kubernetes.io/pci": "1"}),
                json!({}),
                "x.node-restriction.kubernetes.io/pci",
            ),
            (json!({}), json!({"node-role.kubernetes.io/worker": ""}), "node-role.kubernetes.io/worker"),
            (json!({"a.k8s.io/b": "1"}), json!({"a.k8s.io/b": "1"}), ""),
            (json!({"kubelet.kubernetes.io/x": "1", "a.node.kubernetes.io/y": "2"}), json!({}), ""),
        ];
        for (new, old, forbidden) in cases {
            let (new, old) = (json!({"labels": new}), json!({"labels": old}));
            let found = forbidden_labels(ObjectMeta::of(&new), ObjectMeta::of(&old));
            assert_eq!(found, forbidden, "{new} {old}");
        }
    }
}
