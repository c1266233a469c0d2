//! Equivalence classes: pods that filters and scores cannot tell apart are scheduled as a batch. Nodes are filtered and scored
//! once; after each placement only the changed nodes are scored again.
//!
//! Nodes are kept in heaps by score, one heap per cell: nodes that share the domains of every rule of the class. A
//! score that depends on domains is the same for the whole cell, so that only the best node of each cell is compared.
//! A node that got worse, as it does with every pod, stays where it is until it comes up.

use super::filters::{self, Query};
use super::pod::PodInfo;
use super::profile::Profile;
use super::scores::{FULL, preferred_affinity, topology};
use super::snapshot::{NodeId, Snapshot};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Less than any score: the node is not in its heap, or does not fit.
const NO_SCORE: i64 = i64::MIN;
/// How many entries are looked at to find the nodes that come next.
const LOOKED_AT: usize = 64;
/// How many nodes are named with their scores.
const NAMED: usize = 4;

/// A node in a heap; the best is on top. The score is the node's own, or was and it has got worse.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    score: i64,
    tie: u32,
    node: u32,
    stamp: u32,
}

#[derive(Debug, Default)]
struct Cell {
    heap: BinaryHeap<Entry>,
    /// How many nodes it has.
    nodes: usize,
    /// Any node of the cell, to look up its domains.
    sample: NodeId,
}

/// Scores that do not depend on the pods on a node.
#[derive(Debug, Clone, Copy, Default)]
struct StaticScores {
    shape: u32,
    known: bool,
    fits: bool,
    affinity: i64,
    untolerated_taints: i64,
    images: i64,
}

/// An equivalence class of pods, with the feasible nodes by score.
#[derive(Debug)]
pub struct EquivalenceClass {
    query: Query,
    soft: topology::TopologyScores,
    profile: Arc<Profile>,
    layout: u64,
    rules: u64,
    position: u64,
    may_be_first: bool,
    fixed: Vec<StaticScores>,
    most_affinity: i64,
    most_untolerated_taints: i64,
    cells: Vec<Cell>,
    cell_of: Vec<u32>,
    /// Each node's present score.
    scores: Vec<i64>,
    /// The score in the node's entry, and the stamp of that entry: those with another are void.
    entered: Vec<(i64, u32)>,
    /// The cells that were possible for the last pod, and the part of the score that their nodes share.
    shared: Vec<(usize, i64)>,
    seed: u32,
    /// The clock of its last use.
    pub used: u64,
}

impl EquivalenceClass {
    /// Looks at every node once.
    pub fn new(snapshot: &mut Snapshot, pod: Arc<PodInfo>, profile: Arc<Profile>) -> Self {
        let all: Vec<NodeId> = snapshot.nodes().map(|(id, _)| id).collect();
        Self::among(snapshot, pod, profile, &all)
    }

    /// Looks at some nodes only, for a pod that is the only one of its kind.
    pub fn among(
        snapshot: &mut Snapshot,
        pod: Arc<PodInfo>,
        profile: Arc<Profile>,
        nodes: &[NodeId],
    ) -> Self {
        let query = Query::new(snapshot, pod);
        let soft = topology::TopologyScores::new(snapshot, &query.pod);
        let seed = query.pod.class as u32;
        let mut class = Self {
            may_be_first: query.pod_affinity.may_be_first(snapshot),
            query,
            soft,
            profile,
            layout: snapshot.layout,
            rules: snapshot.rules,
            position: snapshot.log_end(),
            fixed: vec![StaticScores::default(); snapshot.slots()],
            most_affinity: 0,
            most_untolerated_taints: 0,
            cells: Vec::new(),
            cell_of: vec![0; snapshot.slots()],
            scores: vec![NO_SCORE; snapshot.slots()],
            entered: vec![(NO_SCORE, 0); snapshot.slots()],
            shared: Vec::new(),
            seed,
            used: 0,
        };
        class.build(snapshot, nodes);
        class
    }

    fn build(&mut self, snapshot: &Snapshot, nodes: &[NodeId]) {
        self.group(snapshot, nodes);
        for id in nodes {
            self.look(snapshot, *id);
        }
        let fitting = self.fixed.iter().filter(|f| f.fits);
        self.most_affinity = fitting.clone().map(|f| f.affinity).max().unwrap_or(0);
        self.most_untolerated_taints = fitting.map(|f| f.untolerated_taints).max().unwrap_or(0);
        for id in nodes {
            self.enter(snapshot, *id);
        }
    }

