//! Where the next pod goes: the snapshot, the classes of pods that are scheduled as batches, and refusals that still hold.

use super::diagnosis::Diagnosis;
use super::equivalence::EquivalenceClass;
use super::filters::{self, Query};
use super::pod::PodInfo;
use super::preempt::{self, Budget, Plan, PreemptionError};
use super::profile::{Profile, Profiles};
use super::rejection::Plugin;
use super::snapshot::{NodeId, Snapshot};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

/// How many classes are kept in any case.
const MIN_CLASSES: usize = 64;
/// How many nodes all classes together may know, before old ones are given up.
const CLASS_ROOM: usize = 1 << 20;
/// Up to this many nodes are always all compared.
const SMALL: usize = 100;

/// A cached rejection; valid until the snapshot changes.
#[derive(Debug)]
struct Refusal {
    version: u64,
    why: Arc<Diagnosis>,
    /// Why preemption did not help either.
    preemption_error: Option<PreemptionError>,
}

/// How the last node was chosen, for people: times, and scores if [`Placer::keeps_scores`].
#[derive(Debug, Default)]
pub struct Choice {
    /// When nodes were filtered; not for a pod like those before it.
    pub filtered: Option<(Instant, Instant)>,
    /// When the best of the possible nodes was selected.
    pub scored: Option<(Instant, Instant)>,
    /// The chosen node and those that came next, best first.
    pub scores: Vec<(NodeId, i64)>,
    /// Why nodes were not compared.
    pub reason: &'static str,
}

/// The deciding part of the scheduler: pure but for its own memory.
///
/// ```
/// use coracle_scheduler::node::NodeInfo;
/// use coracle_scheduler::place::Placer;
/// use coracle_scheduler::pod::PodInfo;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// let mut placer = Placer::default();
/// for (name, cpu) in [("small", "1"), ("large", "4")] {
///     let allocatable = json!({"cpu": cpu, "memory": "8Gi", "pods": "110"});
///     let node = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
///     placer.snapshot.set_node(NodeInfo::parse(node.to_string().as_bytes())?);
/// }
/// let container = json!({"name": "web", "image": "web", "resources": {"requests": {"cpu": "2"}}});
/// let metadata = json!({"name": "web", "namespace": "default", "uid": "web"});
/// let pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
/// let pod = Arc::new(PodInfo::parse(pod.to_string().as_bytes())?);
/// let id = placer.place(&pod).expect("the large node has room");
/// assert_eq!(placer.snapshot.node(id).map(|node| node.name.as_str()), Some("large"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Placer {
    /// The cluster.
    pub snapshot: Snapshot,
    profiles: Profiles,
    classes: HashMap<u64, EquivalenceClass>,
    refusals: HashMap<u64, Refusal>,
    /// Classes of which one pod came so far.
    singles: HashSet<u64>,
    /// Where the next sample of nodes begins.
    offset: NodeId,
    clock: u64,
    /// Whether scores are kept in [`Placer::last`].
    pub keeps_scores: bool,
    last: Choice,
}

impl Placer {
    /// With profiles of its own.
    pub fn with_profiles(profiles: Profiles) -> Self {
        Self { profiles, ..Self::default() }
    }

    /// Whether a scheduler name is one of ours.
    pub fn serves(&self, scheduler: &str) -> bool {
        self.profiles.get(scheduler).is_some()
    }

    /// Applies to a pod what its profile adds to its rules.
    pub fn adapt(&self, pod: &mut PodInfo) {
        self.profiles.adapt(pod);
    }

    fn profile(&self, pod: &PodInfo) -> Arc<Profile> {
        self.profiles.get(&pod.scheduler).cloned().unwrap_or_default()
    }

