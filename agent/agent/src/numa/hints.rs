//! Hints of a resource: which sets of nodes have enough of it.

use super::nodes::Nodes;

/// A set of nodes that has enough of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The nodes; none if any will do.
    pub nodes: Option<Nodes>,
    /// No smaller set could ever have enough.
    pub is_preferred: bool,
}

/// Hints of a resource; none if it does not matter where it comes from. Without any hint there is not enough of it.
pub type Hints = Option<Vec<Hint>>;

/// Hints for an amount of a resource: `total` is what a set of nodes has when nothing is used, `free` what is left there, or
/// nothing if that set cannot be used now.
pub fn hints(
    all: Nodes,
    wanted: u64,
    total: impl Fn(Nodes) -> u64,
    free: impl Fn(Nodes) -> Option<u64>,
) -> Vec<Hint> {
    let mut sets: Vec<Nodes> = all.subsets().collect();
    sets.sort_unstable_by_key(|set| set.width());
    let least = sets.iter().find(|set| total(**set) >= wanted).map_or(all.len(), |set| set.len());
    let usable = sets.into_iter().filter(|set| free(*set).is_some_and(|free| free >= wanted));
    usable.map(|set| Hint { nodes: Some(set), is_preferred: set.len() == least }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_set_that_could_ever_suffice_is_preferred() {
        let all = Nodes::of([0, 1]);
        let each = |amount: u64| move |set: Nodes| amount * set.len() as u64;
        let found = |wanted: u64, free: [u64; 2]| -> Vec<(String, bool)> {
            let free = |set: Nodes| Some(set.numbers().map(|number| free[number as usize]).sum());
            let found = hints(all, wanted, each(4), free).into_iter();
            found.map(|hint| (hint.nodes.unwrap_or_default().to_string(), hint.is_preferred)).collect()
        };
        let is = |list: &[(&str, bool)]| -> Vec<(String, bool)> {
            list.iter().map(|(set, preferred)| ((*set).to_owned(), *preferred)).collect()
        };
        assert_eq!(found(2, [4, 4]), is(&[("0", true), ("1", true), ("0,1", false)]));
        assert_eq!(found(4, [3, 4]), is(&[("1", true), ("0,1", false)]));
        assert_eq!(found(4, [3, 3]), is(&[("0,1", false)]), "one node could have had enough");
        assert_eq!(found(6, [4, 4]), is(&[("0,1", true)]));
        assert_eq!(found(6, [4, 1]), is(&[]));
    }
}
