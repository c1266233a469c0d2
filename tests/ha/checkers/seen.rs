//! Whether there was anything to check: a checker that was shown nothing finds nothing wrong.

use super::{Kind, Violation};

/// How much of something was seen, and how much had to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// What, for messages.
    pub what: String,
    /// How often it was seen.
    pub found: usize,
    /// How often at least it must have been.
    pub least: usize,
}

/// Checks that enough was seen.
pub fn check(counts: &[Count]) -> Vec<Violation> {
    let missing = counts.iter().filter(|count| count.found < count.least);
    let violation = |count: &Count| {
        let message = format!("{} of {}, at least {} are due", count.found, count.what, count.least);
        Violation::new(Kind::NotSeen, message)
    };
    missing.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_caught() {
        let count = |found| Count { what: "terms".into(), found, least: 2 };
        assert_eq!(check(&[count(2), count(3)]), []);
        let violations = check(&[count(2), count(1)]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].kind, Kind::NotSeen);
        assert_eq!(violations[0].message, "1 of terms, at least 2 are due");
    }
}
