//! Pods: one that has a node keeps it for life, and no other node runs it.

use super::{Kind, Violation};
use crate::ha::history::Revision;
use std::collections::BTreeMap;

/// A pod on a node, as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// `metadata.uid`: a pod of the same name is another one.
    pub uid: String,
    /// `namespace/name`, for messages.
    pub pod: String,
    /// `spec.nodeName`, or the node that ran it.
    pub node: String,
    /// Where it was seen: a revision, or 0 for what a node itself says.
    pub revision: Revision,
}

/// Checks that every pod had at most one node.
pub fn check(placements: &[Placement]) -> Vec<Violation> {
    let mut pods: BTreeMap<&str, Vec<&Placement>> = BTreeMap::new();
    for placement in placements.iter().filter(|placement| !placement.node.is_empty()) {
        let known = pods.entry(&placement.uid).or_default();
        if known.iter().all(|other| other.node != placement.node) {
            known.push(placement);
        }
    }
    let twice = pods.into_values().filter(|nodes| nodes.len() > 1);
    let violation = |nodes: Vec<&Placement>| {
        let place = |placement: &&Placement| match placement.revision {
            0 => format!("{} ran it", placement.node),
            revision => format!("{} at revision {revision}", placement.node),
        };
        let places: Vec<String> = nodes.iter().map(place).collect();
        let message =
            format!("pod {} ({}) had several nodes: {}", nodes[0].pod, nodes[0].uid, places.join(", "));
        Violation::new(Kind::BoundTwice, message)
    };
    twice.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(uid: &str, node: &str, revision: u64) -> Placement {
        Placement { uid: uid.into(), pod: "default/p".into(), node: node.into(), revision }
    }

    #[test]
    fn a_pod_keeps_its_node() {
        let placements = [
            placement("u", "", 5),
            placement("u", "n1", 6),
            placement("u", "n1", 0),
            placement("v", "n2", 9),
        ];
        assert_eq!(check(&placements), []);
    }

    #[test]
    fn a_pod_that_is_bound_twice_is_caught() {
        let violations = check(&[placement("u", "n1", 6), placement("u", "n2", 9)]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].kind, Kind::BoundTwice);
        assert!(violations[0].message.ends_with("n1 at revision 6, n2 at revision 9"), "{}", violations[0]);
        let ran = check(&[placement("u", "n1", 6), placement("u", "n2", 0)]);
        assert!(ran[0].message.ends_with("n2 ran it"), "{}", ran[0]);
    }
}