    /// Why a pod can run on no node, whatever the nodes are.
    fn hindrance(&self, pod: &PodInfo) -> Option<Arc<Diagnosis>> {
        let nodes = self.snapshot.node_count();
        if nodes == 0 {
            return Some(Arc::new(Diagnosis::default()));
        }
        if !pod.skips(Plugin::DynamicResources)
            && let Err(why) = self.snapshot.devices.blocked(pod, &self.snapshot.namespaces)
        {
            return Some(Arc::new(Diagnosis::of_all(nodes, Plugin::DynamicResources, why.to_string())));
        }
        if pod.skips(Plugin::VolumeBinding) {
            return None;
        }
        let why = self.snapshot.volumes.blocked(pod)?;
        Some(Arc::new(Diagnosis::of_all(nodes, Plugin::VolumeBinding, why)))
    }

    /// The best node for a pod, or why there is none. Does not count the pod there: see [`Snapshot::assume`].
    pub fn place(&mut self, pod: &Arc<PodInfo>) -> Result<NodeId, Arc<Diagnosis>> {
        self.last = Choice::default();
        if let Some(why) = self.hindrance(pod) {
            return Err(why);
        }
        if let Some(id) = self.nominated(pod) {
            self.last.reason = "nominated by a preemption";
            return Ok(id);
        }
        if let Some(names) = pod.named_nodes().filter(|_| !pod.skips(Plugin::NodeAffinity)) {
            self.last.reason = "named by the pod's node affinity";
            return self.place_named(pod, &names);
        }
        let key = self.key(pod);
        let version = self.snapshot.version();
        if let Some(refusal) = self.refusals.get(&key).filter(|r| r.version == version) {
            return Err(refusal.why.clone());
        }
        if let Some(id) = self.choose(key, pod) {
            return Ok(id);
        }
        let why = Arc::new(self.diagnose(pod));
        if self.refusals.len() > 4 * MIN_CLASSES {
            self.refusals.clear();
        }
        let refusal = Refusal { version: self.snapshot.version(), why: why.clone(), preemption_error: None };
        self.refusals.insert(key, refusal);
        Err(why)
    }

    /// How the last node was chosen.
    pub fn last(&self) -> &Choice {
        &self.last
    }

    /// Which pods would have to go for this one, or why that does not help.
    pub fn preempt(
        &mut self,
        pod: &Arc<PodInfo>,
        why: &Diagnosis,
        budgets: &[Budget],
    ) -> Result<Plan, PreemptionError> {
        let key = self.key(pod);
        let version = self.snapshot.version();
        let known = self.refusals.get(&key).filter(|r| r.version == version);
        if let Some(preemption_error) =
            known.and_then(|r| r.preemption_error.clone()).filter(|_| pod.nominated.is_empty())
        {
            return Err(preemption_error);
        }
        let current = known.is_some();
        let plan = preempt::plan(&mut self.snapshot, pod, why, budgets);
        if let (Err(preemption_error), true, Some(refusal)) = (&plan, current, self.refusals.get_mut(&key)) {
            // Trying put everything back: what was found before still holds.
            refusal.version = self.snapshot.version();
            refusal.preemption_error = Some(preemption_error.clone());
        }
        plan
    }

    /// The preemptions that extenders choose from; see [`preempt::candidates`].
    pub fn preemptions(
        &mut self,
        pod: &Arc<PodInfo>,
        why: &Diagnosis,
        budgets: &[Budget],
    ) -> Result<Vec<Plan>, PreemptionError> {
        preempt::candidates(&mut self.snapshot, pod, why, budgets)
    }

    /// The node that was cleared for the pod, if it will do now.
    fn nominated(&mut self, pod: &Arc<PodInfo>) -> Option<NodeId> {
        let id = self.snapshot.node_named(&pod.nominated).filter(|_| !pod.nominated.is_empty())?;
        let query = Query::new(&mut self.snapshot, pod.clone());
        filters::check(&self.snapshot, &query, id).is_ok().then_some(id)
    }

