//! What is there at the end: every acknowledged write, unless a later one replaced it, and nothing that was refused.

use super::{Kind, Violation};
use crate::ha::history::{Call, Operation, Outcome, Version};
use std::collections::{BTreeMap, BTreeSet};

/// Compares the history with what was listed after it had ended and everything was well again.
pub fn check(operations: &[Operation], at_the_end: &BTreeMap<u32, Version>) -> Vec<Violation> {
    let mut keys: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| keys.entry(operation.key).or_default().push(operation));
    let known: BTreeSet<u32> = keys.keys().chain(at_the_end.keys()).copied().collect();
    let of = |key: &u32| keys.get(key).map_or(&[][..], Vec::as_slice);
    known.iter().filter_map(|key| one(*key, of(key), at_the_end.get(key))).collect()
}

fn one(key: u32, operations: &[&Operation], found: Option<&Version>) -> Option<Violation> {
    let writes = operations.iter().filter_map(|operation| Some((operation.wrote()?, *operation)));
    let newest = writes.max_by_key(|(version, _)| version.revision);
    let lost = |(version, operation): (Version, &Operation), found: &str| {
        let message = format!("key {key}: {operation} wrote {version}, and at the end there is {found}");
        Some(Violation::of(Kind::LostWrite, message, vec![operation.id]))
    };
    match (newest, found) {
        (None, None) => None,
        (Some(newest), None) => match operations.iter().any(|operation| may_delete(operation, newest.1)) {
            true => None,
            false => lost(newest, "nothing, and nobody deleted it"),
        },
        (Some(newest), Some(found)) if found.revision < newest.0.revision => lost(newest, &found.to_string()),
        (Some(newest), Some(found)) if found.revision == newest.0.revision => match newest.0 == *found {
            true => None,
            false => lost(newest, &found.to_string()),
        },
        (_, Some(found)) => unexpected(key, operations, found),
    }
}

/// Whether it is a deletion that may have happened after this write.
fn may_delete(operation: &Operation, write: &Operation) -> bool {
    let happened = match operation.outcome {
        Outcome::Deleted => operation.returned >= write.invoked,
        // It may take effect long after its client has given up.
        Outcome::Unknown => true,
        _ => false,
    };
    matches!(operation.call, Call::Delete(_)) && happened
}

/// Newer than everything that was acknowledged: it must come from a write without an answer.
fn unexpected(key: u32, operations: &[&Operation], found: &Version) -> Option<Violation> {
    let writer = operations.iter().find(|operation| operation.call.value() == Some(found.value));
    match writer {
        Some(writer) if writer.outcome == Outcome::Unknown => None,
        Some(writer) => {
            let message = format!("key {key}: at the end there is {found}, but {writer}");
            Some(Violation::of(Kind::PhantomWrite, message, vec![writer.id]))
        }
        None => {
            let message = format!("key {key}: at the end there is {found}, which nobody wrote");
            Some(Violation::new(Kind::PhantomWrite, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, op};
    use super::*;
    use crate::ha::history::Call::{Create, Delete, Replace};
    use crate::ha::history::Outcome::{Conflict, Deleted, Unknown, Written};

    fn verdict(operations: Vec<Operation>, found: Option<(u64, u64)>) -> Vec<Violation> {
        let found = found.map(|(value, revision)| (0, Version { value, revision }));
        check(&history(operations), &found.into_iter().collect())
    }

    fn two() -> Vec<Operation> {
        vec![op(1, (0, 10), Create(1), Written(5)), op(1, (20, 30), Replace(5, 2), Written(6))]
    }

    #[test]
    fn what_was_written_last_is_there() {
        assert_eq!(verdict(two(), Some((2, 6))), []);
        let unknown = || [two(), vec![op(2, (40, 50), Replace(6, 3), Unknown)]].concat();
        assert_eq!(verdict(unknown(), Some((2, 6))), []);
        assert_eq!(verdict(unknown(), Some((3, 9))), []);
        let deleted = [two(), vec![op(2, (25, 50), Delete(None), Deleted)]].concat();
        assert_eq!(verdict(deleted, None), []);
        let perhaps = [vec![op(2, (0, 1), Delete(None), Unknown)], two()].concat();
        assert_eq!(verdict(perhaps, None), []);
    }

    #[test]
    fn a_lost_write_is_caught() {
        for found in [None, Some((1, 5)), Some((7, 6))] {
            let violations = verdict(two(), found);
            assert_eq!(violations.len(), 1, "{found:?}");
            assert_eq!((violations[0].kind, &violations[0].operations[..]), (Kind::LostWrite, &[1][..]));
        }
        let before = [vec![op(2, (0, 1), Delete(None), Deleted)], two()].concat();
        assert_eq!(verdict(before, None)[0].operations, [2], "it was deleted before it was written");
    }

    #[test]
    fn what_was_refused_or_never_written_is_caught() {
        let refused = [two(), vec![op(2, (40, 50), Replace(5, 3), Conflict)]].concat();
        let violations = verdict(refused, Some((3, 9)));
        assert_eq!((violations[0].kind, &violations[0].operations[..]), (Kind::PhantomWrite, &[2][..]));
        assert_eq!(verdict(two(), Some((4, 9)))[0].kind, Kind::PhantomWrite);
        assert_eq!(verdict(vec![], Some((4, 9)))[0].kind, Kind::PhantomWrite);
    }
}
