//! How far NUMA nodes are from each other.

use std::collections::BTreeMap;

use super::nodes::Nodes;

/// Distances by pair of nodes, as the firmware gives them: 10 within a node, more between nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distances(BTreeMap<(u32, u32), u64>);

impl Distances {
    /// Distances of every node to all nodes, in the order of `numbers`.
    pub fn new(numbers: &[u32], rows: &BTreeMap<u32, Vec<u64>>) -> Self {
        let row = |(from, row): (&u32, &Vec<u64>)| {
            let pairs = numbers.iter().zip(row.clone());
            pairs.map(|(to, distance)| ((*from, *to), distance)).collect::<Vec<_>>()
        };
        Self(rows.iter().flat_map(row).collect())
    }

    /// Whether the distance of every pair of nodes is known.
    pub fn is_complete(&self, all: Nodes) -> bool {
        let is_known = |from: u32| all.numbers().all(|to| self.0.contains_key(&(from, to)));
        all.numbers().all(is_known)
    }

    /// The distances of all pairs in a set, added up: of sets with as many nodes, the closest has the lowest.
    pub fn sum(&self, nodes: Nodes) -> u64 {
        let of = |from: u32| nodes.numbers().filter_map(move |to| self.0.get(&(from, to)));
        nodes.numbers().flat_map(of).fold(0, |sum, distance| sum.saturating_add(*distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_sets() {
        let rows = [(0, vec![10, 21, 31]), (2, vec![21, 10, 41]), (5, vec![31, 41, 10])].into();
        let distances = Distances::new(&[0, 2, 5], &rows);
        assert_eq!(distances.sum(Nodes::of([2])), 10);
        assert_eq!(distances.sum(Nodes::of([0, 2])), 10 + 21 + 21 + 10);
        assert!(distances.sum(Nodes::of([0, 5])) < distances.sum(Nodes::of([2, 5])));
        assert!(distances.is_complete(Nodes::of([0, 2, 5])) && !distances.is_complete(Nodes::of([0, 1])));
    }
}