    /// For pods whose affinity names their nodes, as those of DaemonSets: only these are looked at, and the best is chosen.
    fn place_named(&mut self, pod: &Arc<PodInfo>, names: &[&str]) -> Result<NodeId, Arc<Diagnosis>> {
        let query = Query::new(&mut self.snapshot, pod.clone());
        let begun = Instant::now();
        let (mut possible, mut rejections) = (Vec::new(), Vec::new());
        for name in names {
            let Some(id) = self.snapshot.node_named(name).filter(|id| !possible.contains(id)) else {
                continue;
            };
            match filters::check(&self.snapshot, &query, id) {
                Ok(()) => possible.push(id),
                Err(rejection) => rejections.push(((*name).to_owned(), rejection)),
            }
        }
        if let [id] = possible[..] {
            return Ok(id);
        }
        if !possible.is_empty() {
            let profile = self.profile(pod);
            let mut class = EquivalenceClass::among(&mut self.snapshot, pod.clone(), profile, &possible);
            if let Some(id) = self.choose_in(&mut class, begun) {
                return Ok(id);
            }
        }
        rejections.sort_by(|a, b| a.0.cmp(&b.0));
        let others = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned());
        Err(Arc::new(Diagnosis { nodes: self.snapshot.node_count(), rejections, others, general: None }))
    }

    fn key(&self, pod: &PodInfo) -> u64 {
        if !self.snapshot.ordinal_rules {
            return pod.class;
        }
        let mut hasher = DefaultHasher::new();
        (pod.class, &pod.labels).hash(&mut hasher);
        hasher.finish()
    }

    fn choose(&mut self, key: u64, pod: &Arc<PodInfo>) -> Option<NodeId> {
        self.clock += 1;
        if let Some(class) = self.classes.get_mut(&key).filter(|c| c.follows(&self.snapshot)) {
            class.used = self.clock;
            let begun = Instant::now();
            let chosen = class.choose(&mut self.snapshot);
            self.last.scored = Some((begun, Instant::now()));
            if let Some(id) = chosen {
                if self.keeps_scores {
                    self.last.scores = class.leading(id);
                }
                return Some(id);
            }
            // Rules about pods elsewhere may have come to allow what they refused.
            if !class.depends_on_pods() {
                return None;
            }
        }
        let profile = self.profile(pod);
        if self.is_single(key) {
            let begun = Instant::now();
            let possible = self.possible(pod, &profile);
            let mut class = EquivalenceClass::among(&mut self.snapshot, pod.clone(), profile, &possible);
            return self.choose_in(&mut class, begun);
        }
        let begun = Instant::now();
        let mut class = EquivalenceClass::new(&mut self.snapshot, pod.clone(), profile);
        class.used = self.clock;
        let chosen = self.choose_in(&mut class, begun);
        if !pod.has_claims() {
            let most = (CLASS_ROOM / self.snapshot.slots().max(1)).clamp(MIN_CLASSES, 16 * MIN_CLASSES);
            if self.classes.len() >= most
                && let Some(oldest) = self.classes.iter().min_by_key(|(_, c)| c.used).map(|(k, _)| *k)
            {
                self.classes.remove(&oldest);
            }
            self.classes.insert(key, class);
        }
        chosen
    }

    /// The best node of a class whose nodes have been filtered since then.
    fn choose_in(&mut self, class: &mut EquivalenceClass, begun: Instant) -> Option<NodeId> {
        let filtered = Instant::now();
        let chosen = class.choose(&mut self.snapshot);
        (self.last.filtered, self.last.scored) = (Some((begun, filtered)), Some((filtered, Instant::now())));
        if let Some(id) = chosen.filter(|_| self.keeps_scores) {
            self.last.scores = class.leading(id);
        }
        chosen
    }

    /// Whether the pod is the first of its class, in a cluster so large that looking at all nodes for one pod is a waste.
    fn is_single(&mut self, key: u64) -> bool {
        if self.snapshot.node_count() <= SMALL || self.classes.contains_key(&key) {
            return false;
        }
        if self.singles.len() > 64 * MIN_CLASSES {
            self.singles.clear();
        }
        self.singles.insert(key)
    }

    /// As many possible nodes as are worth comparing for one pod; the next sample begins where this ends.
    fn possible(&mut self, pod: &Arc<PodInfo>, profile: &Profile) -> Vec<NodeId> {
        let (nodes, slots) = (self.snapshot.node_count(), self.snapshot.slots());
        let percent = profile.percentage.unwrap_or_else(|| 50_usize.saturating_sub(nodes / 125).max(5));
        let enough = (nodes * percent / 100).max(SMALL);
        let query = Query::new(&mut self.snapshot, pod.clone());
        let mut possible = Vec::with_capacity(enough.min(nodes));
        let begin = self.offset;
        for step in 0..slots {
            let id = (begin + step) % slots;
            if filters::check(&self.snapshot, &query, id).is_ok() {
                possible.push(id);
                if possible.len() == enough {
                    self.offset = (id + 1) % slots;
                    break;
                }
            }
        }
        possible
    }

    /// The nodes on which a pod can run, for extenders to choose from, or why there is none.
    pub fn feasible(&mut self, pod: &Arc<PodInfo>) -> Result<Vec<NodeId>, Arc<Diagnosis>> {
        self.last = Choice::default();
        if let Some(why) = self.hindrance(pod) {
            return Err(why);
        }
        let begun = Instant::now();
        let profile = self.profile(pod);
        let possible = self.possible(pod, &profile);
        self.last.filtered = Some((begun, Instant::now()));
        if possible.is_empty() { Err(Arc::new(self.diagnose(pod))) } else { Ok(possible) }
    }

    /// The best of the nodes that extenders left, with their scores added. Every rule is checked again, because others may have
    /// taken the room in the meantime; the node that was cleared for the pod comes first.
    pub fn place_among(&mut self, pod: &Arc<PodInfo>, given: &[(NodeId, i64)]) -> Option<NodeId> {
        let begun = Instant::now();
        let query = Query::new(&mut self.snapshot, pod.clone());
        let fits = |(id, _): &&(NodeId, i64)| filters::check(&self.snapshot, &query, *id).is_ok();
        let possible: Vec<(NodeId, i64)> = given.iter().filter(fits).copied().collect();
        let nominated = self.snapshot.node_named(&pod.nominated).filter(|_| !pod.nominated.is_empty());
        if let Some(id) = nominated.filter(|id| possible.iter().any(|(other, _)| other == id)) {
            self.last.reason = "nominated by a preemption";
            return Some(id);
        }
        let nodes: Vec<NodeId> = possible.iter().map(|(id, _)| *id).collect();
        let profile = self.profile(pod);
        let mut class = EquivalenceClass::among(&mut self.snapshot, pod.clone(), profile, &nodes);
        let first = class.choose(&mut self.snapshot)?;
        let mut totals: Vec<(NodeId, i64)> = possible
            .iter()
            .filter_map(|(id, extra)| Some((*id, class.total(*id)?.saturating_add(*extra))))
            .collect();
        totals.sort_by_key(|(id, total)| (Reverse(*total), *id != first));
        self.last.scored = Some((begun, Instant::now()));
        let best = totals.first()?.0;
        if self.keeps_scores {
            totals.truncate(4);
            self.last.scores = totals;
        }
        Some(best)
    }

    /// The rejection of every node.
    pub fn diagnose(&mut self, pod: &Arc<PodInfo>) -> Diagnosis {
        let query = Query::new(&mut self.snapshot, pod.clone());
        let rejections = self.snapshot.nodes().filter_map(|(id, node)| {
            Some((node.name.clone(), filters::check(&self.snapshot, &query, id).err()?))
        });
        let mut rejections: Vec<_> = rejections.collect();
        rejections.sort_by(|(a, _), (b, _)| a.cmp(b));
        Diagnosis { nodes: self.snapshot.node_count(), rejections, general: None, others: None }
    }
}
