//! Merging hints of several resources, as a policy of the topology manager wants it.

use std::collections::BTreeSet;

use super::distances::Distances;
use super::hints::{Hint, Hints};
use super::nodes::Nodes;

/// What a pod needs to be admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Resources are not aligned.
    #[default]
    None,
    /// They are aligned where that is possible.
    BestEffort,
    /// Pods are rejected whose resources come from more nodes than necessary, or from different ones.
    Restricted,
    /// Pods are rejected whose resources do not come from one node.
    SingleNumaNode,
}

impl Policy {
    /// As in the configuration of a kubelet.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BestEffort => "best-effort",
            Self::Restricted => "restricted",
            Self::SingleNumaNode => "single-numa-node",
        }
    }
}

/// What is aligned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Scope {
    /// Each container.
    #[default]
    Container,
    /// All containers of a pod.
    Pod,
}

impl Scope {
    /// As in the configuration of a kubelet.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

/// What comes out of hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The nodes that resources are to come from; none for any.
    pub nodes: Option<Nodes>,
    /// Whether the policy admits the pod.
    pub is_admitted: bool,
}

/// How narrow a set of nodes is: their number, their distances, their numbers.
type Narrow = std::cmp::Reverse<(usize, u64, u64)>;

/// Resources are not aligned on machines with more nodes: the sets of nodes to look at double with each node, and so do the hints
/// of each resource, which are combined with all of them.
pub const MOST_NODES: usize = 12;

/// One hint of each resource, merged. Combinations that lead to the same state are one: there are few states, and very many
/// combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Merged {
    nodes: Nodes,
    is_preferred: bool,
    /// The nodes of the first hint that names some: hints with other nodes are not aligned with it.
    first: Option<Nodes>,
}

impl Merged {
    fn with(self, hint: Hint) -> Self {
        let first = self.first.or(hint.nodes);
        let is_aligned = hint.nodes.is_none() || hint.nodes == first;
        let is_preferred = self.is_preferred && hint.is_preferred && is_aligned;
        Self {
            nodes: hint.nodes.map_or(self.nodes, |nodes| self.nodes.and(nodes)),
            is_preferred,
            // What is not preferred never will be.
            first: first.filter(|_| is_preferred),
        }
    }

    /// Larger is better: preferred hints first, the narrowest of them; of others those with as many nodes as the resource that
    /// needs most of them, then those with fewer, then those with more. Of sets with as many nodes, the closest or the first.
    fn rank(self, needed: usize, closest: Option<&Distances>) -> (bool, u8, i64, Narrow) {
        let (width, bits) = self.nodes.width();
        let distance = closest.map_or(0, |distances| distances.sum(self.nodes));
        let narrow = std::cmp::Reverse((width, distance, bits));
        let count = self.nodes.len();
        let wide = i64::try_from(count).unwrap_or(i64::MAX);
        match (self.is_preferred, count.cmp(&needed)) {
            (true, _) => (true, 0, 0, narrow),
            (false, std::cmp::Ordering::Equal) => (false, 2, 0, narrow),
            (false, std::cmp::Ordering::Less) => (false, 1, wide, narrow),
            (false, std::cmp::Ordering::Greater) => (false, 0, 0, narrow),
        }
    }
}

/// Sets of some of the nodes of a machine: whether each is one of them, by the number whose bits are the places of its nodes in a
/// list of all.
struct Sets<'a> {
    all: &'a [u32],
    has: Vec<bool>,
}

impl<'a> Sets<'a> {
    fn none(all: &'a [u32]) -> Self {
        Self { all, has: vec![false; 1 << all.len()] }
    }

    fn index(&self, nodes: Nodes) -> usize {
        let places = self.all.iter().enumerate().filter(|(_, number)| nodes.has(**number));
        places.map(|(place, _)| 1usize << place).sum()
    }

    fn insert(&mut self, nodes: Nodes) {
        let index = self.index(nodes);
        self.has[index] = true;
    }

    /// What each of them shares with each hint.
    fn intersect(&self, list: &[Hint]) -> Self {
        let every = self.has.len() - 1;
        let hints: Vec<usize> =
            list.iter().map(|hint| hint.nodes.map_or(every, |nodes| self.index(nodes))).collect();
        let mut shared = Self::none(self.all);
        for (set, _) in self.has.iter().enumerate().filter(|(_, has)| **has) {
            for hint in &hints {
                shared.has[set & hint] = true;
            }
        }
        shared
    }

