//! What a signer signs, and which requests are approved without a person. No clock, no tasks.

use super::subject::{Subject, compared};
use super::wire::Spec;
use super::{CLIENT, NODE_CLIENT, NODE_SERVING};
use coracle_client::user::MASTERS;
use coracle_proto::node_identity::{API_CLIENTS, inner_name};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::Value;

/// What the certificate may be used for, or why the signer refuses.
pub(super) fn permitted(spec: &Spec, subject: &Subject) -> Result<Vec<ExtendedKeyUsagePurpose>, String> {
    let common = ["digital signature", "key encipherment"];
    let only = |auth: &str| spec.usages.iter().all(|u| u == auth || common.contains(&u.as_str()));
    let has = |auth: &str| spec.usages.iter().any(|u| u == auth);
    let of_node = subject.node().is_some() && subject.organizations == ["system:nodes"];
    if let Some(why) = subject.wrong {
        return Err(why.into());
    }
    match spec.signer_name.as_str() {
        CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        CLIENT if subject.organizations.iter().any(|o| o == MASTERS || o == API_CLIENTS) => {
            Err(format!("organizations {MASTERS} and {API_CLIENTS} are not allowed"))
        }
        CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_CLIENT if !of_node => {
            Err("subject is not that of a node in the organization system:nodes".into())
        }
        NODE_CLIENT if !subject.names.is_empty() || subject.unserved.is_some() => {
            Err("subjectAltNames are not allowed".into())
        }
        NODE_CLIENT if !has("client auth") || !only("client auth") => Err("usages did not match".into()),
        NODE_CLIENT => Ok(vec![ExtendedKeyUsagePurpose::ClientAuth]),
        NODE_SERVING if !of_node => {
            Err("subject is not that of a node in the organization system:nodes".into())
        }
        NODE_SERVING if subject.unserved.is_some() => Err(subject.unserved.unwrap_or_default().into()),
        NODE_SERVING if subject.names.is_empty() => {
            Err("at least one DNS or IP subjectAltName is required".into())
        }
        NODE_SERVING if !has("server auth") || !only("server auth") => Err("usages did not match".into()),
        NODE_SERVING => Ok(vec![ExtendedKeyUsagePurpose::ServerAuth]),
        other => Err(format!("signer {other} is not known")),
    }
}

