//! The ownership graph: all objects by uid, with their owners and dependents. No clock, no tasks.

use coracle_fields::meta::PartialObjectMetadata;
use coracle_informer::informer::Name;
use coracle_kinds::object::{Object, Owner};
use coracle_proto::schema;
use std::collections::{BTreeSet, HashMap};

/// The finalizer of an owner that goes after its dependents.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that goes without its dependents.
pub const ORPHAN: &str = "orphan";

/// An object in the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The prefix of its kind.
    pub kind: String,
    /// Its name.
    pub name: Name,
    /// Its owners.
    pub owners: Vec<Owner>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it waits for its dependents to be deleted.
    pub foreground: bool,
    /// Whether it has the finalizer `orphan`.
    pub orphaning: bool,
    /// Whether its initializers are pending: when they have finished, it is looked at again.
    pub pending: bool,
    /// Whether one of them has failed. The server deletes it then, unless it stops at that moment.
    pub failed: bool,
}

/// Whether an initializer has failed. Without the feature gate an object that still has the field is like any other.
fn has_failed(object: &Object) -> bool {
    let doc = (object.meta.uninitialized && schema::has_initializers()).then(|| object.doc());
    doc.is_some_and(|doc| doc.view::<PartialObjectMetadata>().metadata().initializers().result().is_set())
}

impl Node {
    /// An object of a kind.
    pub fn of(kind: &str, object: &Object) -> Self {
        let deleting = object.meta.deletion_timestamp.is_some();
        let has = |finalizer: &str| object.meta.finalizers.iter().any(|f| f == finalizer);
        Self {
            kind: kind.into(),
            name: Name::of(object),
            owners: object.meta.owner_references.clone(),
            deleting,
            foreground: deleting && has(FOREGROUND),
            orphaning: deleting && has(ORPHAN),
            pending: object.meta.uninitialized,
            failed: has_failed(object),
        }
    }

    /// Whether the deletion of an owner waits for this object.
    pub fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|o| o.uid == owner && o.block_owner_deletion)
    }
}

/// What the graph says about an owner that a reference names; the rest is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there.
    Present,
    /// It is there and waits for its dependents to be deleted.
    Waiting,
    /// There is no such object.
    Absent,
}

/// What to do about an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Leave,
    /// Orphan the dependents, then remove the finalizer.
    Orphan(Vec<String>),
    /// All blocking dependents are gone: take off the finalizer.
    Finish,
    /// Look at these dependents: they are to be deleted first.
    Descend(Vec<String>),
    /// Take off the references to these owners; others remain.
    RemoveOwners(Vec<String>),
    /// Delete it, dependents first if `foreground`. `unblock` clears `blockOwnerDeletion`, which could form a cycle.
    Delete {
        /// Whether dependents go first.
        foreground: bool,
        /// Whether to make its references non-blocking before.
        unblock: bool,
    },
}

/// All objects and their relations.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<String, Node>,
    dependents: HashMap<String, BTreeSet<String>>,
}

impl Graph {
    /// Takes in an object; returns the uids to look at.
    pub fn put(&mut self, uid: &str, node: Node) -> Vec<String> {
        let old = self.nodes.get(uid).cloned();
        if old.as_ref() == Some(&node) {
            return Vec::new();
        }
        let mut look = Vec::new();
        let before: Vec<Owner> = old.as_ref().map(|o| o.owners.clone()).unwrap_or_default();
        if before != node.owners {
            for owner in &before {
                self.unlink(&owner.uid, uid);
                // An owner that waits for this one may be done with it.
                if self.nodes.get(&owner.uid).is_some_and(|o| o.foreground) {
                    look.push(owner.uid.clone());
                }
            }
            for owner in &node.owners {
                self.dependents.entry(owner.uid.clone()).or_default().insert(uid.to_owned());
            }
        }
        let unsure = |o: &Owner| self.nodes.get(&o.uid).is_none_or(|n| n.foreground || n.name.name != o.name);
        if node.failed
            || node.foreground
            || node.orphaning
            || (!node.deleting && node.owners.iter().any(unsure))
        {
            look.push(uid.to_owned());
        }
        self.nodes.insert(uid.to_owned(), node);
        look
    }

