//! Sets of completion indexes, as the API writes them: `0,2-4,7`.
//!
//! They are kept as intervals: a job may have as many completions as an `i32` counts, and a client chooses how many of
//! them a text names.

use std::fmt;

/// A set of indexes: intervals, each with its first and its last index, in order, with gaps between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads the text form; what is out of `limit` or unreadable is left out.
    pub fn parse(text: &str, limit: i32) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.trim().parse::<i32>().ok()?, last.trim().parse::<i32>().ok()?);
            Some((first, last.min(limit.saturating_sub(1))))
        };
        Self::joined(text.split(',').filter_map(interval).collect())
    }

    /// All indexes below `limit`.
    pub fn below(limit: i32) -> Self {
        Self::joined(vec![(0, limit.saturating_sub(1))])
    }

    /// Intervals in any order that may be empty, touch or overlap. No index is negative.
    fn joined(mut intervals: Vec<(i32, i32)>) -> Self {
        intervals.iter_mut().for_each(|(first, _)| *first = (*first).max(0));
        intervals.retain(|(first, last)| first <= last);
        intervals.sort_unstable();
        intervals.dedup_by(|(first, last), before| {
            let joins = *first <= before.1.saturating_add(1);
            if joins {
                before.1 = before.1.max(*last);
            }
            joins
        });
        Self(intervals)
    }

    /// Both sets together.
    pub fn union(&self, other: &Self) -> Self {
        Self::joined([&self.0[..], &other.0[..]].concat())
    }

    /// Whether an index is in.
    pub fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.iter().map(|(first, last)| count(*first, *last)).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in both sets.
    pub fn common(&self, other: &Self) -> usize {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = 0;
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            common += count(a.0.max(b.0), a.1.min(b.1));
            if a.1 < b.1 {
                ours.next()
            } else {
                theirs.next()
            };
        }
        common
    }

    /// The indexes below `limit` that are not in, in order.
    pub fn missing(&self, limit: i32) -> impl Iterator<Item = i32> + '_ {
        let begins = std::iter::once(0).chain(self.0.iter().map(|(_, last)| last.saturating_add(1)));
        let ends = self.0.iter().map(|(first, _)| *first).chain([limit]);
        begins.zip(ends).flat_map(move |(begin, end)| begin..end.min(limit))
    }
}

/// How many indexes an interval has; none if it ends before it begins.
fn count(first: i32, last: i32) -> usize {
    usize::try_from(i64::from(last) - i64::from(first) + 1).unwrap_or(0)
}

impl Extend<i32> for Indexes {
    fn extend<T: IntoIterator<Item = i32>>(&mut self, indexes: T) {
        let mut intervals = std::mem::take(&mut self.0);
        intervals.extend(indexes.into_iter().map(|index| (index, index)));
        *self = Self::joined(intervals);
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<T: IntoIterator<Item = i32>>(indexes: T) -> Self {
        let mut all = Self::default();
        all.extend(indexes);
        all
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in &self.0 {
            write!(f, "{separator}{first}")?;
            match last - first {
                0 => {}
                1 => write!(f, ",{last}")?,
                _ => write!(f, "-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(indexes: &[i32]) -> Indexes {
        indexes.iter().copied().collect()
    }

    #[test]
    fn intervals_are_joined() {
        assert_eq!(set(&[8, 0, 2, 3, 4, 7]).to_string(), "0,2-4,7,8");
        assert_eq!(Indexes::parse("0,2-4,x,9-12", 10), set(&[0, 2, 3, 4, 9]));
        assert_eq!(Indexes::parse("5-7,0-1,2,6-8,9-3,-1", 100).to_string(), "0-2,5-8");
        assert!(Indexes::parse("", 10).is_empty() && Indexes::parse("0-5", 0).is_empty());
        assert_eq!(set(&[-1, i32::MAX, i32::MAX - 1]).to_string(), "2147483646,2147483647");
    }

    #[test]
    fn all_indexes_of_the_largest_job_take_one_interval() {
        let mut all = Indexes::parse("0-2147483646", i32::MAX);
        assert_eq!((all.0.len(), all.len()), (1, 2_147_483_647));
        assert_eq!((all.to_string().as_str(), &all), ("0-2147483646", &Indexes::below(i32::MAX)));
        assert!(all.contains(0) && all.contains(2_147_483_646) && !all.contains(i32::MAX));
        assert_eq!(all.missing(i32::MAX).next(), None);
        assert_eq!(all.common(&set(&[1, 7])), 2);
        all.extend([5]);
        assert_eq!(all.union(&set(&[9])).0.len(), 1);
        let most = Indexes::parse("0-2147483640,2147483643", i32::MAX);
        let missing: Vec<i32> = most.missing(i32::MAX).take(3).collect();
        assert_eq!(missing, [2_147_483_641, 2_147_483_642, 2_147_483_644]);
        // Texts overlap as often as a client likes.
        let text = vec!["0-2147483646"; 10_000].join(",");
        assert_eq!(Indexes::parse(&text, i32::MAX).0.len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(set in prop::collection::btree_set(0..60i32, 0..40)) {
            let indexes: Indexes = set.into_iter().collect();
            prop_assert_eq!(Indexes::parse(&indexes.to_string(), 60), indexes);
        }

        #[test]
        fn intervals_mean_the_indexes_in_them(
            a in prop::collection::btree_set(0..60i32, 0..40),
            b in prop::collection::btree_set(0..60i32, 0..40),
            limit in 0..70i32,
        ) {
            let (x, y): (Indexes, Indexes) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert!((0..70).all(|index| x.contains(index) == a.contains(&index)));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.common(&y), a.intersection(&b).count());
            prop_assert_eq!(x.union(&y), a.union(&b).copied().collect::<Indexes>());
            let missing: BTreeSet<i32> = (0..limit).filter(|index| !a.contains(index)).collect();
            prop_assert_eq!(x.missing(limit).collect::<Vec<_>>(), missing.into_iter().collect::<Vec<_>>());
        }
    }
}
