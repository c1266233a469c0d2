//! Policy of the signers: allowed requests, and automatic approval. No clock, no tasks.

use super::subject::{Subject, SubjectError, compared};
use super::wire::{CLIENT, NODE_CLIENT, NODE_SERVING, Spec};
use coracle_client::user::MASTERS;
use coracle_fields::View;
use coracle_fields::core::v1::Node;
use coracle_proto::node_identity::{API_CLIENTS, API_SERVERS, inner_name};
use rcgen::ExtendedKeyUsagePurpose;

/// What administrators and API servers are in: a certificate for it would be beyond all rules.
const RESERVED: [&str; 3] = [MASTERS, API_CLIENTS, API_SERVERS];

/// Why a signer does not sign.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Subject(#[from] SubjectError),
    #[error("usages did not match")]
    Usages,
    #[error("organizations {} are not allowed", RESERVED.join(", "))]
    Organizations,
    #[error("subject is not that of a node in the organization system:nodes")]
    NotNode,
    #[error("subjectAltNames are not allowed")]
    Names,
    #[error("at least one DNS or IP subjectAltName is required")]
    NoNames,
    #[error("signer {0} is not known")]
    Signer(String),
}

/// What the certificate may be used for.
pub(super) fn permitted(spec: &Spec, subject: &Subject) -> Result<Vec<ExtendedKeyUsagePurpose>, Refused> {
    let common = ["digital signature", "key encipherment"];
    let only = |auth: &str| spec.usages.iter().all(|u| u == auth || common.contains(&u.as_str()));
    let has = |auth: &str| spec.usages.iter().any(|u| u == auth);
    let of_node = subject.node().is_some() && subject.organizations == ["system:nodes"];
    if let Some(why) = subject.wrong {
        return Err(why.into());
    }
    match spec.signer_name.as_str() {
        CLIENT if !has("client auth") || !only("client auth") => Err(Refused::Usages),
        CLIENT if subject.organizations.iter().any(|o| RESERVED.contains(&o.as_str())) => {
            Err(Refused::Organizations)
        }
        CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_CLIENT if !of_node => Err(Refused::NotNode),
        NODE_CLIENT if !subject.names.is_empty() || subject.unserved.is_some() => Err(Refused::Names),
        NODE_CLIENT if !has("client auth") || !only("client auth") => Err(Refused::Usages),
        NODE_CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_SERVING if !of_node => Err(Refused::NotNode),
        NODE_SERVING => match subject.unserved {
            Some(why) => Err(why.into()),
            None if subject.names.is_empty() => Err(Refused::NoNames),
            None if !has("server auth") || !only("server auth") => Err(Refused::Usages),
            None => Ok(vec![ExtendedKeyUsagePurpose::ServerAuth]),
        },
        other => Err(Refused::Signer(other.to_owned())),
    }
}

