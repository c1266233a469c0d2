//! The parts of API objects that scheduling reads. Anything else in the JSON is skipped while parsing.

use coracle_fields::core::v1;
use coracle_fields::{fields, meta};
use serde_json::Value;
use std::collections::BTreeMap;

/// String labels.
pub type Labels = BTreeMap<String, String>;
/// Quantities by resource name; numbers happen in hand-written manifests.
pub type Quantities = BTreeMap<String, Value>;

fields! {
    /// Metadata.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Meta: meta::ObjectMeta {
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
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Owner: meta::OwnerReference {
        pub uid: String,
        pub controller: bool,
    }

    /// A Pod.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Pod: v1::Pod {
        pub metadata: Meta,
        pub spec: PodSpec,
        pub status: PodStatus,
    }

    /// A Pod's spec.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PodSpec: v1::PodSpec {
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
        pub resource_claims: Vec<DeviceClaim>,
        pub host_network: bool,
        pub host_users: Option<bool>,
    }

    /// A scheduling gate.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Gate: v1::PodSchedulingGate {
        pub name: String,
    }

    /// A claim of devices.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct DeviceClaim: v1::PodResourceClaim {
        pub name: String,
        pub resource_claim_name: Option<String>,
    }

    /// The claim that was made for a pod from a template; without a name none is needed.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct GeneratedClaim: v1::PodResourceClaimStatus {
        pub name: String,
        pub resource_claim_name: Option<String>,
    }

    /// A Pod's status.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PodStatus: v1::PodStatus {
        pub phase: String,
        pub nominated_node_name: String,
        pub start_time: Option<String>,
        pub conditions: Vec<Condition>,
        pub resource_claim_statuses: Vec<GeneratedClaim>,
        pub container_statuses: Vec<ContainerStatus>,
        pub init_container_statuses: Vec<ContainerStatus>,
        pub resources: Option<Requests>,
        pub allocated_resources: Quantities,
    }

    /// What a container was given by its node, and what it has.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct ContainerStatus: v1::ContainerStatus {
        pub name: String,
        pub resources: Option<Requests>,
        pub allocated_resources: Quantities,
    }

    /// A condition.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Condition: v1::PodCondition {
        pub type_: String,
        pub status: String,
        pub reason: String,
        pub message: String,
    }

    /// A container.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Container: v1::Container {
        pub name: String,
        pub image: String,
        pub resources: Requests,
        pub ports: Vec<Port>,
        pub restart_policy: Option<String>,
        pub restart_policy_rules: Vec<RestartRule>,
    }

    /// What is done when a container exits.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct RestartRule: v1::ContainerRestartRule {
        pub action: String,
    }

    /// Resource requests.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Requests: v1::ResourceRequirements {
        pub requests: Quantities,
    }

    /// A container port.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Port: v1::ContainerPort {
        pub container_port: u16,
        pub host_port: u16,
        pub host_ip: String,
        pub protocol: String,
    }

    /// A volume.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Volume: v1::Volume {
        pub name: String,
        pub persistent_volume_claim: Option<ClaimSource>,
        pub ephemeral: Option<Value>,
    }

    /// A claim in a volume.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct ClaimSource: v1::PersistentVolumeClaimVolumeSource {
        pub claim_name: String,
    }

    /// Affinity.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Affinity: v1::Affinity {
        pub node_affinity: NodeAffinity,
        pub pod_affinity: PodAffinity,
        pub pod_anti_affinity: PodAntiAffinity,
    }

    /// Node affinity.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct NodeAffinity: v1::NodeAffinity {
        pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
        pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredNodeTerm>,
    }

    /// A node selector.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub struct NodeSelector: v1::NodeSelector {
        pub node_selector_terms: Vec<NodeTerm>,
    }

    /// A preferred node term.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PreferredNodeTerm: v1::PreferredSchedulingTerm {
        pub weight: i64,
        pub preference: NodeTerm,
    }

    /// A node term.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub struct NodeTerm: v1::NodeSelectorTerm {
        pub match_expressions: Vec<NodeRequirement>,
        pub match_fields: Vec<NodeRequirement>,
    }

    /// A node requirement.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub struct NodeRequirement: v1::NodeSelectorRequirement {
        pub key: String,
        pub operator: String,
        pub values: Vec<String>,
    }

    /// Pod affinity.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PodAffinity: v1::PodAffinity {
        pub required_during_scheduling_ignored_during_execution: Vec<PodTerm>,
        pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredPodTerm>,
    }

    /// Pod anti-affinity.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PodAntiAffinity: v1::PodAntiAffinity {
        pub required_during_scheduling_ignored_during_execution: Vec<PodTerm>,
        pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredPodTerm>,
    }

    /// A preferred pod term.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PreferredPodTerm: v1::WeightedPodAffinityTerm {
        pub weight: i64,
        pub pod_affinity_term: PodTerm,
    }

    /// A pod term.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct PodTerm: v1::PodAffinityTerm {
        pub label_selector: Value,
        pub namespaces: Vec<String>,
        pub namespace_selector: Value,
        pub topology_key: String,
        pub match_label_keys: Vec<String>,
        pub mismatch_label_keys: Vec<String>,
    }

    /// A toleration.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub struct Toleration: v1::Toleration {
        pub key: String,
        pub operator: String,
        pub value: String,
        pub effect: String,
    }

    /// A spread constraint.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct SpreadConstraint: v1::TopologySpreadConstraint {
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
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Node: v1::Node {
        pub metadata: Meta,
        pub spec: NodeSpec,
        pub status: NodeStatus,
    }

    /// A Node's spec.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct NodeSpec: v1::NodeSpec {
        pub unschedulable: bool,
        pub taints: Vec<Taint>,
    }

    /// A taint.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Taint: v1::Taint {
        pub key: String,
        pub value: String,
        pub effect: String,
    }

    /// A Node's status.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct NodeStatus: v1::NodeStatus {
        pub allocatable: Quantities,
        pub images: Vec<Image>,
        pub declared_features: Vec<String>,
    }

    /// An image on a node.
    #[derive(Debug)]
    #[allow(missing_docs)]
    pub struct Image: v1::ContainerImage {
        pub names: Vec<String>,
        pub size_bytes: i64,
    }
}
