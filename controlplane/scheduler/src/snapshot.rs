//! The cluster as the scheduler sees it, changed in place by every event: nodes, the pods on them, and counts for rules
//! about pods. Whoever depends on a node's state follows the log of changed nodes.

use super::counts::{Holding, Matching, Tally, Topology};
use super::devices::Devices;
use super::node::NodeInfo;
use super::pod::{PodInfo, PodKey};
use super::terms::{Namespaces, Term};
use super::volumes::Volumes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// A node's place in the snapshot.
pub type NodeId = usize;

/// How many rules are counted before the one not asked for the longest is dropped.
const MAX_MATCHING: usize = 512;
/// How many node changes are remembered for followers.
const LOG: usize = 1 << 16;

/// Where a pod is.
#[derive(Debug, Clone)]
struct Placed {
    info: Arc<PodInfo>,
    /// `None` while its node is not known.
    node: Option<NodeId>,
    /// Decided here, not yet seen in the API.
    assumed: bool,
}

/// The cluster.
#[derive(Debug, Default)]
pub struct Snapshot {
    nodes: Vec<Option<NodeInfo>>,
    free: Vec<NodeId>,
    by_name: HashMap<String, NodeId>,
    pods: HashMap<PodKey, Placed>,
    /// Pods on nodes that are not known (yet).
    strays: HashMap<String, Vec<PodKey>>,
    topologies: Vec<Topology>,
    matching: Vec<Matching>,
    holding: Vec<Holding>,
    by_holding: HashMap<Arc<str>, usize>,
    images: HashMap<Arc<str>, u32>,
    nominated: HashMap<PodKey, NodeId>,
    log: VecDeque<u32>,
    log_start: u64,
    clock: u64,
    /// Labels of namespaces.
    pub namespaces: Namespaces,
    /// Claims and volumes.
    pub volumes: Volumes,
    /// Claims of devices.
    pub devices: Devices,
    /// Changes when nodes or their labels do: groupings of nodes are stale.
    pub layout: u64,
    /// Changes when the set of rules that pods carry does.
    pub rules: u64,
    /// Pods carry rules about labels that differ between replicas.
    pub ordinal_rules: bool,
}