/// Decision about a request that is neither approved nor denied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// Approved if the requestor may do this to certificate signing requests.
    Approve(&'static str),
    /// Denied, with reason and message.
    Deny(&'static str, String),
    /// Evaluated again when the node has registered.
    Wait,
    /// Left to an administrator.
    Leave,
}

/// Evaluates a request. `node` is the Node of its subject; `claimed` returns whether another Node has a name.
pub(super) fn evaluate(
    spec: &Spec,
    subject: &Subject,
    node: Option<View<'_, Node>>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Approval {
    if permitted(spec, subject).is_err() {
        return Approval::Leave;
    }
    let for_itself = spec.username == subject.common_name;
    let name = subject.node().unwrap_or_default();
    match spec.signer_name.as_str() {
        NODE_CLIENT if for_itself => Approval::Approve("selfnodeclient"),
        NODE_CLIENT if spec.username.starts_with("system:node:") => Approval::Deny(
            "NotForItself",
            format!("{} asks for a certificate of node {name:?}", spec.username),
        ),
        NODE_CLIENT if node.is_some() => Approval::Deny(
            "NodeExists",
            format!(
                "node {name:?} is a member already; delete its Node object to let a machine join under this name"
            ),
        ),
        NODE_CLIENT => Approval::Approve("nodeclient"),
        // An agent that runs with an administrator's credentials may ask for what an administrator could approve.
        NODE_SERVING if for_itself || spec.groups.iter().any(|group| group == MASTERS) => {
            serving(subject, name, node, reserved, claimed)
        }
        _ => Approval::Leave,
    }
}

/// A node serves under its own name and the addresses it registered with, and never under those of the API server, of
/// Services or of other nodes.
fn serving(
    subject: &Subject,
    name: &str,
    node: Option<View<'_, Node>>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Approval {
    let is_reserved = |name: &&String| reserved.iter().any(|taken| compared(taken) == **name);
    if let Some(taken) = subject.names.iter().find(is_reserved) {
        return Approval::Deny("ReservedName", format!("{taken:?} is a name of the API server"));
    }
    // A node says itself what its addresses are: webhooks and other Services are not to be had so, whatever the domain of
    // the cluster is.
    let service = |name: &&String| name.ends_with(".svc") || name.contains(".svc.");
    if let Some(taken) = subject.names.iter().find(service) {
        return Approval::Deny("ReservedName", format!("{taken:?} is a name of a Service"));
    }
    let Some(node) = node else { return Approval::Wait };
    let addresses = node.status().addresses();
    let registered =
        |wanted: &str| addresses.items().any(|a| a.address().get().map(compared).as_deref() == Some(wanted));
    let inner = inner_name(name);
    let own = |wanted: &str| wanted == name || wanted == inner;
    // The other node may keep the address in its status for good: a denial lets the agent ask for its inner name instead,
    // while a request that waits would leave the node without a certificate.
    if let Some(taken) = subject.names.iter().find(|wanted| !own(wanted.as_str()) && claimed(wanted.as_str()))
    {
        return Approval::Deny("ClaimedName", format!("{taken:?} is a name or an address of another node"));
    }
    let known = |wanted: &String| own(wanted.as_str()) || registered(wanted.as_str());
    if subject.names.iter().all(known) { Approval::Approve("") } else { Approval::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::json;

    #[test]
    fn nodes_are_approved_for_themselves_only() {
        let mut node = Subject {
            common_name: "system:node:a".into(),
            organizations: vec!["system:nodes".into()],
            ..Subject::default()
        };
        let spec = |signer: &str, user: &str, usage: &str| Spec {
            signer_name: signer.into(),
            usages: vec!["digital signature".into(), usage.into()],
            username: user.into(),
            ..Spec::default()
        };
        let (client, server) = ("client auth", "server auth");
        let token = spec(NODE_CLIENT, "system:bootstrap:x", client);
        let object = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "10.0.0.9"}, {"type": "InternalDNS", "address": "Kubernetes"}]}});
        let reserved = ["10.96.0.1".to_owned(), "Kubernetes".to_owned()];
        let judged = |spec: &Spec, subject: &Subject, known: bool| {
            let node = known.then(|| Node::of(&object));
            evaluate(spec, subject, node, &reserved, &|name| name == "10.0.0.9")
        };
        let denied = |verdict: Approval| match verdict {
            Approval::Deny(reason, _) => reason,
            other => panic!("{other:?}"),
        };
        let own = spec(NODE_CLIENT, "system:node:a", client);
        assert_eq!(judged(&own, &node, true), Approval::Approve("selfnodeclient"));
        assert_eq!(judged(&token, &node, false), Approval::Approve("nodeclient"));
        assert_eq!(denied(judged(&token, &node, true)), "NodeExists");
        assert_eq!(denied(judged(&spec(NODE_CLIENT, "system:node:b", client), &node, true)), "NotForItself");
        assert_eq!(
            judged(&spec(CLIENT, "system:node:a", client), &node, true),
            Approval::Leave,
            "a person decides"
        );
        let serving = spec(NODE_SERVING, "system:node:a", server);
        assert_eq!(judged(&serving, &node, true), Approval::Leave, "no name to serve");
        node.names = vec!["a".into(), "10.0.0.7".into()];
        assert_eq!(judged(&serving, &node, true), Approval::Approve(""));
        assert_eq!(judged(&serving, &node, false), Approval::Wait);
        assert_eq!(judged(&spec(NODE_SERVING, "system:node:b", server), &node, true), Approval::Leave);
        node.names = vec!["10.96.0.1".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName");
        for name in ["hook.default.svc", "hook.default.svc.cluster.local"] {
            node.names = vec![name.into()];
            assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "{name}");
        }
        node.names = vec!["kubernetes".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "case does not matter");
        node.names = vec!["10.0.0.8".into()];
        assert_eq!(judged(&serving, &node, true), Approval::Wait, "an address that is not its own");
        node.names = vec!["10.0.0.9".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ClaimedName", "an address that is another's, too");
        node.names = vec![inner_name("a")];
        assert_eq!(judged(&serving, &node, true), Approval::Approve(""));
        let mut by_admin = spec(NODE_SERVING, "kubernetes-admin", server);
        assert_eq!(judged(&by_admin, &node, true), Approval::Leave);
        by_admin.groups = vec![MASTERS.into()];
        assert_eq!(judged(&by_admin, &node, true), Approval::Approve(""));
        let odd = Subject { unserved: Some(SubjectError::Uri), ..node };
        assert_eq!(judged(&serving, &odd, true), Approval::Leave);
        let mut node = Subject { unserved: None, ..odd };
        node.names = Vec::new();
        for name in ["", "../x", "Bad_X", "system:node:a"] {
            let common_name = format!("system:node:{name}");
            let organizations = vec!["system:nodes".into()];
            let odd = Subject { common_name, organizations, ..Subject::default() };
            assert_eq!(judged(&token, &odd, false), Approval::Leave, "{name:?} is no name of a node");
            assert!(permitted(&token, &odd).is_err(), "{name:?}: not for a person, either");
        }
        for organization in ["system:masters", "coracle:kubelet-clients", "coracle:api-servers"] {
            let organizations = vec!["staff".into(), organization.into()];
            let admin = Subject { common_name: "root".into(), organizations, ..Subject::default() };
            assert_eq!(permitted(&spec(CLIENT, "x", client), &admin), Err(Refused::Organizations));
        }
        let wrong =
            Subject { common_name: "ann".into(), wrong: Some(SubjectError::NotText), ..Subject::default() };
        assert_eq!(permitted(&spec(CLIENT, "x", client), &wrong), Err(SubjectError::NotText.into()));
    }
}
