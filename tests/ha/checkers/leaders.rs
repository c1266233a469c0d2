//! Leaders: the Lease of an election has one holder at any revision, and what control loops wrote was written by the server
//! that held it at the revision of the write. Revisions are the clock, not times: they are the same for all servers.

use super::{Kind, Violation};
use crate::ha::history::Revision;
use std::collections::BTreeMap;

/// From this revision on, and until the next one, this server led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The Lease.
    pub election: String,
    /// Nobody, if it is empty.
    pub holder: String,
    /// The revision of the Lease in which the holder appeared.
    pub from: Revision,
}

/// Something that a control loop of a server wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// The Lease that the loop needs.
    pub election: String,
    /// Where the loop ran.
    pub server: String,
    /// The revision that it wrote.
    pub revision: Revision,
    /// Controller and object, for messages.
    pub what: String,
}

/// Checks that everybody who acted led.
pub fn check(terms: &[Term], acts: &[Act]) -> Vec<Violation> {
    let mut elections: BTreeMap<&str, BTreeMap<Revision, &Term>> = BTreeMap::new();
    let mut violations = Vec::new();
    for term in terms {
        let known = elections.entry(&term.election).or_default().insert(term.from, term);
        if let Some(other) = known.filter(|other| other.holder != term.holder) {
            let message = format!(
                "{} and {} both led {} from revision {}",
                other.holder, term.holder, term.election, term.from
            );
            violations.push(Violation::new(Kind::TwoLeaders, message));
        }
    }
    for act in acts {
        let term =
            elections.get(act.election.as_str()).and_then(|terms| terms.range(..=act.revision).next_back());
        let Some((from, term)) = term else {
            let message = format!(
                "{} wrote revision {} ({}) before anybody led {}",
                act.server, act.revision, act.what, act.election
            );
            violations.push(Violation::new(Kind::TwoLeaders, message));
            continue;
        };
        if term.holder != act.server {
            let leader = if term.holder.is_empty() { "nobody" } else { &term.holder };
            let message = format!(
                "{} wrote revision {} ({}), but {leader} has led {} since revision {from}",
                act.server, act.revision, act.what, act.election
            );
            violations.push(Violation::new(Kind::TwoLeaders, message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(holder: &str, from: u64) -> Term {
        Term { election: "scheduler".into(), holder: holder.into(), from }
    }

    fn act(server: &str, revision: u64) -> Act {
        Act { election: "scheduler".into(), server: server.into(), revision, what: "pod p".into() }
    }

    #[test]
    fn who_leads_writes() {
        let terms = [term("a", 5), term("", 20), term("b", 25), term("a", 40)];
        assert_eq!(check(&terms, &[act("a", 6), act("a", 19), act("b", 26), act("a", 41)]), []);
    }

    #[test]
    fn a_leader_that_was_replaced_and_wrote_is_caught() {
        let terms = [term("a", 5), term("", 20), term("b", 25)];
        for (act, said) in [
            (act("a", 27), "a wrote revision 27 (pod p), but b has led scheduler since revision 25"),
            (act("b", 10), "but a has led"),
            (act("a", 22), "but nobody has led"),
            (act("a", 3), "before anybody led"),
        ] {
            let violations = check(&terms, &[act]);
            assert_eq!(violations.len(), 1);
            assert_eq!(violations[0].kind, Kind::TwoLeaders);
            assert!(violations[0].message.contains(said), "{}", violations[0]);
        }
    }

    #[test]
    fn two_holders_of_one_revision_are_caught() {
        let violations = check(&[term("a", 5), term("b", 5)], &[]);
        assert!(violations[0].message.contains("a and b both led scheduler"), "{violations:?}");
    }
}
