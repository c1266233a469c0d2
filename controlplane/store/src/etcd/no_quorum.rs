//! Why no endpoint of etcd answers.

use std::{fmt, sync::Arc};

/// Too few members are reached, or those that are have no leader. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoQuorum {
    /// How many endpoints were reached.
    pub reached: usize,
    /// How many there are.
    pub of: usize,
    /// Why the others were not: `url: reason`, separated by `; `.
    pub why: Arc<str>,
}

impl NoQuorum {
    /// How many endpoints must be reached before an election is waited for. Two need not be all members.
    pub(super) fn enough(of: usize) -> usize {
        if of > 2 { of / 2 + 1 } else { 1 }
    }

    /// Whether an election may help.
    pub(super) fn is_election(&self) -> bool {
        self.reached >= Self::enough(self.of)
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reached, of, why } = self;
        match self.is_election() {
            true => write!(f, "etcd: {reached} of {of} members are reached, and they have no leader")?,
            false => write!(f, "etcd: {reached} of {of} members are reached, which is no majority")?,
        }
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_missing_and_why() {
        let text = |reached, of, why: &str| NoQuorum { reached, of, why: why.into() }.to_string();
        assert_eq!(
            text(1, 3, "https://b:1: its certificate has expired"),
            "etcd: 1 of 3 members are reached, which is no majority: https://b:1: its certificate has expired"
        );
        assert_eq!(text(2, 3, ""), "etcd: 2 of 3 members are reached, and they have no leader");
        assert_eq!(text(0, 1, ""), "etcd: 0 of 1 members are reached, which is no majority");
        assert_eq!(text(1, 2, ""), "etcd: 1 of 2 members are reached, and they have no leader");
    }
}
