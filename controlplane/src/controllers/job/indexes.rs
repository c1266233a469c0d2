//! Sets of completion indexes, as the API writes them: `0,2-4,7`.

use std::collections::BTreeSet;
use std::fmt;

/// A set of indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indexes(pub BTreeSet<i32>);

impl Indexes {
    /// Reads the text form; what is out of `limit` or unreadable is left out.
    pub fn parse(text: &str, limit: i32) -> Self {
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
                all.extend(first.max(0)..last.saturating_add(1).min(limit));
            }
        }
        Self(all)
    }

    /// Whether an index is in.
    pub fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&last.saturating_add(1)).is_some_and(|next| next > last) {
                last += 1;
            }
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

    #[test]
    fn intervals_are_joined() {
        assert_eq!(Indexes([0, 2, 3, 4, 7, 8].into()).to_string(), "0,2-4,7,8");
        assert_eq!(Indexes::parse("0,2-4,x,9-12", 10).0, [0, 2, 3, 4, 9].into());
        assert!(Indexes::parse("", 10).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(set in prop::collection::btree_set(0..60i32, 0..40)) {
            let indexes = Indexes(set);
            prop_assert_eq!(Indexes::parse(&indexes.to_string(), 60), indexes);
        }
    }
}
