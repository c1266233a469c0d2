//! A pod as the scheduler sees it.

use super::declared_features::DeclaredFeatures;
use super::extended_uses::{self, ContainerUse};
use super::rejection::Plugin;
use super::requests::{comparable_requests, pod_requests};
use super::resize;
use super::resources::Resources;
use super::rules::Rules;
use super::terms::{Namespaces, Term, with_label_keys};
use super::wire::{self, Labels, NodeSelector, NodeTerm, Toleration};
use coracle_kinds::object::Meta;
use coracle_proto::selector::{LabelSelector, Operator};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Labels that differ between pods that are otherwise the same.
const ORDINAL_LABELS: [&str; 3] = [
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
];
/// The node label that names a host.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// The node label that names a zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// `namespace/name`.
pub type PodKey = Arc<str>;

/// A port on the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The address, `0.0.0.0` for all.
    pub ip: String,
    /// `TCP`, `UDP`, `SCTP`.
    pub protocol: String,
    /// The port.
    pub port: u16,
}

/// A claim of devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceClaim {
    /// Its name in the pod.
    pub name: String,
    /// The ResourceClaim.
    pub source: ClaimSource,
}

/// Where a claim of a pod comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimSource {
    /// The pod names it.
    Named(String),
    /// It was made for the pod.
    Generated(String),
    /// It is to be made for the pod.
    Awaited,
    /// The pod needs none after all.
    NotNeeded,
}

/// How nodes count for a spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    /// The pods that are counted, and the topology.
    pub term: Arc<Term>,
    /// How uneven it may become.
    pub max_skew: i64,
    /// With fewer domains than this, the least is zero.
    pub min_domains: i64,
    /// `DoNotSchedule`.
    pub hard: bool,
    /// Only nodes that the pod's node affinity admits count.
    pub honor_affinity: bool,
    /// Only nodes whose taints the pod tolerates count.
    pub honor_taints: bool,
}

/// A pod.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct PodInfo {
    pub key: PodKey,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Counts changes of the spec; 0 when nobody does.
    pub generation: i64,
    pub labels: Arc<Labels>,
    pub owner: Option<Arc<str>>,
    pub node: String,
    pub scheduler: String,
    pub requests: Resources,
    /// CPU and memory for comparing nodes.
    pub comparable: (i64, i64),
    /// Whether its status may change what it counts for.
    pub resizing: bool,
    pub ports: Vec<HostPort>,
    pub node_selector: Labels,
    pub node_required: Option<NodeSelector>,
    pub node_preferred: Vec<(i64, NodeTerm)>,
    pub tolerations: Arc<[Toleration]>,
    pub affinity: Vec<Arc<Term>>,
    pub anti_affinity: Vec<Arc<Term>>,
    /// Positive weights attract, negative repel.
    pub preferred: Vec<(i64, Arc<Term>)>,
    pub spread: Vec<Spread>,
    /// Whether it has no constraints of its own.
    pub spread_by_default: bool,
    pub images: Vec<Arc<str>>,
    /// What its node has to declare.
    pub features: DeclaredFeatures,
    pub priority: i32,
    pub never_preempts: bool,
    pub gates: Vec<String>,
    pub claims: Vec<String>,
    pub device_claims: Vec<DeviceClaim>,
    /// Containers with resources that devices may be behind.
    pub extended_uses: Vec<ContainerUse>,
    pub deleting: bool,
    /// Being deleted by preemption.
    pub preempted: bool,
    pub finished: bool,
    pub nominated: String,
    /// When it started, or was created; ISO times sort as text.
    pub started: String,
    /// The `PodScheduled` condition: reason and message.
    pub condition: Option<(String, String)>,
    /// Equal for pods that fit and score alike everywhere.
    pub class: u64,
    /// Its rules, unless they are the default ones.
    pub rules: Option<Arc<Rules>>,
}

