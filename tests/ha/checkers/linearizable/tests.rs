//! Planted violations, random histories beside a search through all orders, and long histories.

use super::super::testing::{history, op};
use super::*;
use crate::ha::dice::Dice;
use crate::ha::history::Call::{Create, Delete, Read, Replace};
use crate::ha::history::Outcome::{Conflict, Deleted, Found, Missing, NotSent, Unknown, Written};
use crate::ha::history::{Time, Version};

fn verdict(operations: Vec<Operation>) -> Vec<Violation> {
    check(&history(operations), &HashMap::new())
}

fn found(value: Value, revision: Revision) -> Outcome {
    Found(Some(Version { value, revision }))
}

/// The one violation, which names these operations.
fn caught(operations: Vec<Operation>, named: &[usize]) {
    let violations = verdict(operations);
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].kind, Kind::NotLinearizable);
    for id in named {
        assert!(violations[0].operations.contains(id), "#{id} is not named: {}", violations[0]);
        assert!(violations[0].message.contains(&format!("#{id} ")), "{}", violations[0]);
    }
}

#[test]
fn concurrent_operations_may_happen_in_any_order() {
    let operations = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(2, (0, 10), Read, Found(None)),
        op(3, (0, 10), Read, found(1, 5)),
        op(1, (20, 40), Replace(5, 2), Written(6)),
        op(2, (20, 40), Replace(5, 3), Conflict),
        op(3, (25, 30), Read, found(2, 6)),
        op(1, (50, 60), Delete(Some(6)), Deleted),
        op(2, (50, 60), Replace(6, 4), Missing),
        op(3, (70, 80), Delete(None), Missing),
        op(3, (90, 95), Create(9), Written(12)),
    ];
    assert_eq!(verdict(operations), []);
}

#[test]
fn writes_without_an_answer_happen_or_not() {
    let base = || vec![op(1, (0, 10), Create(1), Written(5)), op(1, (20, 30), Replace(5, 2), Unknown)];
    let with = |more: Vec<Operation>| verdict([base(), more].concat());
    assert_eq!(with(vec![op(2, (40, 50), Read, found(1, 5))]), [], "never");
    assert_eq!(with(vec![op(2, (40, 50), Read, found(2, 7))]), [], "at once");
    let late = vec![op(2, (40, 50), Read, found(1, 5)), op(2, (60, 70), Read, found(2, 7))];
    assert_eq!(with(late), [], "later");
    let overtaken = vec![op(2, (40, 50), Replace(5, 3), Written(6)), op(2, (60, 70), Read, found(3, 6))];
    assert_eq!(with(overtaken), [], "too late");
    assert_eq!(
        with(vec![op(2, (40, 50), Replace(5, 3), Conflict)]),
        [],
        "nobody saw it, but it must have happened"
    );
    let back = vec![op(2, (40, 50), Read, found(2, 7)), op(2, (60, 70), Read, found(1, 5))];
    assert_eq!(with(back).len(), 1, "not happened and undone");
    let twice = vec![op(2, (40, 50), Replace(5, 3), Written(6)), op(2, (60, 70), Read, found(2, 7))];
    assert_eq!(with(twice).len(), 1, "its precondition did not hold any more");
}

#[test]
fn a_stale_read_is_caught() {
    let operations = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(1, (20, 30), Replace(5, 2), Written(6)),
        op(2, (40, 50), Read, found(1, 5)),
    ];
    caught(operations, &[2, 1]);
}

#[test]
fn a_lost_write_is_caught() {
    let gone = vec![op(1, (0, 10), Create(1), Written(5)), op(2, (20, 30), Read, Found(None))];
    caught(gone, &[1, 0]);
    let undone = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(1, (20, 30), Replace(5, 2), Written(6)),
        op(2, (40, 50), Replace(5, 3), Written(7)),
    ];
    caught(undone, &[2, 1]);
}

#[test]
fn a_write_that_was_refused_and_happened_is_caught() {
    let operations = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(1, (20, 30), Replace(5, 2), Conflict),
        op(2, (40, 50), Read, found(2, 6)),
    ];
    caught(operations, &[1]);
    let unsent = vec![op(1, (0, 10), Create(1), NotSent), op(2, (40, 50), Read, found(1, 6))];
    caught(unsent, &[1]);
}

#[test]
fn two_winners_of_one_revision_are_caught() {
    let operations = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(1, (20, 40), Replace(5, 2), Written(6)),
        op(2, (20, 40), Replace(5, 3), Written(7)),
    ];
    let violations = verdict(operations);
    assert_eq!(violations.len(), 1);
    assert!(violations[0].operations.contains(&1) && violations[0].operations.contains(&2), "{violations:?}");
}

#[test]
fn a_revision_that_goes_back_is_caught() {
    let operations = vec![
        op(1, (0, 10), Create(1), Written(5)),
        op(1, (20, 30), Delete(None), Deleted),
        op(1, (40, 50), Create(2), Written(4)),
    ];
    caught(operations, &[2]);
}

