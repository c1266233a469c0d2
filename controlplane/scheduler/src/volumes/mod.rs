//! Claims and volumes: where a pod's storage is, or could be.

// How many volumes fit on a node.
mod limits;
// How much space there is for new volumes.
mod capacity;
// Provisioners that give a node up.
mod refusal;

use super::node::NodeInfo;
use super::node_selector::selects;
use super::pod::PodInfo;
use super::rejection::{Plugin, Rejection};
use super::resources::whole;
use super::terms;
use super::wire::{Labels, NodeRequirement, NodeSelector, NodeTerm};
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim, TopologySelectorTerm};
use coracle_fields::{List, Text, View, storage, storage_class};
use coracle_proto::selector::LabelSelector;
use std::collections::HashMap;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const ZONE_LABELS: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];

/// A claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claim {
    uid: String,
    volume: String,
    bound: bool,
    class: String,
    modes: Vec<String>,
    size: i64,
    deleting: bool,
    selected_node: String,
    /// Labels of the volume; unset: any.
    selector: Option<LabelSelector>,
    block: bool,
    attributes_class: String,
    /// Its provisioner has given the selected node up.
    deselected: bool,
}

/// A volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Volume {
    class: String,
    modes: Vec<String>,
    size: i64,
    available: bool,
    /// `namespace/name` of the claim it is reserved for.
    claim: String,
    /// Uid of that claim, if the reservation names it.
    claim_uid: String,
    deleting: bool,
    labels: Labels,
    block: bool,
    attributes_class: String,
    affinity: Option<NodeSelector>,
    zones: Vec<(String, Vec<String>)>,
    /// Storage driver and its name of the volume.
    disk: Option<(String, String)>,
}

/// A storage class.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StorageClass {
    waits: bool,
    provisions: bool,
    provisioner: String,
    topologies: Option<NodeSelector>,
}

/// What must happen to a claim before its pod is bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This volume is reserved for the claim.
    Reserve {
        /// Claim name.
        claim: String,
        /// Volume name.
        volume: String,
    },
    /// A volume is made for the claim, near the chosen node.
    Provision {
        /// Claim name.
        claim: String,
    },
}

/// All storage objects that matter.
#[derive(Debug, Default)]
pub struct Volumes {
    claims: HashMap<String, Claim>,
    volumes: HashMap<String, Volume>,
    classes: HashMap<String, StorageClass>,
    used: HashMap<String, u32>,
    /// By node.
    limits: HashMap<String, limits::Limits>,
    /// CSIStorageCapacities.
    capacities: HashMap<String, capacity::Capacity>,
    /// Drivers that publish CSIStorageCapacities.
    publishers: HashMap<String, ()>,
    /// Counts changes.
    pub version: u64,
}

fn texts(list: View<'_, List<Text>>) -> Vec<String> {
    list.texts().map(str::to_owned).collect()
}

impl Volumes {
    /// A claim came, changed or went. Tells whether anything changed.
    pub fn set_claim(&mut self, key: &str, object: Option<View<'_, PersistentVolumeClaim>>) -> bool {
        let before = self.claims.get(key);
        let made = object.map(|claim| {
            let (meta, spec) = (claim.metadata(), claim.spec());
            let selector = spec.selector();
            let selected_node = meta.annotations().key(SELECTED_NODE).text().to_owned();
            let had_node = before.filter(|old| old.uid == meta.uid().text());
            let had_node = had_node.is_some_and(|old| old.deselected || !old.selected_node.is_empty());
            Claim {
                deselected: had_node && selected_node.is_empty(),
                uid: meta.uid().text().to_owned(),
                volume: spec.volume_name().text().to_owned(),
                bound: claim.status().phase() == "Bound",
                class: storage_class::of_claim(claim).unwrap_or_default().to_owned(),
                modes: texts(spec.access_modes()),
                size: whole(&spec.resources().requests().key("storage").to_value()),
                deleting: meta.deletion_timestamp().get().is_some(),
                selected_node,
                selector: selector.is_set().then(|| {
                    LabelSelector::from_object(&selector.to_value()).unwrap_or(LabelSelector::Nothing)
                }),
                block: spec.volume_mode() == "Block",
                attributes_class: spec.volume_attributes_class_name().text().to_owned(),
            }
        });
        let changed = set(&mut self.claims, key, made);
        self.version += u64::from(changed);
        changed
    }

