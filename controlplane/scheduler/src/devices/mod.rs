//! Claims of devices (dynamic resource allocation): which devices there are, who holds them, and what a pod's claims would get on
//! a node. What was decided and is not written yet counts as held, so that no two claims get the same device.

// The parts of objects that are read.
mod wire;
// Amounts of capacity.
mod capacity;
// Slices, put together.
mod pools;
// What claims have of devices.
mod held;
// Which devices an expression selects.
mod selection;
// Why claims keep a pod from every node.
mod error;
// Requests of a claim.
mod request;
// The search for devices.
mod search;
// What a claim gets.
mod result;
// Devices that must be made ready before a pod is bound.
mod binding;
// Extended resources of classes.
mod extended;

use crate::node::NodeInfo;
use crate::node_selector::selects;
use crate::pod::{ClaimSource, PodInfo, PodKey};
use crate::rejection::{Plugin, Rejection};
use crate::terms::Namespaces;
pub use binding::{BindingError, Readiness};
use coracle_kinds::object::Object;
pub use error::ClaimError;
pub use extended::ExtendedClaim;
use held::{Held, Hold, held_by};
use pools::Pools;
use selection::Selection;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use wire::{Claim, Class, Slice};

/// The label of namespaces whose claims may use devices that others hold.
const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";
/// The annotation of claims for extended resources.
pub const EXTENDED_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// The most consumers of a claim.
const MOST_CONSUMERS: usize = 256;
/// The verdict on nodes that an allocated claim is not for.
pub const ELSEWHERE: &str = "resourceclaim not available on the node";

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DeviceId {
    driver: Arc<str>,
    pool: Arc<str>,
    device: Arc<str>,
}

impl DeviceId {
    fn new(driver: &str, pool: &str, device: &str) -> Self {
        Self { driver: driver.into(), pool: pool.into(), device: device.into() }
    }

    /// Whether another device is in the same pool.
    fn is_beside(&self, other: &Self) -> bool {
        (&self.driver, &self.pool) == (&other.driver, &other.pool)
    }
}

/// A kind of object about devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DeviceKind {
    Claims,
    Classes,
    Slices,
}

/// What must be done with a claim of a pod.
#[derive(Debug, Clone)]
pub struct ClaimDecision {
    /// The name of the claim.
    pub claim: String,
    /// Its uid.
    pub uid: String,
    /// What it gets; `None` if it has its devices and is only to be reserved for the pod.
    pub allocation: Option<Value>,
    devices: Vec<Hold>,
    /// Its devices must be made ready before the pod is bound.
    has_conditions: bool,
    /// It is for the extended resources of the pod; without a uid it has to be created.
    pub extended: Option<ExtendedClaim>,
}

/// An allocation that the API does not show yet.
#[derive(Debug)]
struct Pending {
    pod: PodKey,
    devices: Vec<Hold>,
    /// The revision at which it was written.
    written: Option<u64>,
    /// The claim was created for it: until the API shows it, it is not known.
    is_new: bool,
}

/// Everything about devices.
#[derive(Debug, Default)]
pub struct Devices {
    /// By `namespace/name`, with their revisions.
    claims: HashMap<String, (Claim, u64)>,
    classes: HashMap<String, Class>,
    /// Classes by the extended resource that they are behind.
    by_resource: HashMap<String, String>,
    /// Claims for extended resources, by `namespace/name`, by uid of the pod.
    of_pods: HashMap<String, String>,
    slices: HashMap<String, Slice>,
    pools: Pools,
    /// Slices changed since pools were put together.
    is_stale: bool,
    selection: Selection,
    /// Devices that claims have.
    held: HashMap<DeviceId, Held>,
    /// By `namespace/name` of the claim.
    pending: HashMap<String, Pending>,
    /// Claims by `namespace/name` whose devices did not become ready in time.
    timed_out: HashSet<String>,
    /// Counts changes.
    pub version: u64,
}

