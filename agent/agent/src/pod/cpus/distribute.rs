//! Distributes cpus: if one NUMA node has too few, as many from each of as few nodes as possible. Pure.

use std::collections::BTreeMap;

use super::Set;
use super::pack::{packed, sorted};
use super::topology::{Level, Topology};

/// With more nodes there are too many combinations of them to look at each one.
const MOST_NODES: usize = 12;

/// Free cpus by NUMA node.
type Counts = BTreeMap<u32, usize>;

/// Nodes that give cpus.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    /// Each of these gives the same number.
    nodes: Vec<u32>,
    /// These give the groups that are left over, one after the other.
    rest: Vec<u32>,
    /// How different the nodes are afterwards; 0 if all of them have the same number left.
    imbalance: usize,
}

/// Chooses `count` of the free cpus in groups of `group`, and packs them where they cannot be distributed.
pub(super) fn distributed(topology: &Topology, free: &Set, count: usize, group: usize) -> Option<Set> {
    let nodes = sorted(topology, free, Level::Node);
    if count == 0 || !count.is_multiple_of(group) || nodes.len() > MOST_NODES {
        return packed(topology, free, count, false);
    }
    let counts = topology.counts(free, Level::Node);
    let all = topology.groups(Level::Node).len().max(1);
    let groups_of_node = topology.places.len().div_ceil(group).div_ceil(all).max(1);
    let groups = count / group;
    let mut sizes = groups.div_ceil(groups_of_node)..=groups.min(nodes.len());
    let plan = sizes.find_map(|size| best_of_size(&nodes, &counts, size, (count, group)));
    match plan {
        Some(plan) => apply(topology, free, &plan, (count, group)),
        None => packed(topology, free, count, false),
    }
}

/// The best plan with so many nodes; the first of those that are equally good.
fn best_of_size(nodes: &[u32], counts: &Counts, size: usize, (count, group): (usize, usize)) -> Option<Plan> {
    let mut best: Option<Plan> = None;
    for combination in combinations(nodes, size) {
        if best.as_ref().is_some_and(|best| best.imbalance == 0) {
            break;
        }
        let plan = plan_for(combination, counts, (count, group));
        if let Some(plan) = plan
            && best.as_ref().is_none_or(|best| plan.imbalance < best.imbalance)
        {
            best = Some(plan);
        }
    }
    best
}

/// The best plan in which each of these nodes gives the same number, and some of them what is left over.
fn plan_for(nodes: Vec<u32>, counts: &Counts, (count, group): (usize, usize)) -> Option<Plan> {
    let each = count / nodes.len() / group * group;
    let mut left = counts.clone();
    for node in &nodes {
        let here = left.get_mut(node)?;
        *here = here.checked_sub(each)?;
    }
    let missing = count - each * nodes.len();
    if missing == 0 {
        return Some(Plan { nodes, rest: vec![], imbalance: imbalance(&left) });
    }
    let usable: Vec<u32> = nodes.iter().copied().filter(|node| left[node] >= group).collect();
    let mut best: Option<(usize, Vec<u32>)> = None;
    // As many nodes as possible.
    for size in (1..=usable.len()).rev() {
        for rest in combinations(&usable, size) {
            let Some(after) = without(left.clone(), &rest, missing, group) else { continue };
            let imbalance = imbalance(&after);
            if best.as_ref().is_none_or(|(least, _)| imbalance < *least) {
                best = Some((imbalance, rest));
            }
        }
    }
    best.map(|(imbalance, rest)| Plan { nodes, rest, imbalance })
}

/// What is left when some nodes have given so many cpus, a group after the other; nothing if they have too few.
fn without(mut left: Counts, from: &[u32], mut missing: usize, group: usize) -> Option<Counts> {
    if from.iter().map(|node| left[node] / group * group).sum::<usize>() < missing {
        return None;
    }
    while missing > 0 {
        for node in from {
            let Some(here) = left.get_mut(node).filter(|here| missing > 0 && **here >= group) else {
                continue;
            };
            *here -= group;
            missing -= group;
        }
    }
    Some(left)
}

/// The variance, times a number that is the same for all plans.
fn imbalance(left: &Counts) -> usize {
    let sum: usize = left.values().sum();
    let squares: usize = left.values().map(|count| count * count).sum();
    left.len() * squares - sum * sum
}

fn apply(topology: &Topology, free: &Set, plan: &Plan, (count, group): (usize, usize)) -> Option<Set> {
    let each = count / plan.nodes.len() / group * group;
    let mut taken = Set::new();
    let mut give = |node: u32, count: usize| -> Option<bool> {
        let here: Set = topology
            .group(Level::Node, node)
            .intersection(free)
            .filter(|cpu| !taken.contains(cpu))
            .copied()
            .collect();
        if here.len() < count {
            return Some(false);
        }
        taken.extend(packed(topology, &here, count, false)?);
        Some(true)
    };
    for node in &plan.nodes {
        give(*node, each)?;
    }
    let mut missing = count - each * plan.nodes.len();
    while missing > 0 {
        for node in &plan.rest {
            if missing > 0 && give(*node, group)? {
                missing -= group;
            }
        }
    }
    Some(taken)
}

/// Every choice of so many of the items, in their order.
fn combinations(items: &[u32], size: usize) -> Vec<Vec<u32>> {
    if size == 0 {
        return vec![vec![]];
    }
    let first = |at: usize| {
        let rest = combinations(&items[at + 1..], size - 1).into_iter();
        rest.map(move |rest| [vec![items[at]], rest].concat())
    };
    (0..items.len()).flat_map(first).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::numa::parse_list;

    #[test]
    fn every_choice_of_some_items() {
        assert_eq!(combinations(&[1, 2, 3], 2), [[1, 2], [1, 3], [2, 3]]);
        assert_eq!(combinations(&[1, 2], 2), [[1, 2]]);
        assert!(combinations(&[1], 2).is_empty());
    }

    #[test]
    fn nodes_give_the_same_number() {
        // Two sockets of two nodes of two cores with two threads: nodes 0-1,8-9 2-3,10-11 4-5,12-13 6-7,14-15.
        let machine = Topology::of(2, 2, 1, 2, 2);
        for (free, count, group, want) in [
            // One node has enough.
            ("0-15", 4, 1, "0-1,8-9"),
            ("0-15", 3, 1, "0-1,8"),
            // Half from each of two; by whole cores one gives more.
            ("0-15", 6, 1, "0-3,8,10"),
            ("0-15", 6, 2, "0-2,8-10"),
            ("0-15", 8, 1, "0-3,8-11"),
            ("0-15", 9, 1, "0-5,8,10,12"),
            // No number of whole cores: packed.
            ("0-15", 5, 2, "0-2,8-9"),
            // Two nodes have too few.
            ("0-7", 6, 1, "0-5"),
            ("2-7,10-15", 12, 1, "2-7,10-15"),
            ("0-15", 16, 1, "0-15"),
            // Four, three, four and one are free: the nodes are to be as different as before at most.
            ("0-6,8-10,12-13", 2, 1, "4,12"),
            ("0-6,8-10,12-13", 5, 1, "0,4-5,8,12"),
        ] {
            let found = distributed(&machine, &parse_list(free), count, group).unwrap();
            assert_eq!(found, parse_list(want), "{count} of {free} by {group}");
        }
    }
}