    /// A volume came, changed or went.
    pub fn set_volume(&mut self, key: &str, object: Option<View<'_, PersistentVolume>>) -> bool {
        let made = object.map(|volume| {
            let (meta, spec) = (volume.metadata(), volume.spec());
            let labels = meta.labels();
            let reserved = spec.claim_ref();
            let zones = ZONE_LABELS.iter().filter_map(|label| {
                let value = labels.key(label).get()?;
                Some(((*label).to_owned(), value.split("__").map(str::to_owned).collect()))
            });
            Volume {
                class: storage_class::of_volume(volume).to_owned(),
                modes: texts(spec.access_modes()),
                size: whole(&spec.capacity().key("storage").to_value()),
                available: matches!(volume.status().phase().get(), Some("Available") | None),
                claim: if reserved.is_set() {
                    format!("{}/{}", reserved.namespace().text(), reserved.name().text())
                } else {
                    String::new()
                },
                claim_uid: reserved.uid().text().to_owned(),
                deleting: meta.deletion_timestamp().get().is_some(),
                labels: labels.read().unwrap_or_default(),
                block: spec.volume_mode() == "Block",
                attributes_class: spec.volume_attributes_class_name().text().to_owned(),
                affinity: spec.node_affinity().required().read::<Option<NodeSelector>>().ok().flatten(),
                zones: zones.collect(),
                disk: spec
                    .csi()
                    .driver()
                    .get()
                    .map(|driver| (driver.to_owned(), spec.csi().volume_handle().text().to_owned())),
            }
        });
        let changed = set(&mut self.volumes, key, made);
        self.version += u64::from(changed);
        changed
    }

    /// A storage class came, changed or went.
    pub fn set_class(&mut self, key: &str, object: Option<View<'_, storage::v1::StorageClass>>) -> bool {
        let made = object.map(|class| StorageClass {
            waits: class.volume_binding_mode() == "WaitForFirstConsumer",
            provisions: class.provisioner().get().is_some_and(|p| p != NO_PROVISIONER),
            provisioner: class.provisioner().text().to_owned(),
            topologies: allowed(class.allowed_topologies()),
        });
        let changed = set(&mut self.classes, key, made);
        self.version += u64::from(changed);
        changed
    }

    /// Counts a pod's use of its claims.
    pub fn uses(&mut self, pod: &PodInfo, sign: i32) {
        for claim in &pod.claims {
            let used = self.used.entry(format!("{}/{claim}", pod.namespace)).or_default();
            *used = used.saturating_add_signed(sign);
        }
    }