impl Snapshot {
    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.by_name.len()
    }

    /// How many pods have a node.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// Slots for nodes, some of which may be free.
    pub fn slots(&self) -> usize {
        self.nodes.len()
    }

    /// Every node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &NodeInfo)> {
        self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// A node by place.
    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.get(id)?.as_ref()
    }

    /// A node by name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// A pod that has a node, by its key.
    pub fn pod(&self, key: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(key).map(|p| &p.info)
    }

    /// Where a pod is.
    pub fn pod_node(&self, key: &str) -> Option<NodeId> {
        self.pods.get(key).and_then(|p| p.node)
    }

    /// Keys of all pods that have a node.
    pub fn pod_keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// Whether a pod is counted at a node that the API does not know of yet.
    pub fn is_assumed(&self, key: &str) -> bool {
        self.pods.get(key).is_some_and(|p| p.assumed)
    }

    /// How many nodes have an image.
    pub fn image_nodes(&self, image: &str) -> u32 {
        self.images.get(image).copied().unwrap_or(0)
    }

    /// A node came or changed. Returns its place when it is worth another look by pods that wait.
    pub fn set_node(&mut self, new: NodeInfo) -> Option<NodeId> {
        if let Some(id) = self.node_named(&new.name) {
            let old = self.nodes[id].as_ref()?;
            if old.same_shape(&new) {
                return None;
            }
            let same_labels = old.labels == new.labels;
            self.count_images(id, -1);
            if same_labels {
                self.nodes[id].as_mut()?.reshape(new);
            } else {
                self.relabel(id, new);
            }
            self.count_images(id, 1);
            self.changed(id);
            return Some(id);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        let strays = self.strays.remove(&new.name).unwrap_or_default();
        self.by_name.insert(new.name.clone(), id);
        for topology in &mut self.topologies {
            topology.place(id, new.labels.get(topology.key.as_ref()).map(String::as_str));
        }
        self.nodes[id] = Some(new);
        self.count_images(id, 1);
        self.layout += 1;
        for key in strays {
            if let Some(placed) = self.pods.get_mut(&key) {
                placed.node = Some(id);
                let info = placed.info.clone();
                self.attach(id, info);
            }
        }
        self.changed(id);
        Some(id)
    }

    /// Moves the node's pods to other domains.
    fn relabel(&mut self, id: NodeId, new: NodeInfo) {
        let Some(node) = self.nodes[id].as_ref() else { return };
        let pods = node.pods.clone();
        for pod in &pods {
            self.count(id, pod, -1);
        }
        for topology in &mut self.topologies {
            topology.place(id, new.labels.get(topology.key.as_ref()).map(String::as_str));
        }
        if let Some(node) = self.nodes[id].as_mut() {
            node.reshape(new);
        }
        for pod in &pods {
            self.count(id, pod, 1);
        }
        self.layout += 1;
    }

    /// A node went; its pods wait for it to come back or to be removed.
    pub fn remove_node(&mut self, name: &str) {
        let Some(id) = self.by_name.remove(name) else { return };
        self.count_images(id, -1);
        let pods = self.nodes[id].as_ref().map(|n| n.pods.clone()).unwrap_or_default();
        for pod in pods {
            self.count(id, &pod, -1);
            if let Some(placed) = self.pods.get_mut(&pod.key) {
                placed.node = None;
            }
            self.strays.entry(name.to_owned()).or_default().push(pod.key.clone());
        }
        for topology in &mut self.topologies {
            topology.place(id, None);
        }
        self.nominated.retain(|_, at| *at != id);
        self.nodes[id] = None;
        self.free.push(id);
        self.layout += 1;
    }

    /// A pod with a node was seen in the API. Returns the pod it replaces when what it asks for changed.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) -> Option<Arc<PodInfo>> {
        let before = self.pods.get(&pod.key).cloned();
        if let Some(old) = &before {
            let same_place = old.node.and_then(|id| self.node(id)).is_some_and(|n| n.name == pod.node);
            if same_place
                && old.info.class == pod.class
                && old.info.deleting == pod.deleting
                && old.info.labels == pod.labels
            {
                self.refresh(&pod);
                return None;
            }
            self.remove_pod(&pod.key);
        }
        self.place(pod, false);
        before.map(|p| p.info)
    }

    /// Puts newer details of a pod where the old ones are; nothing that is counted changed.
    fn refresh(&mut self, pod: &Arc<PodInfo>) {
        let Some(placed) = self.pods.get_mut(&pod.key) else { return };
        placed.assumed = false;
        placed.info = pod.clone();
        let node = placed.node.and_then(|id| self.nodes[id].as_mut());
        if let Some(slot) = node.and_then(|n| n.pods.iter_mut().find(|p| p.key == pod.key)) {
            *slot = pod.clone();
        }
    }

    /// Counts a pod at a node before the API knows.
    pub fn assume(&mut self, pod: &Arc<PodInfo>, node: NodeId) {
        let Some(info) = self.node(node) else { return };
        let name = info.name.clone();
        self.remove_pod(&pod.key);
        self.pods.insert(pod.key.clone(), Placed { info: pod.clone(), node: Some(node), assumed: true });
        debug_assert!(self.by_name.contains_key(&name));
        self.attach(node, pod.clone());
    }

    /// Takes back an assumption that did not come true.
    pub fn forget(&mut self, key: &str) {
        if self.pods.get(key).is_some_and(|p| p.assumed) {
            self.remove_pod(key);
        }
    }

    fn place(&mut self, pod: Arc<PodInfo>, assumed: bool) {
        let node = self.node_named(&pod.node);
        self.pods.insert(pod.key.clone(), Placed { info: pod.clone(), node, assumed });
        match node {
            Some(id) => self.attach(id, pod),
            None => self.strays.entry(pod.node.clone()).or_default().push(pod.key.clone()),
        }
    }

    /// A pod went or finished. Returns it and where it was.
    pub fn remove_pod(&mut self, key: &str) -> Option<(Arc<PodInfo>, Option<NodeId>)> {
        let placed = self.pods.remove(key)?;
        match placed.node {
            Some(id) => self.detach(id, &placed.info),
            None => {
                if let Some(list) = self.strays.get_mut(&placed.info.node) {
                    list.retain(|k| k.as_ref() != key);
                }
            }
        }
        Some((placed.info, placed.node))
    }

    /// Nominates a node for a pod, ahead of pods of lower priority; an empty name removes the nomination.
    pub fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) {
        if let Some(id) = self.nominated.remove(&pod.key) {
            if let Some(info) = self.nodes[id].as_mut() {
                info.nominated.retain(|p| p.key != pod.key);
            }
            self.changed(id);
        }
        let Some(id) = self.node_named(node).filter(|_| !node.is_empty()) else { return };
        if let Some(info) = self.nodes[id].as_mut() {
            info.nominated.push(pod.clone());
            self.nominated.insert(pod.key.clone(), id);
            self.changed(id);
        }
    }

    /// For trying out: a pod is there.
    pub fn attach(&mut self, id: NodeId, pod: Arc<PodInfo>) {
        self.count(id, &pod, 1);
        self.volumes.uses(&pod, 1);
        if let Some(node) = self.nodes[id].as_mut() {
            node.add(pod);
        }
        self.changed(id);
    }

    /// For trying out: a pod is not there.
    pub fn detach(&mut self, id: NodeId, pod: &PodInfo) {
        self.count(id, pod, -1);
        self.volumes.uses(pod, -1);
        if let Some(node) = self.nodes[id].as_mut() {
            node.remove(pod);
        }
        self.changed(id);
    }

    fn count_images(&mut self, id: NodeId, sign: i32) {
        let Some(node) = self.nodes[id].as_ref() else { return };
        for image in node.images.keys() {
            let count = self.images.entry(image.clone()).or_default();
            *count = count.saturating_add_signed(sign);
        }
    }

    /// Counts a pod for every rule, those it is subject to and those it carries.
    fn count(&mut self, id: NodeId, pod: &PodInfo, sign: i64) {
        for matching in &mut self.matching {
            if pod.matches(&matching.term, &self.namespaces) {
                let domain = self.topologies[matching.topology].domain(id);
                matching.tally.add(id, domain, sign);
            }
        }
        if !pod.has_terms() {
            return;
        }
        let carried = pod
            .anti_affinity
            .iter()
            .map(|t| (t, 0, 1))
            .chain(pod.affinity.iter().map(|t| (t, 1, 1)))
            .chain(pod.preferred.iter().map(|(w, t)| (t, 2, *w)));
        for (term, which, amount) in carried {
            let at = self.holding_of(term);
            let domain = self.topologies[self.holding[at].topology].domain(id);
            let holding = &mut self.holding[at];
            let tally = [&mut holding.repelled, &mut holding.bound, &mut holding.inclined];
            let [repelled, bound, inclined] = tally;
            [repelled, bound, inclined][which].add(id, domain, sign * amount);
            holding.holders = holding.holders.saturating_add_signed(sign as i32);
        }
    }

    fn holding_of(&mut self, term: &Arc<Term>) -> usize {
        if let Some(at) = self.by_holding.get(&term.id) {
            return *at;
        }
        self.compact_holdings();
        let topology = self.topology(&term.topology);
        self.ordinal_rules |= PodInfo::differs_by(term);
        self.rules += 1;
        let holding = Holding {
            term: term.clone(),
            topology,
            repelled: Tally::default(),
            bound: Tally::default(),
            inclined: Tally::default(),
            holders: 0,
        };
        self.holding.push(holding);
        self.by_holding.insert(term.id.clone(), self.holding.len() - 1);
        self.holding.len() - 1
    }

    /// Drops unused terms once they are the majority.
    fn compact_holdings(&mut self) {
        let idle = self.holding.iter().filter(|h| h.holders == 0).count();
        if idle < 64 || idle * 2 < self.holding.len() {
            return;
        }
        self.holding.retain(|h| h.holders > 0);
        self.by_holding = self.holding.iter().enumerate().map(|(at, h)| (h.term.id.clone(), at)).collect();
        self.rules += 1;
    }

    /// The topology of a label, made on first use.
    pub fn topology(&mut self, key: &Arc<str>) -> usize {
        if let Some(at) = self.topologies.iter().position(|t| t.key == *key) {
            return at;
        }
        let mut topology = Topology::new(key.clone());
        for (id, node) in self.nodes.iter().enumerate() {
            let value = node.as_ref().and_then(|n| n.labels.get(key.as_ref()));
            topology.place(id, value.map(String::as_str));
        }
        self.topologies.push(topology);
        self.topologies.len() - 1
    }

    /// A topology by its place.
    pub fn topology_at(&self, at: usize) -> &Topology {
        &self.topologies[at]
    }

    /// The counts of pods that a term matches, made on first use.
    pub fn matching(&mut self, term: &Arc<Term>) -> usize {
        self.clock += 1;
        if let Some(at) = self.matching.iter().position(|m| m.term.id == term.id) {
            self.matching[at].used = self.clock;
            return at;
        }
        let topology = self.topology(&term.topology);
        let mut tally = Tally::default();
        for (id, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else { continue };
            let here = node.pods.iter().filter(|p| p.matches(term, &self.namespaces)).count() as i64;
            if here > 0 {
                tally.add(id, self.topologies[topology].domain(id), here);
            }
        }
        let made = Matching { term: term.clone(), topology, tally, used: self.clock };
        if self.matching.len() < MAX_MATCHING {
            self.matching.push(made);
            return self.matching.len() - 1;
        }
        let oldest = (0..self.matching.len()).min_by_key(|at| self.matching[*at].used).unwrap_or(0);
        self.matching[oldest] = made;
        // Whoever kept the place of the dropped rule must look again.
        self.rules += 1;
        oldest
    }

    /// Counts by their place.
    pub fn matching_at(&self, at: usize) -> &Matching {
        &self.matching[at]
    }

    /// The rules that pods carry.
    pub fn holdings(&self) -> &[Holding] {
        &self.holding
    }

    /// The labels of a namespace changed: terms with a namespace selector are counted again.
    pub fn set_namespace(&mut self, name: &str, labels: Option<super::wire::Labels>) {
        let same = self.namespaces.get(name) == labels.as_ref();
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        if !same && self.matching.iter().any(|m| m.term.selects_namespaces()) {
            self.matching.retain(|m| !m.term.selects_namespaces());
            self.rules += 1;
        }
    }

    fn changed(&mut self, id: NodeId) {
        if self.log.len() == LOG {
            self.log.pop_front();
            self.log_start += 1;
        }
        self.log.push_back(id as u32);
    }

    /// Changes with anything that may change a decision.
    pub fn version(&self) -> u64 {
        self.log_end() + self.layout + self.rules + self.volumes.version + self.devices.version
    }

    /// The end of the log of changed nodes.
    pub fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Nodes that changed since a place in the log, or `None` when it no longer reaches that far back.
    pub fn changes_since(&self, position: u64) -> Option<impl Iterator<Item = NodeId> + '_> {
        let skip = usize::try_from(position.checked_sub(self.log_start)?).ok()?;
        Some(self.log.range(skip.min(self.log.len())..).map(|id| *id as NodeId))
    }
}