    fn iter(&self) -> impl Iterator<Item = Nodes> {
        let all = self.all;
        let nodes = move |index: usize| {
            let places = all.iter().enumerate().filter(move |(place, _)| (index >> place) & 1 == 1);
            Nodes::of(places.map(|(_, number)| *number))
        };
        self.has.iter().enumerate().filter(|(_, has)| **has).map(move |(index, _)| nodes(index))
    }
}

/// Every state that one hint of each list leads to, each list being hints of one resource. Of states that are not preferred only the
/// nodes count. States that stay preferred to the end are among those as well, which changes nothing: they are better.
fn states(all: Nodes, lists: &[Vec<Hint>]) -> Vec<Merged> {
    let numbers: Vec<u32> = all.numbers().collect();
    let mut preferred = BTreeSet::from([Merged { nodes: all, is_preferred: true, first: None }]);
    let mut others = Sets::none(&numbers);
    for list in lists {
        preferred.iter().for_each(|state| others.insert(state.nodes));
        others = others.intersect(list);
        let next = preferred.iter().flat_map(|state| list.iter().map(|hint| state.with(*hint)));
        preferred = next.filter(|state| state.is_preferred).collect();
    }
    let others = others.iter().map(|nodes| Merged { nodes, is_preferred: false, first: None });
    preferred.into_iter().chain(others).collect()
}

