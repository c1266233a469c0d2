//! Sets of NUMA nodes.

use std::fmt;

/// A set of NUMA nodes with numbers below 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nodes(u64);

impl Nodes {
    /// Numbers beyond 63 are left out.
    pub fn of(numbers: impl IntoIterator<Item = u32>) -> Self {
        Self(numbers.into_iter().filter_map(|number| 1u64.checked_shl(number)).fold(0, |all, one| all | one))
    }

    /// Whether a node is in it.
    pub fn has(self, number: u32) -> bool {
        1u64.checked_shl(number).is_some_and(|bit| self.0 & bit != 0)
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The numbers, in order.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |number| self.has(*number))
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether all of another set are in this one.
    pub fn includes(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every set of some of these nodes, the empty one left out.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        // The usual walk through the subsets of a bit mask, from the largest down.
        let below = move |set: u64| Some((set - 1) & self.0).filter(|next| *next != 0);
        let first = Some(self.0).filter(|set| *set != 0);
        std::iter::successors(first, move |set| below(*set)).map(Self)
    }

    /// For choosing between sets: fewer nodes first, then lower numbers.
    pub fn width(self) -> (usize, u64) {
        (self.len(), self.0)
    }
}

impl fmt::Display for Nodes {
    /// As the kernel lists nodes, such as `0,2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, number) in self.numbers().enumerate() {
            write!(f, "{}{number}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes() {
        let all = Nodes::of([0, 2, 5, 64, 200]);
        assert_eq!((all.len(), all.to_string().as_str()), (3, "0,2,5"));
        assert!(all.has(2) && !all.has(1) && !all.has(200));
        assert_eq!(all.subsets().count(), 7);
        assert!(all.subsets().all(|set| all.includes(set) && !set.is_empty()));
        assert_eq!(Nodes::default().subsets().count(), 0);
        assert_eq!(all.and(Nodes::of([2, 3])), Nodes::of([2]));
        assert!(Nodes::of([5]).width() < all.width() && Nodes::of([0]).width() < Nodes::of([1]).width());
    }
}
