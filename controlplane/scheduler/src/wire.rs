//! The parts of API objects that scheduling reads. Anything else in the JSON is skipped while parsing.

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// String labels.
pub type Labels = BTreeMap<String, String>;
/// Quantities by resource name; numbers happen in hand-written manifests.
pub type Quantities = BTreeMap<String, Value>;

/// Metadata.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub generation: i64,
    pub labels: Labels,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    pub owner_references: Vec<Owner>,
}

/// An owner.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Owner {
    pub uid: String,
    pub controller: bool,
}

/// A Pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

/// A Pod's spec.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct PodSpec {
    pub node_name: String,
    pub scheduler_name: String,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub overhead: Quantities,
    pub resources: Option<Requests>,
    pub node_selector: Labels,
    pub affinity: Affinity,
    pub tolerations: Vec<Toleration>,
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    pub priority: Option<i32>,
    pub preemption_policy: Option<String>,
    pub scheduling_gates: Vec<Gate>,
    pub volumes: Vec<Volume>,
    pub resource_claims: Vec<Gate>,
    pub host_network: bool,
}

/// A scheduling gate, or a claim of devices: what has a name.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Gate {
    pub name: String,
}

/// A Pod's status.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct PodStatus {
    pub phase: String,
    pub nominated_node_name: String,
    pub start_time: Option<String>,
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// A container.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Container {
    pub image: String,
    pub resources: Requests,
    pub ports: Vec<Port>,
    pub restart_policy: Option<String>,
}

/// Resource requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Requests {
    pub requests: Quantities,
}

/// A container port.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Port {
    pub container_port: u16,
    pub host_port: u16,
    #[serde(rename = "hostIP")]
    pub host_ip: String,
    pub protocol: String,
}

/// A volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Volume {
    pub name: String,
    pub persistent_volume_claim: Option<ClaimSource>,
    pub ephemeral: Option<Value>,
}

/// A claim in a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct ClaimSource {
    pub claim_name: String,
}

/// Affinity.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Affinity {
    pub node_affinity: NodeAffinity,
    pub pod_affinity: PodAffinity,
    pub pod_anti_affinity: PodAffinity,
}

/// Node affinity.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredNodeTerm>,
}

/// A node selector.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct NodeSelector {
    pub node_selector_terms: Vec<NodeTerm>,
}

/// A preferred node term.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct PreferredNodeTerm {
    pub weight: i64,
    pub preference: NodeTerm,
}

/// A node term.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct NodeTerm {
    pub match_expressions: Vec<NodeRequirement>,
    pub match_fields: Vec<NodeRequirement>,
}

/// A node requirement.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NodeRequirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

/// Pod (anti-)affinity.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Vec<PodTerm>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Vec<PreferredPodTerm>,
}

/// A preferred pod term.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct PreferredPodTerm {
    pub weight: i64,
    pub pod_affinity_term: PodTerm,
}

/// A pod term.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct PodTerm {
    pub label_selector: Value,
    pub namespaces: Vec<String>,
    pub namespace_selector: Value,
    pub topology_key: String,
    pub match_label_keys: Vec<String>,
    pub mismatch_label_keys: Vec<String>,
}

/// A toleration.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

/// A spread constraint.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct SpreadConstraint {
    pub max_skew: i64,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    pub label_selector: Value,
    pub min_domains: Option<i64>,
    pub node_affinity_policy: Option<String>,
    pub node_taints_policy: Option<String>,
    pub match_label_keys: Vec<String>,
}

/// A Node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Node {
    pub metadata: Meta,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

/// A Node's spec.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NodeSpec {
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

/// A taint.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

/// A Node's status.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct NodeStatus {
    pub allocatable: Quantities,
    pub images: Vec<Image>,
}

/// An image on a node.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Image {
    pub names: Vec<String>,
    pub size_bytes: i64,
}
