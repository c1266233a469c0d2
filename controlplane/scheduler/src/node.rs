//! A node as the scheduler sees it: what it is, what runs there and what is left.

use super::declared_features::DeclaredFeatures;
use super::pod::{HostPort, PodInfo, normal_image};
use super::resources::{Resources, whole};
use super::wire::{self, Labels, Taint};
use std::collections::HashMap;
use std::sync::Arc;

/// A node.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct NodeInfo {
    pub name: String,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub unschedulable: bool,
    pub allocatable: Resources,
    pub max_pods: i64,
    pub images: HashMap<Arc<str>, i64>,
    pub features: DeclaredFeatures,
    /// Sum of what its pods ask for.
    pub requested: Resources,
    /// The same for comparing nodes.
    pub comparable: (i64, i64),
    pub pods: Vec<Arc<PodInfo>>,
    pub ports: Vec<HostPort>,
    /// Pods that are nominated to this node.
    pub nominated: Vec<Arc<PodInfo>>,
    /// Counts changes of what it is, not of what runs there.
    pub shape: u32,
}

impl NodeInfo {
    /// From an object.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::from_slice(json)?))
    }

    /// From the wire form.
    pub fn new(node: wire::Node) -> Self {
        let sizes = node.status.images.iter();
        let images = sizes.flat_map(|i| i.names.iter().map(|n| (normal_image(n), i.size_bytes)));
        Self {
            name: node.metadata.name,
            labels: node.metadata.labels,
            taints: node.spec.taints,
            unschedulable: node.spec.unschedulable,
            allocatable: Resources::parse(&node.status.allocatable),
            max_pods: node.status.allocatable.get("pods").map_or(0, whole),
            images: images.collect(),
            features: DeclaredFeatures::of_node(&node.status.declared_features),
            ..Self::default()
        }
    }

    /// Whether both are the same kind of place for any pod.
    pub fn same_shape(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.taints == other.taints
            && self.unschedulable == other.unschedulable
            && self.allocatable == other.allocatable
            && self.max_pods == other.max_pods
            && self.images == other.images
            && self.features == other.features
    }

    /// Takes over what the node is, keeps what runs there.
    pub fn reshape(&mut self, new: Self) {
        self.labels = new.labels;
        self.taints = new.taints;
        self.unschedulable = new.unschedulable;
        self.allocatable = new.allocatable;
        self.max_pods = new.max_pods;
        self.images = new.images;
        self.features = new.features;
        self.shape += 1;
    }

    /// A pod runs here.
    pub fn add(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests, 1);
        self.comparable.0 += pod.comparable.0;
        self.comparable.1 += pod.comparable.1;
        self.ports.extend(pod.ports.iter().cloned());
        self.pods.push(pod);
    }

    /// A pod no longer runs here.
    pub fn remove(&mut self, pod: &PodInfo) {
        let Some(at) = self.pods.iter().position(|p| p.key == pod.key) else { return };
        let gone = self.pods.swap_remove(at);
        self.requested.add(&gone.requests, -1);
        self.comparable.0 -= gone.comparable.0;
        self.comparable.1 -= gone.comparable.1;
        for port in &gone.ports {
            if let Some(at) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(at);
            }
        }
    }
}