    /// An object is gone; returns the uids to look at.
    pub fn remove(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look: Vec<String> = self.dependents(uid);
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self.nodes.get(&owner.uid).is_some_and(|o| o.foreground) {
                look.push(owner.uid.clone());
            }
        }
        look
    }

    /// Every uid of a kind.
    pub fn of_kind(&self, kind: &str) -> Vec<String> {
        self.nodes.iter().filter(|(_, n)| n.kind == kind).map(|(uid, _)| uid.clone()).collect()
    }

    /// A node.
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uids of those an object owns.
    pub fn dependents(&self, uid: &str) -> Vec<String> {
        self.dependents.get(uid).map(|d| d.iter().cloned().collect()).unwrap_or_default()
    }

    fn unlink(&mut self, owner: &str, uid: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(uid);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }

    /// Decides on an object; `owners` holds the state of each owner that it has now, which the graph may not have heard of
    /// yet: changes of different kinds come in any order.
    pub fn decide(&self, uid: &str, owners: &[(String, OwnerState)]) -> Decision {
        let Some(node) = self.nodes.get(uid) else { return Decision::Leave };
        if node.failed {
            return Decision::Delete { foreground: false, unblock: false };
        }
        let dependents = self.dependents(uid);
        if node.orphaning {
            return Decision::Orphan(dependents);
        }
        if node.foreground {
            // Nobody waits for itself.
            let others = dependents.into_iter().filter(|d| d != uid);
            let blocking: Vec<String> =
                others.filter(|d| self.nodes.get(d).is_some_and(|n| n.blocks(uid))).collect();
            return if blocking.is_empty() {
                Decision::Finish
            } else {
                let waiting = |d: &String| self.nodes.get(d).is_some_and(|n| !n.deleting || !n.foreground);
                Decision::Descend(blocking.into_iter().filter(waiting).collect())
            };
        }
        if node.deleting || node.owners.is_empty() || owners.is_empty() {
            return Decision::Leave;
        }
        let in_state = |state| owners.iter().filter(move |(_, s)| *s == state).map(|(uid, _)| uid.clone());
        if in_state(OwnerState::Present).next().is_some() {
            let cut: Vec<String> =
                in_state(OwnerState::Absent).chain(in_state(OwnerState::Waiting)).collect();
            return if cut.is_empty() { Decision::Leave } else { Decision::RemoveOwners(cut) };
        }
        let waiting = in_state(OwnerState::Waiting).next().is_some();
        if waiting && !dependents.is_empty() {
            let unblock = dependents.iter().any(|d| self.nodes.get(d).is_some_and(|n| n.foreground));
            return Decision::Delete { foreground: true, unblock };
        }
        Decision::Delete { foreground: false, unblock: false }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn node(name: &str, owners: &[(&str, bool)], finalizers: &[&str]) -> Node {
        let refs: Vec<Value> = owners
            .iter()
            .map(|(o, block)| json!({"apiVersion": "v1", "kind": "K", "name": o, "uid": o, "blockOwnerDeletion": block}))
            .collect();
        let deleting = (!finalizers.is_empty()).then_some("now");
        Node::of(
            "k",
            &object(json!({"metadata": {"name": name, "uid": name, "ownerReferences": refs,
            "finalizers": finalizers, "deletionTimestamp": deleting}})),
        )
    }

    #[test]
    fn a_dependent_goes_when_its_last_owner_is_gone() {
        let mut graph = Graph::default();
        graph.put("a", node("a", &[], &[]));
        graph.put("b", node("b", &[], &[]));
        assert!(graph.put("c", node("c", &[("a", true), ("b", true)], &[])).is_empty());
        assert_eq!(graph.remove("a"), ["c"]);
        let states = |a, b| [("a".to_owned(), a), ("b".to_owned(), b)];
        let cut = graph.decide("c", &states(OwnerState::Absent, OwnerState::Present));
        assert_eq!(cut, Decision::RemoveOwners(vec!["a".into()]));
        let gone = graph.decide("c", &states(OwnerState::Absent, OwnerState::Absent));
        assert_eq!(gone, Decision::Delete { foreground: false, unblock: false });
    }

    #[test]
    fn one_is_looked_at_again_when_it_is_initialized() {
        let mut graph = Graph::default();
        let ready = node("a", &[("gone", true)], &[]);
        assert_eq!(graph.put("a", Node { pending: true, ..ready.clone() }), ["a"]);
        assert_eq!(graph.put("a", ready.clone()), ["a"]);
        assert!(graph.put("a", ready).is_empty());
    }

    #[test]
    fn one_whose_initializer_has_failed_goes() {
        let mut graph = Graph::default();
        graph.put("a", node("a", &[], &[]));
        let waiting = Node { pending: true, ..node("b", &[("a", true)], &[]) };
        assert!(graph.put("b", waiting.clone()).is_empty());
        let failed = Node { failed: true, ..waiting };
        assert_eq!(graph.put("b", failed.clone()), ["b"]);
        let owners = [("a".to_owned(), OwnerState::Present)];
        assert_eq!(graph.decide("b", &owners), Decision::Delete { foreground: false, unblock: false });
        // Found by a server that starts.
        assert_eq!(Graph::default().put("b", failed), ["b"]);
        let result = json!({"result": {"status": "Failure"}});
        let left = object(json!({"metadata": {"name": "c", "uid": "c", "initializers": result}}));
        assert!(!Node::of("k", &left).failed, "without the gate it is like any other");
    }

    #[test]
    fn one_that_was_let_go_stays_although_its_owners_end_was_heard_of_first() {
        let mut graph = Graph::default();
        graph.put("a", node("a", &[], &[ORPHAN]));
        graph.put("b", node("b", &[("a", true)], &[]));
        assert_eq!(graph.remove("a"), ["b"]);
        assert_eq!(graph.decide("b", &[]), Decision::Leave);
    }

    #[test]
    fn an_owner_that_never_was_is_noticed() {
        let mut graph = Graph::default();
        assert_eq!(graph.put("c", node("c", &[("ghost", true)], &[])), ["c"]);
    }

    #[test]
    fn foreground_waits_for_those_who_block() {
        let mut graph = Graph::default();
        graph.put("a", node("a", &[], &[]));
        graph.put("b", node("b", &[("a", true)], &[]));
        graph.put("c", node("c", &[("a", false)], &[]));
        assert_eq!(graph.put("a", node("a", &[], &[FOREGROUND])), ["a"]);
        assert_eq!(graph.decide("a", &[]), Decision::Descend(vec!["b".into()]));
        let waiting = [("a".to_owned(), OwnerState::Waiting)];
        assert_eq!(graph.decide("b", &waiting), Decision::Delete { foreground: false, unblock: false });
        assert_eq!(graph.remove("b"), ["a"], "the owner is looked at again");
        assert_eq!(graph.decide("a", &[]), Decision::Finish);
    }

    #[test]
    fn orphans_are_let_go_before_the_owner() {
        let mut graph = Graph::default();
        graph.put("b", node("b", &[("a", true)], &[]));
        assert_eq!(graph.put("a", node("a", &[], &[ORPHAN])), ["a"]);
        assert_eq!(graph.decide("a", &[]), Decision::Orphan(vec!["b".into()]));
    }

    proptest! {
        /// Random owners (loops too) and foreground deletions: with the decisions carried out, everything that must go
        /// goes, and nothing else.
        #[test]
        fn foreground_deletion_ends(edges in prop::collection::vec((0..8usize, 0..8usize, any::<bool>()), 0..16), root in 0..8usize) {
            let mut graph = Graph::default();
            let mut objects: std::collections::BTreeMap<String, Node> = (0..8).map(|n| {
                let name = format!("n{n}");
                let owners: Vec<(String, bool)> = edges.iter().filter(|(_, b, _)| *b == n)
                    .map(|(a, _, block)| (format!("n{a}"), *block)).collect();
                let owners: Vec<(&str, bool)> = owners.iter().map(|(o, b)| (o.as_str(), *b)).collect();
                (name.clone(), node(&name, &owners, &[]))
            }).collect();
            let mut queue: std::collections::VecDeque<String> = Default::default();
            for (uid, n) in &objects { queue.extend(graph.put(uid, n.clone())); }
            let root = format!("n{root}");
            let mark = |objects: &mut std::collections::BTreeMap<String, Node>, graph: &mut Graph, uid: &str| {
                let n = objects.get_mut(uid).unwrap();
                (n.deleting, n.foreground) = (true, true);
                graph.put(uid, n.clone())
            };
            queue.extend(mark(&mut objects, &mut graph, &root));
            let mut turns = 0;
            while let Some(uid) = queue.pop_front() {
                turns += 1;
                prop_assert!(turns < 5000, "it never ends");
                let Some(n) = graph.get(&uid) else { continue };
                let states: Vec<(String, OwnerState)> = n.owners.iter().map(|o| (o.uid.clone(), match objects.get(&o.uid) {
                    None => OwnerState::Absent,
                    Some(o) if o.foreground => OwnerState::Waiting,
                    Some(_) => OwnerState::Present,
                })).collect();
                match graph.decide(&uid, &states) {
                    Decision::Leave => {}
                    Decision::Orphan(_) => unreachable!(),
                    Decision::Descend(more) => queue.extend(more),
                    Decision::RemoveOwners(owners) => {
                        let n = objects.get_mut(&uid).unwrap();
                        n.owners.retain(|o| !owners.contains(&o.uid));
                        queue.extend(graph.put(&uid, n.clone()));
                    }
                    Decision::Delete { foreground: true, unblock } => {
                        if unblock {
                            objects.get_mut(&uid).unwrap().owners.iter_mut().for_each(|o| o.block_owner_deletion = false);
                            let n = objects[&uid].clone();
                            queue.extend(graph.put(&uid, n));
                        }
                        queue.extend(mark(&mut objects, &mut graph, &uid));
                    }
                    Decision::Finish | Decision::Delete { .. } => {
                        objects.remove(&uid);
                        queue.extend(graph.remove(&uid));
                    }
                }
            }
            prop_assert!(!objects.contains_key(&root), "the root is gone");
            for n in objects.values() {
                let owned = edges.iter().any(|(a, b, _)| a != b && format!("n{b}") == n.name.name);
                prop_assert!(!owned || n.owners.iter().any(|o| objects.contains_key(&o.uid)) , "{:?} has no owner left", n);
            }
        }
    }
}