impl Devices {
    /// An object came or changed. Tells whether that matters.
    pub fn set(&mut self, kind: DeviceKind, key: &str, object: &Object) -> Result<bool, serde_json::Error> {
        let changed = match kind {
            DeviceKind::Claims => self.set_claim(key, object.typed()?, object.revision),
            DeviceKind::Classes => {
                let changed = set(&mut self.classes, key, object.typed()?);
                self.by_resource = extended::by_resource(&self.classes);
                changed
            }
            DeviceKind::Slices => {
                let changed = set(&mut self.slices, key, object.typed()?);
                self.is_stale |= changed;
                changed
            }
        };
        self.version += u64::from(changed);
        Ok(changed)
    }

    /// An object went.
    pub fn remove(&mut self, kind: DeviceKind, key: &str) {
        match kind {
            DeviceKind::Claims => {
                if let Some((claim, _)) = self.claims.remove(key) {
                    self.hold(&held_by(&claim), -1);
                    if let Some(pod) = Self::extended_owner(&claim) {
                        self.of_pods.remove(pod);
                    }
                }
                self.timed_out.remove(key);
                self.settle(key);
            }
            DeviceKind::Classes => {
                self.classes.remove(key);
                self.by_resource = extended::by_resource(&self.classes);
            }
            DeviceKind::Slices => {
                self.slices.remove(key);
                self.is_stale = true;
            }
        }
        self.version += 1;
    }

    /// Forgets what is not in a complete list any more. Tells whether there was any.
    pub fn retain(&mut self, kind: DeviceKind, there: &HashSet<String>) -> bool {
        let known: Vec<String> = match kind {
            DeviceKind::Claims => self.claims.keys().chain(self.pending.keys()).cloned().collect(),
            DeviceKind::Classes => self.classes.keys().cloned().collect(),
            DeviceKind::Slices => self.slices.keys().cloned().collect(),
        };
        let before = self.version;
        known.iter().filter(|key| !there.contains(*key)).for_each(|key| self.remove(kind, key));
        self.version != before
    }

    fn set_claim(&mut self, key: &str, claim: Claim, revision: u64) -> bool {
        let before = self.claims.get(key).map(|(claim, _)| held_by(claim)).unwrap_or_default();
        let changed = self.claims.get(key).is_none_or(|(old, _)| *old != claim);
        self.hold(&held_by(&claim), 1);
        self.hold(&before, -1);
        if claim.status.allocation.is_none() {
            self.timed_out.remove(key);
        }
        if let Some(pod) = Self::extended_owner(&claim) {
            self.of_pods.insert(pod.to_owned(), key.to_owned());
        }
        self.claims.insert(key.to_owned(), (claim, revision));
        // Once the API shows what was written, or what became of it, the claim counts as it is there.
        let is_shown =
            self.pending.get(key).is_some_and(|p| p.written.is_some_and(|written| written <= revision));
        if is_shown {
            self.settle(key);
        }
        changed || is_shown
    }

    fn hold(&mut self, devices: &[Hold], sign: i32) {
        for Hold { id, share } in devices {
            let held = self.held.entry(id.clone()).or_default();
            held.change(share.as_ref(), sign);
            if (held.alone, held.shares) == (0, 0) {
                self.held.remove(id);
            }
        }
    }

    /// Whether a claim has a device or a share of it.
    fn is_held(&self, id: &DeviceId) -> bool {
        self.held.contains_key(id)
    }

    /// Whether a claim has all of a device.
    fn is_held_alone(&self, id: &DeviceId) -> bool {
        self.held.get(id).is_some_and(|held| held.alone > 0)
    }

    /// A pending allocation counts no longer.
    fn settle(&mut self, claim: &str) {
        if let Some(pending) = self.pending.remove(claim) {
            self.hold(&pending.devices, -1);
            self.version += 1;
        }
    }

    /// Puts pools together if slices have changed.
    pub fn refresh(&mut self) {
        if std::mem::take(&mut self.is_stale) {
            self.pools = Pools::new(self.slices.iter());
            self.selection.forget();
        }
    }

