//! Addresses of pods and Services: nobody has one that another one still has. Time is counted in revisions.

use super::{Kind, Violation};
use crate::ha::history::Revision;
use std::collections::BTreeMap;

/// An owner that is seen with an address, or without any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// `Pod namespace/name (uid)`, `Service …`: who, for ever.
    pub owner: String,
    /// All addresses that it has from this revision on; none when it is gone, has ended, or is being deleted.
    pub addresses: Vec<String>,
    /// Where that was seen.
    pub revision: Revision,
}

/// Checks holdings, in any order.
pub fn check(holdings: &[Holding]) -> Vec<Violation> {
    let mut in_order: Vec<&Holding> = holdings.iter().collect();
    in_order.sort_by_key(|holding| holding.revision);
    let mut owners: BTreeMap<&str, &Holding> = BTreeMap::new();
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    let mut violations = Vec::new();
    for holding in in_order {
        let before = owners.insert(&holding.owner, holding);
        for address in before.into_iter().flat_map(|before| &before.addresses) {
            if taken.get(address.as_str()) == Some(&holding.owner.as_str()) {
                taken.remove(address.as_str());
            }
        }
        for address in &holding.addresses {
            let Some(other) = taken.insert(address, &holding.owner) else { continue };
            let since = owners.get(other).map_or(0, |other| other.revision);
            let message = format!(
                "{} got {address} at revision {}, which {other} has had since revision {since} at the latest",
                holding.owner, holding.revision
            );
            violations.push(Violation::new(Kind::AddressTwice, message));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(owner: &str, addresses: &[&str], revision: u64) -> Holding {
        Holding {
            owner: owner.into(),
            addresses: addresses.iter().map(|a| (*a).to_owned()).collect(),
            revision,
        }
    }

    #[test]
    fn an_address_is_given_again_when_it_is_free() {
        let holdings = [
            holding("a", &["10.0.0.1", "fd00::1"], 3),
            holding("b", &["10.0.0.2"], 4),
            // Seen by another watcher, later.
            holding("c", &["10.0.0.1"], 9),
            holding("a", &["10.0.0.1", "fd00::1"], 6),
            holding("a", &[], 8),
            holding("a", &["10.0.0.3"], 10),
        ];
        assert_eq!(check(&holdings), []);
    }

    #[test]
    fn an_address_of_two_owners_is_caught() {
        let holdings = [holding("a", &["10.0.0.1"], 3), holding("b", &["10.0.0.1"], 7), holding("a", &[], 8)];
        let violations = check(&holdings);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].kind, Kind::AddressTwice);
        let said = "b got 10.0.0.1 at revision 7, which a has had since revision 3 at the latest";
        assert_eq!(violations[0].message, said);
    }
}
