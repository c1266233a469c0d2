//! The CSINode object of this node, and the node labels of its topology.

use coracle_csi::v1::NodeGetInfoResponse;
use coracle_fields::make;
use coracle_fields::meta::PartialObjectMetadata;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, Patch, PatchParams, PostParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Why the cluster does not know a driver of this node; tried again.
#[derive(Debug, thiserror::Error)]
pub enum NodeObjectError {
    /// The API server refused, or did not answer.
    #[error("{action} of node {node}")]
    Api {
        /// The request.
        action: &'static str,
        /// Name of the node.
        node: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Two drivers, or driver and administrator, disagree about where the node is.
    #[error(
        "topology {key:?} of driver {driver:?} is {value:?}, but the node has the label with value {label:?}"
    )]
    Topology {
        /// Name of the driver.
        driver: String,
        /// Label.
        key: String,
        /// The driver's value.
        value: String,
        /// The node's value.
        label: String,
    },
}

/// Writes the objects of this node.
#[derive(Clone)]
pub struct NodeObject {
    client: kube::Client,
    node: String,
    /// The CSINode is read and written: one at a time.
    writing: Arc<Mutex<()>>,
}

impl NodeObject {
    /// Of this node.
    pub fn new(client: kube::Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), writing: Arc::default() }
    }

    /// Name of the node.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// The client that writes them.
    pub(super) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    fn api_error(&self, action: &'static str) -> impl FnOnce(kube::Error) -> NodeObjectError {
        let node = self.node.clone();
        move |source| NodeObjectError::Api { action, node, source: Box::new(source) }
    }

    /// Adds a driver, or brings what it says up to date. Labels first: schedulers look for nodes by the keys in the CSINode.
    pub async fn add(&self, name: &str, info: &NodeGetInfoResponse) -> Result<(), NodeObjectError> {
        let _writing = self.writing.lock().await;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(&self.node).await.map_err(self.api_error("reading the Node"))?;
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let missing = missing_labels(name, info, &labels)?;
        if !missing.is_empty() {
            let patch = make!(part PartialObjectMetadata { metadata: { labels: missing } });
            let patched = nodes.patch(&self.node, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.map_err(self.api_error("labelling the Node"))?;
        }
        let driver = plan_driver(name, info);
        let all: Api<CSINode> = Api::all(self.client.clone());
        let found = all.get_opt(&self.node).await.map_err(self.api_error("reading the CSINode"))?;
        let Some(mut found) = found else {
            let made = plan_object(&node, driver);
            let created = all.create(&PostParams::default(), &made).await;
            return created.map(drop).map_err(self.api_error("creating the CSINode"));
        };
        match found.spec.drivers.iter_mut().find(|old| old.name == name) {
            Some(old) if *old == driver => return Ok(()),
            Some(old) => *old = driver,
            None => found.spec.drivers.push(driver),
        }
        let replaced = all.replace(&self.node, &PostParams::default(), &found).await;
        replaced.map(drop).map_err(self.api_error("updating the CSINode"))
    }

    /// Removes a driver. Labels stay, as its volumes do.
    pub async fn remove(&self, name: &str) -> Result<(), NodeObjectError> {
        let _writing = self.writing.lock().await;
        let all: Api<CSINode> = Api::all(self.client.clone());
        let found = all.get_opt(&self.node).await.map_err(self.api_error("reading the CSINode"))?;
        let Some(mut found) = found else { return Ok(()) };
        let before = found.spec.drivers.len();
        found.spec.drivers.retain(|driver| driver.name != name);
        if found.spec.drivers.len() == before {
            return Ok(());
        }
        let replaced = all.replace(&self.node, &PostParams::default(), &found).await;
        replaced.map(drop).map_err(self.api_error("updating the CSINode"))
    }
}

fn segments(info: &NodeGetInfoResponse) -> BTreeMap<String, String> {
    let all = info.accessible_topology.iter().flat_map(|topology| &topology.segments);
    all.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Labels of the driver's topology that the node does not have.
fn missing_labels(
    driver: &str,
    info: &NodeGetInfoResponse,
    labels: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, NodeObjectError> {
    let mut missing = BTreeMap::new();
    for (key, value) in segments(info) {
        match labels.get(&key) {
            Some(label) if *label == value => {}
            Some(label) => {
                let (driver, label) = (driver.to_owned(), label.clone());
                return Err(NodeObjectError::Topology { driver, key, value, label });
            }
            None => drop(missing.insert(key, value)),
        }
    }
    Ok(missing)
}

fn plan_driver(name: &str, info: &NodeGetInfoResponse) -> CSINodeDriver {
    let limit = i32::try_from(info.max_volumes_per_node).unwrap_or(i32::MAX);
    CSINodeDriver {
        name: name.to_owned(),
        node_id: info.node_id.clone(),
        topology_keys: Some(segments(info).into_keys().collect()),
        allocatable: (limit > 0).then_some(VolumeNodeResources { count: Some(limit) }),
    }
}

fn plan_object(node: &Node, driver: CSINodeDriver) -> CSINode {
    let name = node.metadata.name.clone().unwrap_or_default();
    CSINode {
        metadata: ObjectMeta {
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec { drivers: vec![driver] },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_csi::v1::Topology;

    fn info(zone: &str, limit: i64) -> NodeGetInfoResponse {
        let segments = [("example/zone".to_owned(), zone.to_owned())].into();
        NodeGetInfoResponse {
            node_id: "id".into(),
            max_volumes_per_node: limit,
            accessible_topology: Some(Topology { segments }),
        }
    }

    #[test]
    fn a_driver_says_where_the_node_is_and_how_much_fits() {
        let driver = plan_driver("d", &info("a", 3));
        assert_eq!(driver.topology_keys.unwrap(), ["example/zone"]);
        assert_eq!(driver.allocatable.unwrap().count, Some(3));
        assert_eq!(plan_driver("d", &info("a", 0)).allocatable, None, "no limit");
        assert_eq!(plan_driver("d", &info("a", -5)).allocatable, None);
        assert_eq!(plan_driver("d", &info("a", i64::MAX)).allocatable.unwrap().count, Some(i32::MAX));
    }

    #[test]
    fn labels_that_contradict_are_an_error() {
        let labels = |value: &str| BTreeMap::from([("example/zone".to_owned(), value.to_owned())]);
        assert_eq!(missing_labels("d", &info("a", 0), &BTreeMap::new()).unwrap(), labels("a"));
        assert!(missing_labels("d", &info("a", 0), &labels("a")).unwrap().is_empty());
        let error = missing_labels("d", &info("a", 0), &labels("b")).unwrap_err().to_string();
        assert!(error.contains("\"example/zone\" of driver \"d\" is \"a\""), "{error}");
    }
}