/// What becomes of a request that nobody has decided on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Approved if the requestor may do this to certificate signing requests.
    Approve(&'static str),
    /// Refused, with a reason and a sentence.
    Deny(&'static str, String),
    /// To be looked at again when the node has registered.
    Wait,
    /// A person decides.
    Leave,
}

/// Judges a request; `node` is the Node object of its subject, `claimed` says whether another Node has a name.
pub(super) fn judge(
    spec: &Spec,
    subject: &Subject,
    node: Option<&Value>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Verdict {
    if permitted(spec, subject).is_err() {
        return Verdict::Leave;
    }
    let for_itself = spec.username == subject.common_name;
    let name = subject.node().unwrap_or_default();
    match spec.signer_name.as_str() {
        NODE_CLIENT if for_itself => Verdict::Approve("selfnodeclient"),
        NODE_CLIENT if spec.username.starts_with("system:node:") => Verdict::Deny(
            "NotForItself",
            format!("{} asks for a certificate of node {name:?}", spec.username),
        ),
        NODE_CLIENT if node.is_some() => Verdict::Deny(
            "NodeExists",
            format!(
                "node {name:?} is a member already; delete its Node object to let a machine join under this name"
            ),
        ),
        NODE_CLIENT => Verdict::Approve("nodeclient"),
        // An agent that runs with an administrator's credentials may ask for what an administrator could approve.
        NODE_SERVING if for_itself || spec.groups.iter().any(|group| group == MASTERS) => {
            serving(subject, name, node, reserved, claimed)
        }
        _ => Verdict::Leave,
    }
}

/// A node serves under its own name and the addresses it registered with, and never under those of the API server, of
/// Services or of other nodes.
fn serving(
    subject: &Subject,
    name: &str,
    node: Option<&Value>,
    reserved: &[String],
    claimed: &dyn Fn(&str) -> bool,
) -> Verdict {
    let is_reserved = |name: &&String| reserved.iter().any(|taken| compared(taken) == **name);
    if let Some(taken) = subject.names.iter().find(is_reserved) {
        return Verdict::Deny("ReservedName", format!("{taken:?} is a name of the API server"));
    }
    // A node says itself what its addresses are: webhooks and other Services are not to be had so, whatever the domain of
    // the cluster is.
    let service = |name: &&String| name.ends_with(".svc") || name.contains(".svc.");
    if let Some(taken) = subject.names.iter().find(service) {
        return Verdict::Deny("ReservedName", format!("{taken:?} is a name of a Service"));
    }
    let Some(node) = node else { return Verdict::Wait };
    let addresses = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
    let registered = |wanted: &str| {
        addresses.iter().any(|a| a["address"].as_str().map(compared).as_deref() == Some(wanted))
    };
    let inner = inner_name(name);
    let own = |wanted: &str| wanted == name || wanted == inner;
    // The other node may keep the address in its status for good: a denial lets the agent ask for its inner name instead,
    // while a request that waits would leave the node without a certificate.
    if let Some(taken) = subject.names.iter().find(|wanted| !own(wanted.as_str()) && claimed(wanted.as_str()))
    {
        return Verdict::Deny("ClaimedName", format!("{taken:?} is a name or an address of another node"));
    }
    let known = |wanted: &String| own(wanted.as_str()) || registered(wanted.as_str());
    if subject.names.iter().all(known) { Verdict::Approve("") } else { Verdict::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;
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
            judge(spec, subject, known.then_some(&object), &reserved, &|name| name == "10.0.0.9")
        };
        let denied = |verdict: Verdict| match verdict {
            Verdict::Deny(reason, _) => reason,
            other => panic!("{other:?}"),
        };
        let own = spec(NODE_CLIENT, "system:node:a", client);
        assert_eq!(judged(&own, &node, true), Verdict::Approve("selfnodeclient"));
        assert_eq!(judged(&token, &node, false), Verdict::Approve("nodeclient"));
        assert_eq!(denied(judged(&token, &node, true)), "NodeExists");
        assert_eq!(denied(judged(&spec(NODE_CLIENT, "system:node:b", client), &node, true)), "NotForItself");
        assert_eq!(
            judged(&spec(CLIENT, "system:node:a", client), &node, true),
            Verdict::Leave,
            "a person decides"
        );
        let serving = spec(NODE_SERVING, "system:node:a", server);
        assert_eq!(judged(&serving, &node, true), Verdict::Leave, "no name to serve");
        node.names = vec!["a".into(), "10.0.0.7".into()];
        assert_eq!(judged(&serving, &node, true), Verdict::Approve(""));
        assert_eq!(judged(&serving, &node, false), Verdict::Wait);
        assert_eq!(judged(&spec(NODE_SERVING, "system:node:b", server), &node, true), Verdict::Leave);
        node.names = vec!["10.96.0.1".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName");
        for name in ["hook.default.svc", "hook.default.svc.cluster.local"] {
            node.names = vec![name.into()];
            assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "{name}");
        }
        node.names = vec!["kubernetes".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ReservedName", "case does not matter");
        node.names = vec!["10.0.0.8".into()];
        assert_eq!(judged(&serving, &node, true), Verdict::Wait, "an address that is not its own");
        node.names = vec!["10.0.0.9".into()];
        assert_eq!(denied(judged(&serving, &node, true)), "ClaimedName", "an address that is another's, too");
        node.names = vec![inner_name("a")];
        assert_eq!(judged(&serving, &node, true), Verdict::Approve(""));
        let mut by_admin = spec(NODE_SERVING, "kubernetes-admin", server);
        assert_eq!(judged(&by_admin, &node, true), Verdict::Leave);
        by_admin.groups = vec![MASTERS.into()];
        assert_eq!(judged(&by_admin, &node, true), Verdict::Approve(""));
        let odd = Subject { unserved: Some("odd"), ..node };
        assert_eq!(judged(&serving, &odd, true), Verdict::Leave);
        let mut node = Subject { unserved: None, ..odd };
        node.names = Vec::new();
        for name in ["", "../x", "Bad_X", "system:node:a"] {
            let common_name = format!("system:node:{name}");
            let organizations = vec!["system:nodes".into()];
            let odd = Subject { common_name, organizations, ..Subject::default() };
            assert_eq!(judged(&token, &odd, false), Verdict::Leave, "{name:?} is no name of a node");
            assert!(permitted(&token, &odd).is_err(), "{name:?}: not for a person, either");
        }
        let admin = Subject {
            common_name: "root".into(),
            organizations: vec!["system:masters".into()],
            ..Subject::default()
        };
        assert!(permitted(&spec(CLIENT, "x", client), &admin).is_err());
        let wrong = Subject { common_name: "ann".into(), wrong: Some("odd"), ..Subject::default() };
        assert_eq!(permitted(&spec(CLIENT, "x", client), &wrong), Err("odd".into()));
    }
}