    /// The claims of a pod.
    fn claims_of<'a>(&'a self, pod: &PodInfo) -> Result<Vec<&'a Claim>, ClaimError> {
        let mut found = Vec::new();
        for reference in &pod.device_claims {
            let (name, is_generated) = match &reference.source {
                ClaimSource::Named(name) => (name.clone(), false),
                ClaimSource::Generated(name) => (name.clone(), true),
                ClaimSource::Awaited => return Err(ClaimError::NotCreated { pod: pod.key.to_string() }),
                ClaimSource::NotNeeded => continue,
            };
            let key = format!("{}/{name}", pod.namespace);
            let Some((claim, _)) = self.claims.get(&key) else { return Err(ClaimError::NotFound { name }) };
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(ClaimError::Deleted { name });
            }
            if is_generated && !claim.is_made_for(&pod.uid) {
                return Err(ClaimError::OfAnotherPod { claim: key, pod: pod.key.to_string() });
            }
            found.push(claim);
        }
        found.extend(self.extended_claim_of(pod));
        Ok(found)
    }

    /// The claim that an earlier attempt created for a pod's extended resources.
    fn extended_claim_of(&self, pod: &PodInfo) -> Option<&Claim> {
        let key = self.of_pods.get(&pod.uid).filter(|_| !pod.extended_uses.is_empty())?;
        self.claims
            .get(key)
            .map(|(claim, _)| claim)
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
    }

    /// Why the pod fits no node: a claim that is missing, in use, being allocated, or cannot be allocated as it is.
    pub fn blocked(&self, pod: &PodInfo, namespaces: &Namespaces) -> Result<(), ClaimError> {
        for claim in self.claims_of(pod)? {
            self.check_claim(claim, pod, namespaces)?;
        }
        Ok(())
    }

    fn check_claim(&self, claim: &Claim, pod: &PodInfo, namespaces: &Namespaces) -> Result<(), ClaimError> {
        let (key, status) = (claim.key(), &claim.status);
        if status.allocation.is_some() {
            let is_full = status.reserved_for.len() >= MOST_CONSUMERS && !claim.is_reserved_for(&pod.uid);
            return if is_full { Err(ClaimError::InUse) } else { Ok(()) };
        }
        if self.pending.contains_key(&key) {
            return Err(ClaimError::BeingAllocated { claim: key });
        }
        let labels = namespaces.get(&pod.namespace);
        let may_administer =
            labels.and_then(|all| all.get(ADMIN_ACCESS)).is_some_and(|value| value == "true");
        for request in &claim.spec.devices.requests {
            let exactly = request.exactly.iter().map(|wanted| &wanted.device_class_name);
            let mut classes =
                exactly.chain(request.first_available.iter().map(|wanted| &wanted.device_class_name));
            if let Some(class) = classes.find(|class| !self.classes.contains_key(*class)) {
                let (request, class) = (request.name.clone(), class.clone());
                return Err(ClaimError::NoClass { request, class });
            }
            if request.exactly.as_ref().is_some_and(|wanted| wanted.admin_access) && !may_administer {
                return Err(ClaimError::AdminAccess { claim: key, request: request.name.clone() });
            }
        }
        Ok(())
    }

    /// Whether the pod's claims can be had on a node.
    pub fn check(&self, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if pod.device_claims.is_empty() && pod.extended_uses.is_empty() {
            return Ok(());
        }
        self.decide(pod, node).map(drop)
    }

    /// What must be done with the pod's claims to run it on a node.
    pub fn decide(&self, pod: &PodInfo, node: &NodeInfo) -> Result<Vec<ClaimDecision>, Rejection> {
        let rejected = |why: String| Rejection::hopeless(Plugin::DynamicResources, why);
        let claims = self.claims_of(pod).map_err(|error| rejected(error.to_string()))?;
        let extended = self.extended_claim(pod, node);
        let earlier = self.extended_claim_of(pod).map(|claim| claim.metadata.uid.as_str());
        let mut decisions = Vec::new();
        let mut open: Vec<&Claim> = Vec::new();
        open.extend(extended.as_ref().filter(|_| earlier.is_none()).map(|(claim, _)| claim));
        for claim in claims {
            let Some(allocation) = &claim.status.allocation else {
                // A claim that a pod names twice is allocated once.
                if !open.iter().any(|other| other.metadata.uid == claim.metadata.uid) {
                    open.push(claim);
                }
                continue;
            };
            if allocation.node_selector.as_ref().is_some_and(|nodes| !selects(nodes, node)) {
                return Err(Rejection::hopeless(Plugin::DynamicResources, ELSEWHERE));
            }
            if self.is_unusable(claim) {
                return Err(Rejection::hopeless(Plugin::DynamicResources, ELSEWHERE));
            }
            if !claim.is_reserved_for(&pod.uid) || earlier == Some(claim.metadata.uid.as_str()) {
                decisions.push(decision(claim, None, Vec::new()));
            }
        }
        let is_extended = |uid: &str| uid.is_empty() || earlier == Some(uid);
        let mark = |mut all: Vec<ClaimDecision>| {
            for one in all.iter_mut().filter(|one| is_extended(&one.uid)) {
                one.extended = extended.as_ref().map(|(_, extended)| extended.clone());
            }
            all
        };
        if open.is_empty() {
            return Ok(mark(decisions));
        }
        let found = search::search(self, &open, node).map_err(|error| rejected(error.to_string()))?;
        let Some(found) = found else {
            return Err(Rejection::hopeless(Plugin::DynamicResources, "cannot allocate all claims"));
        };
        for found in &found {
            let held = found.devices.iter().filter(|chosen| !chosen.is_admin);
            let held = held.map(|chosen| Hold { id: chosen.device.id.clone(), share: chosen.share.clone() });
            let allocation = result::allocation(found, node).into_value();
            let mut made = decision(found.open.claim, Some(allocation), held.collect());
            made.has_conditions =
                found.devices.iter().any(|chosen| !chosen.device.binding.conditions.is_empty());
            decisions.push(made);
        }
        Ok(mark(decisions))
    }

    /// Counts decisions as if they were written.
    pub fn assume(&mut self, pod: &PodInfo, decisions: &[ClaimDecision]) {
        for decision in decisions.iter().filter(|decision| decision.allocation.is_some()) {
            let key = format!("{}/{}", pod.namespace, decision.claim);
            self.settle(&key);
            self.hold(&decision.devices, 1);
            let (pod, devices) = (pod.key.clone(), decision.devices.clone());
            let pending = Pending { pod, devices, written: None, is_new: false };
            self.pending.insert(key, pending);
            self.version += 1;
        }
    }

    /// A decision was written at a revision.
    pub fn written(&mut self, pod: &PodInfo, claim: &str, revision: u64) {
        let key = format!("{}/{claim}", pod.namespace);
        let is_new = self.pending.get(&key).is_some_and(|pending| pending.is_new);
        let is_seen = self.claims.get(&key).map_or(!is_new, |(_, seen)| *seen >= revision);
        match self.pending.get_mut(&key).filter(|pending| pending.pod == pod.key) {
            Some(_) if is_seen => self.settle(&key),
            Some(pending) => pending.written = Some(revision),
            None => {}
        }
    }

    /// Decisions for a pod that could not be written count no longer.
    pub fn forget(&mut self, pod: &PodInfo) {
        let own = self.pending.iter().filter(|(_, p)| p.pod == pod.key && p.written.is_none());
        let own: Vec<String> = own.map(|(claim, _)| claim.clone()).collect();
        own.iter().for_each(|claim| self.settle(claim));
    }

    /// A claim of the pod that has devices on other nodes than it could run on, or devices that did not become ready, and that
    /// nobody else uses: without them it may fit elsewhere.
    pub fn releasable(&self, pod: &PodInfo) -> Option<(String, String)> {
        let is_own = |claim: &&Claim| {
            let pinned = claim.status.allocation.as_ref().is_some_and(|a| a.node_selector.is_some());
            (pinned || self.is_unusable(claim))
                && claim.status.reserved_for.iter().all(|consumer| consumer.uid == pod.uid)
        };
        let claim = self.claims_of(pod).ok()?.into_iter().find(is_own)?;
        Some((claim.metadata.name.clone(), claim.metadata.uid.clone()))
    }
}

fn decision(claim: &Claim, allocation: Option<Value>, devices: Vec<Hold>) -> ClaimDecision {
    let (claim, uid) = (claim.metadata.name.clone(), claim.metadata.uid.clone());
    ClaimDecision { claim, uid, allocation, devices, has_conditions: false, extended: None }
}

fn set<T: PartialEq>(map: &mut HashMap<String, T>, key: &str, value: T) -> bool {
    let changed = map.get(key) != Some(&value);
    if changed {
        map.insert(key.to_owned(), value);
    }
    changed
}
