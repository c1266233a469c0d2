//! Which CAs nodes trust, and which have signed the certificates that they use. Agents report both in annotations.

use coracle_apiserver::objects::Objects;
use coracle_fields::core::v1::Node;
use coracle_proto::node_identity::{ISSUING_CAS, TRUSTED_CAS};
use serde::{Deserialize, Serialize};

/// The CAs of a node, by their hashes; none if its agent does not report them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCa {
    /// The node.
    pub name: String,
    /// What it trusts.
    pub trusted: Vec<String>,
    /// What has signed its certificates.
    pub issuers: Vec<String>,
}

/// The CAs of all nodes, by name.
pub(super) fn nodes(objects: &Objects) -> Vec<NodeCa> {
    let cache = objects.registry.resource("", "v1", "nodes").and_then(|kind| objects.cache(&kind).ok());
    let nodes = cache.map(|cache| cache.list(None)).unwrap_or_default();
    let mut all: Vec<NodeCa> = nodes
        .iter()
        .map(|node| {
            let doc = node.doc();
            let annotations = doc.view::<Node>().metadata().annotations();
            let hashes = |key: &str| {
                let listed = annotations.key(key).text().split(',').filter(|hash| !hash.is_empty());
                listed.map(str::to_owned).collect()
            };
            NodeCa {
                name: node.meta.name.clone(),
                trusted: hashes(TRUSTED_CAS),
                issuers: hashes(ISSUING_CAS),
            }
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Why only `signer` cannot be trusted yet, one line for each node.
pub(super) fn old(nodes: &[NodeCa], signer: &str) -> Vec<String> {
    let reason = |node: &NodeCa| {
        let name = &node.name;
        if node.trusted.is_empty() || node.issuers.is_empty() {
            return Some(format!("node {name} does not report which CA it uses"));
        }
        if !node.trusted.iter().any(|hash| hash == signer) {
            return Some(format!("node {name} does not trust the new CA"));
        }
        let old = node.issuers.iter().any(|hash| hash != signer);
        old.then(|| format!("node {name} has a certificate of the old CA"))
    };
    nodes.iter().filter_map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_use_the_old_ca_until_they_trust_and_have_the_new_one() {
        let node = |trusted: &[&str], issuers: &[&str]| {
            let texts = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
            NodeCa { name: "n".into(), trusted: texts(trusted), issuers: texts(issuers) }
        };
        for (node, reason) in [
            (node(&["new", "old"], &["new"]), None),
            (node(&["new"], &["new", "new"]), None),
            (node(&["old"], &["old"]), Some("node n does not trust the new CA")),
            (node(&["new", "old"], &["new", "old"]), Some("node n has a certificate of the old CA")),
            (node(&["new", "old"], &["unknown"]), Some("node n has a certificate of the old CA")),
            (node(&[], &[]), Some("node n does not report which CA it uses")),
        ] {
            assert_eq!(old(&[node], "new").first().map(String::as_str), reason);
        }
        assert!(old(&[], "new").is_empty());
    }
}
