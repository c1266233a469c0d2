//! The role `control-plane` of the node on the machine of this server, which `kubectl get nodes` shows. Pods are scheduled to it as
//! to any other node.
//!
//! NodeRestriction does not let nodes choose their roles, and neither their names nor their addresses prove where they are. A node
//! is on this machine if its client certificate is in the data directory of the server, to which only root can write. A certificate
//! that the API server would reject proves nothing.

use coracle_cli::causes;
use coracle_client::Client;
use coracle_client::patch::Patch;
use coracle_fields::core::v1::Node;
use coracle_fields::make;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::event::EventType;
use coracle_pki::Pki;
use coracle_pki::authority::Authority;
use coracle_pki::revoked::{REVOKED, revoked};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const ROLE: &str = "node-role.kubernetes.io/control-plane";
/// Client certificates of an agent that is installed beside the server, and of the first node of `coracle up`.
const CERTIFICATES: [&str; 2] = ["agent/pki/client.pem", "node-1/pki/client.pem"];
/// When a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Gives the node on this machine its role.
#[derive(Clone)]
pub(super) struct NodeRole {
    pub(super) client: Client,
    pub(super) pki: Arc<Pki>,
    pub(super) data_dir: PathBuf,
}

impl NodeRole {
    /// Does not return. A role that somebody removes comes back when the server restarts or the Node is created anew.
    pub(super) async fn follow(self) {
        let kind = self.client.kind("", "nodes");
        let nodes = self.client.cache(&kind);
        loop {
            let (known, _, mut news) = nodes.list_and_watch(None);
            self.label(&kind, &known).await;
            // A cursor that was too slow starts over.
            while let Ok(events) = news.next_batch().await {
                let mut added = Vec::new();
                for event in events.iter().filter(|event| event.what == EventType::Added) {
                    added.push(event.object.clone());
                }
                self.label(&kind, &added).await;
            }
        }
    }

    /// Labels those of the nodes that are on this machine.
    async fn label(&self, kind: &Kind, nodes: &[Arc<Object>]) {
        for name in self.without_role(nodes) {
            self.label_one(kind, &name).await;
        }
    }

    /// Names of those of the nodes that are on this machine and have no role yet.
    fn without_role(&self, nodes: &[Arc<Object>]) -> Vec<String> {
        let mut without = nodes.iter().filter(|node| !node.meta.labels.contains_key(ROLE)).peekable();
        if without.peek().is_none() {
            return Vec::new();
        }
        // The certificate of an agent is older than its Node.
        let maps = self.client.cache(&self.client.kind("", "configmaps"));
        let revocations = maps.get("kube-system", REVOKED).map(|list| list.value()).unwrap_or_default();
        let local = nodes_of_machine(&self.pki.authority(), &self.data_dir, &revocations);
        without.map(|node| node.meta.name.to_string()).filter(|name| local.contains(name)).collect()
    }

    async fn label_one(&self, kind: &Kind, name: &str) {
        loop {
            let role = make!(part Node { metadata: { labels: [(ROLE, "")] } });
            match self.client.patch(kind, "", name, "", Patch::Merge(role.into_value())).await {
                Err(error) if !error.is_not_found() => {
                    tracing::warn!(node = name, error = %causes::chain(&error), "role of the node not set, will retry");
                    tokio::time::sleep(RETRY).await;
                }
                _ => return,
            }
        }
    }
}

/// Names of the nodes of this cluster whose certificates are in the data directory and not revoked.
fn nodes_of_machine(authority: &Authority, data_dir: &Path, revocations: &Value) -> BTreeSet<String> {
    let read = |file: &&str| std::fs::read_to_string(data_dir.join(file)).ok();
    let signed = CERTIFICATES.iter().filter_map(read).filter_map(|pem| authority.node_of(&pem));
    let counts = |(node, from): &(String, i64)| revoked(revocations, node).is_none_or(|since| *from >= since);
    signed.filter(counts).map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_pki::authority::Profile;
    use serde_json::json;

    #[test]
    fn nodes_of_this_cluster_with_certificates_here_are_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let authority = |name: &str| Authority::ensure(dir.path(), name, name).unwrap();
        let (ours, other) = (authority("ours"), authority("other"));
        let write = |file: &str, authority: &Authority, user: &str| {
            let signed = authority.sign(&Profile::client(user, &["system:nodes"])).unwrap();
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{}{}", signed.certificate, signed.key)).unwrap();
        };
        let without = |revocations: &Value| Vec::from_iter(nodes_of_machine(&ours, dir.path(), revocations));
        let found = || without(&Value::Null);
        assert_eq!(found(), Vec::<String>::new());
        write("agent/pki/client.pem", &other, "system:node:a");
        assert_eq!(found(), Vec::<String>::new(), "of another cluster");
        write("agent/pki/client.pem", &ours, "a");
        assert_eq!(found(), Vec::<String>::new(), "not of a node");
        write("agent/pki/client.pem", &ours, "system:node:a");
        write("node-1/pki/client.pem", &ours, "system:node:node-1");
        write("node-2/pki/client.pem", &ours, "system:node:node-2");
        assert_eq!(found(), ["a", "node-1"]);
        let revocations = json!({"data": {"a": "2200-01-01T00:00:00Z", "node-1": "2020-01-01T00:00:00Z"}});
        assert_eq!(without(&revocations), ["node-1"], "the certificate is newer than the revocation");
    }
}