impl PodInfo {
    /// From an object.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::from_slice(json)?))
    }

    /// From the wire form.
    pub fn new(pod: wire::Pod) -> Self {
        let wire::Pod { metadata: meta, mut spec, status } = pod;
        let (namespace, labels) = (meta.namespace, meta.labels);
        let owner: Option<Arc<str>> =
            meta.owner_references.iter().find(|o| o.controller).map(|o| o.uid.as_str().into());
        let terms =
            |list: &[wire::PodTerm]| list.iter().map(|t| Term::of_affinity(t, &namespace, &labels)).collect();
        let weighted = |list: &[wire::PreferredPodTerm], sign: i64| -> Vec<(i64, Arc<Term>)> {
            list.iter()
                .map(|t| (sign * t.weight, Term::of_affinity(&t.pod_affinity_term, &namespace, &labels)))
                .collect()
        };
        let wire::Affinity { node_affinity, pod_affinity, pod_anti_affinity } =
            std::mem::take(&mut spec.affinity);
        let mut preferred = weighted(&pod_affinity.preferred_during_scheduling_ignored_during_execution, 1);
        preferred
            .extend(weighted(&pod_anti_affinity.preferred_during_scheduling_ignored_during_execution, -1));
        let condition = status.conditions.iter().find(|c| c.type_ == "PodScheduled");
        let disrupted = |c: &wire::Condition| {
            c.type_ == "DisruptionTarget" && c.status == "True" && c.reason == "PreemptionByScheduler"
        };
        let mut made = Self {
            key: format!("{namespace}/{}", meta.name).into(),
            uid: meta.uid,
            generation: meta.generation,
            requests: pod_requests(&spec, &status),
            comparable: comparable_requests(&spec, &status),
            resizing: resize::is_under_way(&spec, &status),
            ports: ports(&spec),
            affinity: terms(&pod_affinity.required_during_scheduling_ignored_during_execution),
            anti_affinity: terms(&pod_anti_affinity.required_during_scheduling_ignored_during_execution),
            preferred,
            spread_by_default: spec.topology_spread_constraints.is_empty(),
            spread: spread(&spec.topology_spread_constraints, &namespace, &labels, owner.as_deref()),
            images: images(&spec),
            features: DeclaredFeatures::of_pod(&spec),
            claims: claims(&spec, &meta.name),
            device_claims: device_claims(&spec, &status),
            extended_uses: extended_uses::uses(&spec),
            gates: spec.scheduling_gates.into_iter().map(|g| g.name).collect(),
            node: spec.node_name,
            scheduler: spec.scheduler_name,
            node_selector: spec.node_selector,
            node_required: node_affinity.required_during_scheduling_ignored_during_execution,
            node_preferred: node_affinity
                .preferred_during_scheduling_ignored_during_execution
                .into_iter()
                .map(|p| (p.weight, p.preference))
                .collect(),
            tolerations: spec.tolerations.into(),
            priority: spec.priority.unwrap_or(0),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            deleting: meta.deletion_timestamp.is_some(),
            preempted: meta.deletion_timestamp.is_some() && status.conditions.iter().any(disrupted),
            finished: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
            nominated: status.nominated_node_name,
            started: status.start_time.or(meta.creation_timestamp).unwrap_or_default(),
            condition: condition.map(|c| (c.reason.clone(), c.message.clone())),
            name: meta.name,
            namespace,
            labels: labels.into(),
            owner,
            class: 0,
            rules: None,
        };
        made.class = made.class_hash();
        made
    }

    /// Whether an object with this metadata has the spec, labels and owner that were read.
    pub fn is_read_from(&self, meta: &Meta) -> bool {
        let owner = meta.owner_references.iter().find(|o| o.controller).map(|o| o.uid.as_str());
        self.uid == meta.uid
            && self.generation == meta.generation
            && self.generation != 0
            && self.deleting == meta.deletion_timestamp.is_some()
            && *self.labels == meta.labels
            && self.owner.as_deref() == owner
    }

    /// Holds what is equal in another pod together with it, so that it is in memory once.
    pub fn share(&mut self, like: &Self) {
        fn share<T: Clone + PartialEq>(own: &mut T, other: &T) {
            if own == other {
                own.clone_from(other);
            }
        }
        share(&mut self.labels, &like.labels);
        share(&mut self.owner, &like.owner);
        share(&mut self.tolerations, &like.tolerations);
        share(&mut self.affinity, &like.affinity);
        share(&mut self.anti_affinity, &like.anti_affinity);
        share(&mut self.preferred, &like.preferred);
        share(&mut self.spread, &like.spread);
        share(&mut self.images, &like.images);
    }

    fn class_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let h = &mut hasher;
        (&self.namespace, &self.owner, &self.requests, &self.comparable, &self.ports).hash(h);
        for label in self.labels.iter().filter(|(key, _)| !ORDINAL_LABELS.contains(&key.as_str())) {
            label.hash(h);
        }
        (&self.node_selector, &self.node_required, &self.node_preferred, &self.tolerations).hash(h);
        (&self.affinity, &self.anti_affinity, &self.preferred, &self.spread).hash(h);
        (&self.images, self.features, self.priority, self.never_preempts, &self.scheduler).hash(h);
        // Claims bind to one pod: each such pod is a class of its own.
        if self.has_claims() {
            (&self.key, &self.device_claims, &self.extended_uses).hash(h);
        }
        hasher.finish()
    }

    /// Whether it has claims of volumes or devices, or may get one for its extended resources.
    pub fn has_claims(&self) -> bool {
        !(self.claims.is_empty() && self.device_claims.is_empty() && self.extended_uses.is_empty())
    }

    /// Whether a rule is about the pod.
    pub fn matches(&self, term: &Term, namespaces: &Namespaces) -> bool {
        !(term.living_only && self.deleting) && self.is_subject_of(term, namespaces)
    }

    /// Whether a rule is about the pod, even while it is being deleted.
    pub fn is_subject_of(&self, term: &Term, namespaces: &Namespaces) -> bool {
        term.is_about(&self.namespace, &self.labels, self.owner.as_ref(), namespaces)
    }

    /// Whether a rule about ordinal labels makes pods of one class differ.
    pub fn differs_by(term: &Term) -> bool {
        ORDINAL_LABELS.iter().any(|label| term.mentions(label))
    }

    /// The only nodes it may run on, when its affinity names them.
    pub fn named_nodes(&self) -> Option<Vec<&str>> {
        let terms = &self.node_required.as_ref()?.node_selector_terms;
        let mut names = Vec::new();
        for term in terms {
            let field = term.match_fields.iter().find(|f| f.key == "metadata.name" && f.operator == "In")?;
            names.extend(field.values.iter().map(String::as_str));
        }
        Some(names)
    }

    /// Whether a rule does not apply to it.
    pub fn skips(&self, plugin: Plugin) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.skipped.has(plugin))
    }

    /// Whether it has rules about other pods.
    pub fn has_terms(&self) -> bool {
        !(self.affinity.is_empty() && self.anti_affinity.is_empty() && self.preferred.is_empty())
    }
}