    /// Puts nodes with the same domains into one cell. Topologies in which every node is alone make no cells: what they
    /// decide is part of the node's own score.
    fn group(&mut self, snapshot: &Snapshot, nodes: &[NodeId]) {
        let mut topologies = self.soft.topologies(snapshot);
        topologies.extend(self.query.pod_affinity.topologies(snapshot));
        topologies.extend(self.query.spread.topologies());
        topologies.sort_unstable();
        topologies.dedup();
        topologies.retain(|t| !snapshot.topology_at(*t).is_per_node());
        if topologies.is_empty() {
            let sample = nodes.first().copied().unwrap_or(0);
            self.cells.push(Cell { sample, nodes: nodes.len(), ..Cell::default() });
            return;
        }
        let mut cells: HashMap<Vec<u32>, u32> = HashMap::new();
        for id in nodes.iter().copied() {
            let domains: Vec<u32> = topologies.iter().map(|t| snapshot.topology_at(*t).domain(id)).collect();
            let next = self.cells.len() as u32;
            let cell = *cells.entry(domains).or_insert(next);
            if cell == next {
                self.cells.push(Cell { sample: id, ..Cell::default() });
            }
            self.cell_of[id] = cell;
            self.cells[cell as usize].nodes += 1;
        }
    }

    fn look(&mut self, snapshot: &Snapshot, id: NodeId) {
        let Some(node) = snapshot.node(id) else { return };
        let pod = &self.query.pod;
        let fits = filters::fixed(pod, node).is_ok();
        self.fixed[id] = StaticScores {
            shape: node.shape,
            known: true,
            fits,
            affinity: if fits { preferred_affinity::affinity(pod, node) } else { 0 },
            untolerated_taints: if fits { preferred_affinity::untolerated_taints(pod, node) } else { 0 },
            images: if fits { preferred_affinity::image_locality(pod, node, snapshot) } else { 0 },
        };
    }

    /// Notes a node's present score. When it is better than its entry, it gets another.
    fn enter(&mut self, snapshot: &Snapshot, id: NodeId) {
        let score = self.score(snapshot, id).unwrap_or(NO_SCORE);
        self.scores[id] = score;
        if score > self.entered[id].0 {
            self.push(id, score);
        }
    }

    /// Puts a node into its heap; an older entry of it becomes void.
    fn push(&mut self, id: NodeId, score: i64) {
        let stamp = self.entered[id].1.wrapping_add(1);
        self.entered[id] = (score, stamp);
        let tie = (id as u32).wrapping_mul(0x9E37_79B9) ^ self.seed;
        let cell = &mut self.cells[self.cell_of[id] as usize];
        cell.heap.push(Entry { score, tie, node: id as u32, stamp });
        if cell.heap.len() > 2 * cell.nodes + 64 {
            // More void ones than others: they would pile up below the best.
            cell.heap.retain(|entry| self.entered[entry.node as usize].1 == entry.stamp);
        }
    }

    /// The node's own score, or `None` when the pod does not fit.
    fn score(&self, snapshot: &Snapshot, id: NodeId) -> Option<i64> {
        let fixed = self.fixed[id];
        if !fixed.fits {
            return None;
        }
        let (node, pod, profile) = (snapshot.node(id)?, &self.query.pod, &*self.profile);
        let weights = &profile.weights;
        filters::local(pod, node, &snapshot.devices).ok()?;
        let mut score = weights.fit * profile.fit.score(pod, node)
            + weights.balance * profile.balance.score(pod, node)
            + weights.images * fixed.images
            + weights.spread * self.soft.per_node_spread(snapshot, id);
        if self.most_affinity > 0 {
            score +=
                weights.node_affinity * FULL * fixed.affinity.min(self.most_affinity) / self.most_affinity;
        }
        if self.most_untolerated_taints > 0 {
            let fewer = (self.most_untolerated_taints - fixed.untolerated_taints).max(0);
            score += weights.taints * FULL * fewer / self.most_untolerated_taints;
        }
        Some(score)
    }

    /// Whether it can be updated from the log of changes; otherwise it must be built again.
    pub fn follows(&self, snapshot: &Snapshot) -> bool {
        self.layout == snapshot.layout
            && self.rules == snapshot.rules
            && self.may_be_first == self.query.pod_affinity.may_be_first(snapshot)
            && snapshot.changes_since(self.position).is_some()
    }

    fn catch_up(&mut self, snapshot: &Snapshot) {
        let Some(changes) = snapshot.changes_since(self.position) else { return };
        let mut changed: Vec<NodeId> = changes.collect();
        self.position = snapshot.log_end();
        changed.sort_unstable();
        changed.dedup();
        for id in changed {
            if snapshot.node(id).is_some_and(|n| !self.fixed[id].known || n.shape != self.fixed[id].shape) {
                self.look(snapshot, id);
            }
            self.enter(snapshot, id);
        }
    }