/// Every order is tried, as slowly as possible.
fn brute_force(left: &[&Operation], state: Register, known: &HashMap<Value, Revision>) -> bool {
    if left.iter().all(|op| op.outcome == Unknown) {
        return true;
    }
    let first_return = left.iter().filter(|op| op.outcome != Unknown).map(|op| op.returned).min();
    left.iter().enumerate().any(|(number, op)| {
        let possible = first_return.is_none_or(|returned| op.invoked <= returned);
        let rest: Vec<&Operation> =
            left.iter().enumerate().filter(|(other, _)| *other != number).map(|(_, op)| *op).collect();
        possible && state.after(op, known).is_some_and(|next| brute_force(&rest, next, known))
    })
}

#[test]
fn verdicts_are_those_of_a_search_through_all_orders() {
    let mut dice = Dice::new(21);
    let mut verdicts = [0, 0];
    for _ in 0..20_000 {
        let operations = history((0..2 + dice.roll(5)).map(|n| random(&mut dice, n)).collect());
        let known = revisions(&operations);
        let all: Vec<&Operation> =
            operations.iter().filter(|op| op.call != Read || op.outcome != Unknown).collect();
        let expected = brute_force(&all, Register::EMPTY, &known);
        assert_eq!(check(&operations, &HashMap::new()).is_empty(), expected, "{operations:#?}");
        verdicts[usize::from(expected)] += 1;
    }
    assert!(verdicts.iter().all(|count| *count > 1000), "{verdicts:?}");
}

/// Few values and revisions, so that many histories are nearly right.
fn random(dice: &mut Dice, number: u64) -> Operation {
    let invoked = dice.roll(12);
    let times = (invoked, invoked + dice.roll(8));
    let (value, revision, before) = (number + 1, 1 + dice.roll(4), 1 + dice.roll(3));
    let (call, outcomes) = match dice.roll(4) {
        0 => (Read, vec![Found(None), found(1 + dice.roll(4), revision), found(1 + dice.roll(4), revision)]),
        1 => (Create(value), vec![Written(revision), Conflict, Unknown]),
        2 => (Replace(before, value), vec![Written(revision), Conflict, Missing, Unknown]),
        _ => (Delete(Some(before).filter(|_| dice.roll(2) == 0)), vec![Deleted, Missing, Unknown]),
    };
    op(0, times, call, *dice.pick(&outcomes))
}

/// A cluster that does nothing wrong: `clients` on `keys`, so many operations, some without an answer; and what a
/// watcher sees of it.
fn simulated(keys: u32, clients: u64, count: usize) -> (Vec<Operation>, HashMap<Value, Revision>) {
    let (mut dice, mut seen) = (Dice::new(7), HashMap::new());
    let mut states: Vec<Option<Version>> = vec![None; keys as usize];
    let mut times = vec![0; clients as usize];
    let (mut revision, mut all, mut moment): (Revision, Vec<Operation>, Time) = (0, Vec::new(), 0);
    while all.len() < count {
        // Effects have an order; calls and returns lie around them.
        moment += 1 + dice.roll(10);
        let client = dice.roll(clients) as usize;
        let invoked = times[client].max(moment.saturating_sub(dice.roll(100)));
        if invoked > moment {
            continue;
        }
        let returned = moment + dice.roll(100);
        times[client] = returned + 1;
        let key = dice.roll(u64::from(keys)) as u32;
        let state = &mut states[key as usize];
        let value = all.len() as u64 + 1;
        let (call, mut outcome) = match (*state, dice.roll(4)) {
            (now, 0) => (Read, Found(now)),
            (None, _) => (Create(value), Written(revision + 1)),
            (Some(now), 1) => (Delete(Some(now.revision)), Deleted),
            (Some(now), 2) => (Replace(now.revision - 1, value), Conflict),
            (Some(now), _) => (Replace(now.revision, value), Written(revision + 1)),
        };
        let lost = dice.roll(50) == 0;
        // Half of those whose answer is lost did not happen.
        if !lost || dice.roll(2) == 0 {
            match (call, outcome) {
                (_, Written(_)) => {
                    revision += 1;
                    *state = Some(Version { value, revision });
                    seen.insert(value, revision);
                }
                (_, Deleted) => {
                    revision += 1;
                    *state = None;
                }
                _ => {}
            }
        }
        if lost {
            outcome = Unknown;
        }
        let (id, client) = (all.len(), client as u32);
        all.push(Operation { id, client, server: 0, key, call, invoked, returned, outcome });
    }
    (all, seen)
}

#[test]
fn a_hundred_thousand_operations_are_checked() {
    for (keys, clients, count) in [(400, 30, 100_000), (5, 20, 40_000), (1, 8, 10_000)] {
        let (operations, seen) = simulated(keys, clients, count);
        let violations = check(&operations, &seen);
        assert!(violations.is_empty(), "{keys} keys: {} violations, {}", violations.len(), violations[0]);
        // One stale read among all of them.
        let mut planted = operations.clone();
        let old = planted.iter().filter_map(Operation::wrote).nth(10).expect("more writes");
        let late = planted.iter_mut().rev().find(|op| op.call == Read && op.outcome != Unknown);
        let late = late.expect("a read");
        let id = late.id;
        late.outcome = Found(Some(old));
        let violations = check(&planted, &seen);
        assert!(violations.iter().any(|violation| violation.operations.contains(&id)), "{violations:?}");
    }
}
