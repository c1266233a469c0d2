//! Bugs planted into the history that was just recorded: checkers that do not find them in it have proved nothing.

use crate::evidence::Evidence;
use crate::verdict::Recorded;
use coracle_tests::ha::checkers::{
    Kind, Violation, addresses, bindings, durable, leaders, linearizable, watches,
};
use coracle_tests::ha::history::{Call, Change, Operation, Outcome, Sight, Watcher};
use std::collections::BTreeMap;

/// A bug, and the violations that there are with it.
type Planted = (&'static str, Kind, Vec<Violation>);

/// Plants each bug once, and panics if one of them is not found.
pub fn check(recorded: &Recorded, evidence: &Evidence) {
    let planted = [
        lost_write(recorded),
        stale_read(recorded),
        duplicate_event(recorded),
        missed_event(recorded),
        two_leaders(evidence),
        bound_twice(evidence),
        address_twice(evidence),
    ];
    for (name, kind, violations) in planted {
        let found = violations.iter().find(|violation| violation.kind == kind);
        let found = found.unwrap_or_else(|| panic!("planted {name}: not found, only {violations:?}"));
        println!("caught   a planted {name}: {found}");
    }
}

/// The newest object at the end is not there.
fn lost_write(recorded: &Recorded) -> Planted {
    let mut at_the_end = recorded.at_the_end.clone();
    // Deletions without an answer could explain the loss of others.
    let deleted = |key: &u32| {
        let mut of_key = recorded.operations.iter().filter(|operation| operation.key == *key);
        of_key.any(|operation| {
            matches!((operation.call, operation.outcome), (Call::Delete(_), Outcome::Unknown))
        })
    };
    let safe = at_the_end.iter().filter(|(key, _)| !deleted(key));
    let newest = safe.max_by_key(|(_, version)| version.revision).map(|(key, _)| *key);
    at_the_end.remove(&newest.expect("an object at the end"));
    ("lost write", Kind::LostWrite, durable::check(&recorded.operations, &at_the_end))
}

/// The last read of an object shows its first version.
fn stale_read(recorded: &Recorded) -> Planted {
    let mut operations = recorded.operations.clone();
    let mut first: BTreeMap<u32, Operation> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.wrote().is_some()) {
        first.entry(operation.key).or_insert_with(|| operation.clone());
    }
    let answered = |operation: &&mut Operation| matches!(operation.outcome, Outcome::Found(Some(_)));
    let read = operations.iter_mut().rev().find(answered).expect("a read");
    read.outcome = Outcome::Found(first.get(&read.key).and_then(Operation::wrote));
    let seen = watches::revisions(&recorded.watchers);
    ("stale read", Kind::NotLinearizable, linearizable::check(&operations, &seen))
}

/// A watcher sees an event again.
fn duplicate_event(recorded: &Recorded) -> Planted {
    let mut watchers = recorded.watchers.clone();
    let (sights, event) = middle(&mut watchers);
    sights.insert(event + 1, sights[event].clone());
    ("duplicate event", Kind::DuplicateEvent, watches::check(&recorded.operations, &watchers))
}

/// A watcher does not see an event.
fn missed_event(recorded: &Recorded) -> Planted {
    let mut watchers = recorded.watchers.clone();
    let (sights, event) = middle(&mut watchers);
    sights.remove(event);
    ("gap in a watch", Kind::MissedEvent, watches::check(&recorded.operations, &watchers))
}

/// The last write of a leader is that of another server.
fn two_leaders(evidence: &Evidence) -> Planted {
    let mut acts = evidence.acts();
    let terms = evidence.terms.lock().unwrap();
    let act = acts.last_mut().expect("a write of a leader");
    let other = ["server-1", "server-2"].into_iter().find(|server| act.server != *server);
    act.server = other.expect("another server").to_owned();
    ("second leader", Kind::TwoLeaders, leaders::check(&terms, &acts))
}

/// A pod that has a node is seen on another one.
fn bound_twice(evidence: &Evidence) -> Planted {
    let mut placements = evidence.placements.lock().unwrap().clone();
    let mut bound = placements.iter().rev().find(|one| !one.node.is_empty()).expect("a bound pod").clone();
    bound.node = "node-of-another-server".to_owned();
    placements.push(bound);
    ("second binding", Kind::BoundTwice, bindings::check(&placements))
}

/// An address that has an owner is given to another one.
fn address_twice(evidence: &Evidence) -> Planted {
    let mut holdings = evidence.holdings.lock().unwrap().clone();
    let mut held = holdings.iter().rev().find(|one| !one.addresses.is_empty()).expect("an address").clone();
    held.owner = "Pod of another server".to_owned();
    holdings.push(held);
    ("second owner of an address", Kind::AddressTwice, addresses::check(&holdings))
}

/// An event in the middle of what the first watcher saw.
fn middle(watchers: &mut [Watcher]) -> (&mut Vec<Sight>, usize) {
    let sights = &mut watchers.first_mut().expect("a watcher").sights;
    let is_event = |sight: &Sight| matches!(sight, Sight::Event { change: Change::Modified, .. });
    let from = sights.len() / 2;
    let event = (from..sights.len()).find(|at| is_event(&sights[*at])).expect("an event");
    (sights, event)
}