    /// The best node for one more pod of the class, `None` when there is none. Every rule is checked against the present
    /// state before a node is returned.
    pub fn choose(&mut self, snapshot: &mut Snapshot) -> Option<NodeId> {
        self.catch_up(snapshot);
        if !self.query.spread.is_empty() {
            self.query.spread = filters::spread::RequiredSpread::new(snapshot, &self.query.pod);
        }
        let mut cells: Vec<(usize, NodeId)> =
            (0..self.cells.len()).map(|at| (at, self.cells[at].sample)).collect();
        // In a cell, the rules about domains hold for all nodes or none; a rule about single nodes is checked below.
        if self.cells.len() > 1 || self.depends_on_pods() {
            let (spread, pod_affinity) = (&self.query.spread, &self.query.pod_affinity);
            cells.retain(|(at, id)| {
                !self.cells[*at].heap.is_empty()
                    && spread.check_shared(snapshot, *id).is_ok()
                    && pod_affinity.check_shared(snapshot, *id).is_ok()
            });
        }
        let (spread_scores, affinity_scores) =
            (self.spread_scores(snapshot, &cells), self.affinity_scores(snapshot, &cells));
        let shared = |n: usize| spread_scores.get(n).unwrap_or(&0) + affinity_scores.get(n).unwrap_or(&0);
        self.shared.clear();
        self.shared.extend(cells.iter().enumerate().map(|(n, (at, _))| (*at, shared(n))));
        loop {
            let mut best: Option<(i64, u32, usize)> = None;
            for n in 0..self.shared.len() {
                let (at, shared) = self.shared[n];
                let Some((score, tie)) = self.top(at) else { continue };
                let total = score + shared;
                if best.is_none_or(|(s, t, _)| (total, tie) > (s, t)) {
                    best = Some((total, tie, at));
                }
            }
            let (_, _, cell) = best?;
            let entry = self.cells[cell].heap.pop()?;
            let id = entry.node as NodeId;
            if filters::check(snapshot, &self.query, id).is_ok() {
                self.cells[cell].heap.push(entry);
                return Some(id);
            }
            // Refused by a rule about pods: it comes back when something there changes, or with a new class.
            self.entered[id].0 = NO_SCORE;
        }
    }

    /// The node that was chosen last and up to three that come next, with their scores. Only the first entries of the heaps
    /// are looked at: with many nodes, one that comes next may be missing.
    pub fn leading(&self, chosen: NodeId) -> Vec<(NodeId, i64)> {
        let each = (LOOKED_AT / self.shared.len().max(1)).max(1);
        let mut found: Vec<(bool, i64, u32, NodeId)> = Vec::new();
        for (cell, shared) in &self.shared {
            for entry in self.cells[*cell].heap.as_slice().iter().take(each) {
                let id = entry.node as NodeId;
                if self.entered[id].1 == entry.stamp && self.scores[id] != NO_SCORE {
                    found.push((id == chosen, self.scores[id] + shared, entry.tie, id));
                }
            }
        }
        found.sort_unstable_by_key(|node| std::cmp::Reverse(*node));
        found.into_iter().take(NAMED).map(|(_, score, _, id)| (id, score)).collect()
    }

    /// The score of a node among those of the last choice, `None` where the pod does not fit.
    pub fn total(&self, id: NodeId) -> Option<i64> {
        let own = self.scores.get(id).copied().filter(|score| *score != NO_SCORE)?;
        let (_, shared) = self.shared.iter().find(|(cell, _)| *cell == self.cell_of[id] as usize)?;
        Some(own + shared)
    }

    /// The best entry of a cell, after those that are void or too good to be true.
    fn top(&mut self, cell: usize) -> Option<(i64, u32)> {
        loop {
            let entry = self.cells[cell].heap.peek()?;
            let id = entry.node as NodeId;
            let valid = self.entered[id].1 == entry.stamp;
            let score = self.scores[id];
            if valid && entry.score == score {
                return Some((score, entry.tie));
            }
            self.cells[cell].heap.pop();
            if valid {
                self.entered[id].0 = NO_SCORE;
                if score != NO_SCORE {
                    self.push(id, score);
                }
            }
        }
    }

    fn spread_scores(&self, snapshot: &Snapshot, cells: &[(usize, NodeId)]) -> Vec<i64> {
        if !self.soft.spreads() {
            return Vec::new();
        }
        let raw: Vec<i64> = cells.iter().map(|(_, id)| self.soft.spread_sum(snapshot, *id)).collect();
        let (least, most) = bounds(&raw);
        raw.into_iter()
            .map(|n| self.profile.weights.spread * topology::normalize_spread(n, least, most))
            .collect()
    }

    fn affinity_scores(&self, snapshot: &Snapshot, cells: &[(usize, NodeId)]) -> Vec<i64> {
        if !self.soft.has_affinity() {
            return Vec::new();
        }
        let raw: Vec<i64> = cells.iter().map(|(_, id)| self.soft.affinity_sum(snapshot, *id)).collect();
        let (least, most) = bounds(&raw);
        raw.into_iter()
            .map(|n| self.profile.weights.pod_affinity * topology::normalize_affinity(n, least, most))
            .collect()
    }

    /// Whether the result depends on pods of other nodes (spread constraints, affinity).
    pub fn depends_on_pods(&self) -> bool {
        !(self.query.spread.is_empty() && self.query.pod_affinity.is_empty())
    }
}

fn bounds(list: &[i64]) -> (i64, i64) {
    (list.iter().min().copied().unwrap_or(0), list.iter().max().copied().unwrap_or(0))
}