/// Merges the hints of all resources on a machine with these nodes, at most [`MOST_NODES`]. With distances, nodes that are close to
/// each other are preferred; a single node is close to itself.
pub fn merge(policy: Policy, all: Nodes, resources: &[Hints], closest: Option<&Distances>) -> Verdict {
    if policy == Policy::None {
        return Verdict { nodes: None, is_admitted: true };
    }
    let any = |is_preferred: bool| vec![Hint { nodes: None, is_preferred }];
    let is_single = |hint: &Hint| hint.is_preferred && hint.nodes.is_none_or(|nodes| nodes.len() == 1);
    let mut lists: Vec<Vec<Hint>> = resources
        .iter()
        .map(|hints| match hints {
            None => any(true),
            Some(list) if list.is_empty() => any(false),
            Some(list) => list.clone(),
        })
        .collect();
    if policy == Policy::SingleNumaNode {
        lists.iter_mut().for_each(|list| list.retain(is_single));
    }
    let narrowest = |list: &Vec<Hint>| list.iter().filter_map(|hint| hint.nodes).map(Nodes::len).min();
    let needed = lists.iter().filter_map(narrowest).max().unwrap_or_default();
    let usable = states(all, &lists).into_iter().filter(|state| !state.nodes.is_empty());
    let best = usable.max_by_key(|state| state.rank(needed, closest));
    let (nodes, is_preferred) = best.map_or((all, false), |best| (best.nodes, best.is_preferred));
    let is_anywhere = policy == Policy::SingleNumaNode && nodes == all;
    let is_admitted = policy == Policy::BestEffort || is_preferred;
    Verdict { nodes: (!is_anywhere).then_some(nodes), is_admitted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(nodes: &[u32], is_preferred: bool) -> Hint {
        Hint { nodes: Some(Nodes::of(nodes.iter().copied())), is_preferred }
    }

    /// The nodes of the verdict as text, and whether the pod is admitted.
    fn verdict(policy: Policy, resources: &[Hints]) -> (String, bool) {
        let found = merge(policy, Nodes::of([0, 1]), resources, None);
        (found.nodes.map_or("any".to_owned(), |nodes| nodes.to_string()), found.is_admitted)
    }

    #[test]
    fn policies_on_two_nodes() {
        let both = || Some(vec![hint(&[0], true), hint(&[1], true), hint(&[0, 1], false)]);
        let second = || Some(vec![hint(&[1], true), hint(&[0, 1], false)]);
        let first = || Some(vec![hint(&[0], true)]);
        let wide = || Some(vec![hint(&[0, 1], true)]);
        let spread = || Some(vec![hint(&[0, 1], false)]);
        use Policy::{BestEffort, Restricted, SingleNumaNode};
        for (what, hints, want) in [
            ("nothing to align", vec![], [("0,1", true), ("0,1", true), ("any", true)]),
            ("no preference", vec![None, both()], [("0", true), ("0", true), ("0", true)]),
            ("what both can", vec![both(), second()], [("1", true), ("1", true), ("1", true)]),
            ("opposite nodes", vec![first(), second()], [("0", true), ("0", false), ("any", false)]),
            ("more than a node has", vec![wide(), None], [("0,1", true), ("0,1", true), ("any", false)]),
            ("scattered", vec![spread(), both()], [("0,1", true), ("0,1", false), ("any", false)]),
            ("there is not enough", vec![Some(vec![]), both()], [("0", true), ("0", false), ("any", false)]),
        ] {
            for (policy, (nodes, is_admitted)) in
                [BestEffort, Restricted, SingleNumaNode].into_iter().zip(want)
            {
                assert_eq!(verdict(policy, &hints), (nodes.to_owned(), is_admitted), "{what}, {policy:?}");
            }
        }
        assert_eq!(verdict(Policy::None, &[first(), second()]), ("any".to_owned(), true));
    }

    #[test]
    fn the_resource_that_needs_most_nodes_decides_between_bad_hints() {
        let all = Nodes::of(0..4);
        // One resource needs two nodes, and none of its sets is what the other one wants.
        let two = Some(vec![hint(&[0, 1], true), hint(&[2, 3], true), hint(&[0, 1, 2, 3], false)]);
        let one = Some(vec![hint(&[2], false), hint(&[2, 3], false), hint(&[0, 1, 2], false)]);
        let found = merge(Policy::BestEffort, all, &[two, one], None);
        assert_eq!(found.nodes, Some(Nodes::of([0, 1])), "two nodes, the lowest");
    }

    #[test]
    fn close_nodes_are_preferred_where_asked_for() {
        let all = Nodes::of(0..4);
        // 0 and 3 are next to each other, and so are 1 and 2.
        let rows = [
            (0, vec![10, 30, 40, 20]),
            (1, vec![30, 10, 20, 40]),
            (2, vec![40, 20, 10, 30]),
            (3, vec![20, 40, 30, 10]),
        ];
        let distances = Distances::new(&[0, 1, 2, 3], &rows.into());
        let pairs = |is_preferred: bool| {
            let sets = all.subsets().filter(|set| set.len() == 2);
            Some(sets.map(|set| Hint { nodes: Some(set), is_preferred }).collect::<Vec<_>>())
        };
        for (policy, is_preferred) in [(Policy::Restricted, true), (Policy::BestEffort, false)] {
            let merged = |closest| merge(policy, all, &[pairs(is_preferred)], closest).nodes;
            assert_eq!(merged(None), Some(Nodes::of([0, 1])));
            assert_eq!(merged(Some(&distances)), Some(Nodes::of([1, 2])), "of two close pairs the first");
        }
        // Fewer nodes are better than closer ones.
        let wide = Some(vec![hint(&[0, 1], true), hint(&[0, 1, 2], true)]);
        assert_eq!(merge(Policy::Restricted, all, &[wide], Some(&distances)).nodes, Some(Nodes::of([0, 1])));
    }

    #[test]
    fn as_many_nodes_as_are_aligned_are_merged_in_time() {
        // Numbers of nodes need not be consecutive.
        let all = Nodes::of((0..MOST_NODES as u32).map(|number| number * 3));
        let every: Vec<Hint> =
            all.subsets().map(|set| Hint { nodes: Some(set), is_preferred: set.len() == 1 }).collect();
        let without_first = all.subsets().filter(|set| !set.has(0));
        let others: Vec<Hint> =
            without_first.map(|set| Hint { nodes: Some(set), is_preferred: set.len() == 2 }).collect();
        let found = merge(Policy::BestEffort, all, &[Some(every.clone()), Some(every.clone())], None);
        assert_eq!(found, Verdict { nodes: Some(Nodes::of([0])), is_admitted: true });
        let found = merge(Policy::Restricted, all, &[Some(every), Some(others)], None);
        assert_eq!(found, Verdict { nodes: Some(Nodes::of([3])), is_admitted: false });
    }

    #[test]
    fn many_hints_are_merged_in_time() {
        let all = Nodes::of(0..8);
        let every: Vec<Hint> =
            all.subsets().map(|set| Hint { nodes: Some(set), is_preferred: set.len() == 1 }).collect();
        let resources: Vec<Hints> = (0..12).map(|_| Some(every.clone())).collect();
        assert_eq!(merge(Policy::SingleNumaNode, all, &resources, None).nodes, Some(Nodes::of([0])));
        assert!(merge(Policy::Restricted, all, &resources, None).is_admitted);
    }
}