    /// Why the pod fits no node: a claim that is missing, terminating, or to be bound by the volume controller first.
    pub fn blocked(&self, pod: &PodInfo) -> Option<String> {
        let mut immediate = false;
        for name in &pod.claims {
            match self.claims.get(&format!("{}/{name}", pod.namespace)) {
                None => return Some(format!("persistentvolumeclaim \"{name}\" not found")),
                Some(claim) if claim.deleting => {
                    return Some(format!("persistentvolumeclaim \"{name}\" is being deleted"));
                }
                Some(claim) if claim.is_bound() => {}
                // The volume controller binds a claim that names its volume, whatever its class says.
                Some(claim) => {
                    let waits = self.classes.get(&claim.class).is_some_and(|c| c.waits);
                    immediate |= !waits || !claim.volume.is_empty();
                }
            }
        }
        immediate.then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned())
    }

    /// Whether every claim of the pod has its volume.
    pub fn ready(&self, pod: &PodInfo) -> bool {
        pod.claims
            .iter()
            .all(|name| self.claims.get(&format!("{}/{name}", pod.namespace)).is_some_and(Claim::is_bound))
    }

    /// Whether the pod's storage can be reached from a node.
    pub fn check(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if pod.claims.is_empty() {
            return Ok(());
        }
        if !pod.skips(Plugin::VolumeRestrictions) {
            self.check_single_use(pod)?;
        }
        if !pod.skips(Plugin::NodeVolumeLimits) {
            self.check_limits(pod, node)?;
        }
        self.decide(pod, node).map(drop)
    }

    fn check_single_use(&self, pod: &PodInfo) -> Result<(), Rejection> {
        for name in &pod.claims {
            let key = format!("{}/{name}", pod.namespace);
            let single =
                self.claims.get(&key).is_some_and(|c| c.modes.iter().any(|m| m == "ReadWriteOncePod"));
            if single && self.used.get(&key).is_some_and(|n| *n > 0) {
                return Err(Rejection::new(
                    Plugin::VolumeRestrictions,
                    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
                ));
            }
        }
        Ok(())
    }

    /// What must be done with the pod's claims to run it on a node.
    pub fn decide(&self, pod: &PodInfo, node: &NodeInfo) -> Result<Vec<Decision>, Rejection> {
        let mut decisions = Vec::new();
        let mut taken: Vec<&str> = Vec::new();
        for name in &pod.claims {
            let key = format!("{}/{name}", pod.namespace);
            let Some(claim) = self.claims.get(&key) else { continue };
            if claim.is_bound() {
                self.check_bound(pod, claim, node)?;
                continue;
            }
            if pod.skips(Plugin::VolumeBinding) {
                continue;
            }
            // A claim that has its node is being provisioned there: another volume would be lost with its data.
            let chosen = !claim.selected_node.is_empty();
            let elsewhere = chosen && claim.selected_node != node.name;
            let found = (!chosen).then(|| self.find(&key, claim, node, &taken)).flatten();
            if let Some(volume) = found {
                taken.push(volume);
                decisions.push(Decision::Reserve { claim: name.clone(), volume: volume.to_owned() });
                continue;
            }
            let class = self.classes.get(&claim.class);
            let class = class
                .filter(|c| c.provisions && c.topologies.as_ref().is_none_or(|t| selects(t, node)))
                .filter(|_| !elsewhere);
            let Some(class) = class else {
                return Err(Rejection::hopeless(
                    Plugin::VolumeBinding,
                    "node(s) didn't find available persistent volumes to bind",
                ));
            };
            if !self.has_room(claim, class, node) {
                return Err(Rejection::hopeless(
                    Plugin::VolumeBinding,
                    "node(s) did not have enough free storage",
                ));
            }
            decisions.push(Decision::Provision { claim: name.clone() });
        }
        Ok(decisions)
    }

    fn check_bound(&self, pod: &PodInfo, claim: &Claim, node: &NodeInfo) -> Result<(), Rejection> {
        let binding = !pod.skips(Plugin::VolumeBinding);
        let Some(volume) = self.volumes.get(&claim.volume) else {
            if !binding {
                return Ok(());
            }
            return Err(Rejection::hopeless(
                Plugin::VolumeBinding,
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            ));
        };
        if binding && volume.affinity.as_ref().is_some_and(|a| !selects(a, node)) {
            return Err(Rejection::hopeless(
                Plugin::VolumeBinding,
                "node(s) didn't match PersistentVolume's node affinity",
            ));
        }
        let zoned = |(label, values): &(String, Vec<String>)| {
            node.labels.get(label).is_none_or(|value| values.contains(value))
        };
        if !pod.skips(Plugin::VolumeZone) && !volume.zones.iter().all(zoned) {
            return Err(Rejection::hopeless(Plugin::VolumeZone, "node(s) had no available volume zone"));
        }
        Ok(())
    }

    /// The volume that is reserved for a claim, or the smallest one that suits it, if a node reaches it.
    fn find(&self, key: &str, claim: &Claim, node: &NodeInfo, taken: &[&str]) -> Option<&str> {
        let usable = |(name, volume): &(&String, &Volume)| {
            volume.class == claim.class && volume.could_hold(claim) && !taken.contains(&name.as_str())
        };
        let reaches = |volume: &Volume| volume.affinity.as_ref().is_none_or(|a| selects(a, node));
        let reserved = |(_, volume): &(&String, &Volume)| volume.is_reserved_for(key, claim);
        if let Some((name, volume)) = self.volumes.iter().filter(usable).find(reserved) {
            return reaches(volume).then_some(name.as_str());
        }
        self.volumes
            .iter()
            .filter(usable)
            .filter(|(_, v)| v.is_free() && v.offers(claim) && reaches(v))
            .min_by_key(|(name, v)| (v.size, name.as_str()))
            .map(|(name, _)| name.as_str())
    }
}

impl Volume {
    /// Whether size, modes of the volume and attributes are right; nothing replaces these, not even a reservation.
    fn could_hold(&self, claim: &Claim) -> bool {
        !self.deleting
            && self.size >= claim.size
            && self.block == claim.block
            && self.attributes_class == claim.attributes_class
    }

    fn is_reserved_for(&self, key: &str, claim: &Claim) -> bool {
        self.claim == key && (self.claim_uid.is_empty() || self.claim_uid == claim.uid)
    }

    fn is_free(&self) -> bool {
        self.claim.is_empty() && self.available
    }

    /// Whether it has the labels and the access modes that a claim asks for.
    fn offers(&self, claim: &Claim) -> bool {
        claim.modes.iter().all(|mode| self.modes.contains(mode))
            && claim.selector.as_ref().is_none_or(|s| terms::selects(s, &self.labels))
    }
}

impl Claim {
    fn is_bound(&self) -> bool {
        self.bound && !self.volume.is_empty()
    }
}

fn set<T: PartialEq>(map: &mut HashMap<String, T>, key: &str, value: Option<T>) -> bool {
    if map.get(key) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(key.to_owned(), value),
        None => map.remove(key),
    };
    true
}

/// `allowedTopologies` in the form of a node selector.
fn allowed(topologies: View<'_, List<TopologySelectorTerm>>) -> Option<NodeSelector> {
    let terms = topologies.items().map(|term| NodeTerm {
        match_expressions: term
            .match_label_expressions()
            .items()
            .map(|e| NodeRequirement {
                key: e.key().text().to_owned(),
                operator: "In".into(),
                values: texts(e.values()),
            })
            .collect(),
        match_fields: Vec::new(),
    });
    let node_selector_terms: Vec<NodeTerm> = terms.collect();
    (!node_selector_terms.is_empty()).then_some(NodeSelector { node_selector_terms })
}