fn ports(spec: &wire::PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports);
    let mut found: Vec<HostPort> = ports
        .map(|p| (if p.host_port == 0 && spec.host_network { p.container_port } else { p.host_port }, p))
        .filter(|(port, _)| *port != 0)
        .map(|(port, p)| HostPort {
            ip: if p.host_ip.is_empty() { "0.0.0.0".into() } else { p.host_ip.clone() },
            protocol: if p.protocol.is_empty() { "TCP".into() } else { p.protocol.clone() },
            port,
        })
        .collect();
    found.dedup();
    found
}

/// Explicit constraints, or gentle ones over hosts and zones for pods of a controller.
fn spread(
    list: &[wire::SpreadConstraint],
    namespace: &str,
    labels: &Labels,
    owner: Option<&str>,
) -> Vec<Spread> {
    let explicit = list.iter().map(|c| {
        let mut selector = LabelSelector::from_object(&c.label_selector).unwrap_or(LabelSelector::Nothing);
        with_label_keys(&mut selector, &c.match_label_keys, Operator::In, labels);
        Spread {
            term: Term::of_spread(&c.topology_key, selector, namespace),
            max_skew: c.max_skew.max(1),
            min_domains: c.min_domains.unwrap_or(1),
            hard: c.when_unsatisfiable != "ScheduleAnyway",
            honor_affinity: c.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: c.node_taints_policy.as_deref() == Some("Honor"),
        }
    });
    let explicit: Vec<Spread> = explicit.collect();
    let Some(owner) = owner.filter(|_| explicit.is_empty()) else { return explicit };
    let gentle = |topology: &str, max_skew| Spread {
        term: Term::of_owner(topology, owner, namespace),
        max_skew,
        min_domains: 1,
        hard: false,
        honor_affinity: true,
        honor_taints: false,
    };
    vec![gentle(HOSTNAME, 3), gentle(ZONE, 5)]
}

/// Image names as nodes report them.
fn images(spec: &wire::PodSpec) -> Vec<Arc<str>> {
    let all = spec.containers.iter().chain(&spec.init_containers).map(|c| c.image.as_str());
    all.filter(|i| !i.is_empty()).map(normal_image).collect()
}

/// `nginx` is `nginx:latest`.
pub fn normal_image(name: &str) -> Arc<str> {
    let tagged = name.rfind(':').is_some_and(|colon| name.rfind('/').is_none_or(|slash| colon > slash));
    if tagged { name.into() } else { format!("{name}:latest").into() }
}

fn claims(spec: &wire::PodSpec, pod: &str) -> Vec<String> {
    let claim = |volume: &wire::Volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(claim), _) => Some(claim.claim_name.clone()),
        (None, Some(_)) => Some(format!("{pod}-{}", volume.name)),
        _ => None,
    };
    spec.volumes.iter().filter_map(claim).collect()
}

fn device_claims(spec: &wire::PodSpec, status: &wire::PodStatus) -> Vec<DeviceClaim> {
    let source = |claim: &wire::DeviceClaim| {
        if let Some(name) = &claim.resource_claim_name {
            return ClaimSource::Named(name.clone());
        }
        let made = status.resource_claim_statuses.iter().find(|made| made.name == claim.name);
        match made.map(|made| &made.resource_claim_name) {
            Some(Some(name)) => ClaimSource::Generated(name.clone()),
            Some(None) => ClaimSource::NotNeeded,
            None => ClaimSource::Awaited,
        }
    };
    let claims = spec.resource_claims.iter();
    claims.map(|claim| DeviceClaim { name: claim.name.clone(), source: source(claim) }).collect()
}
