//! Revisions count the writes of the whole cluster in the order in which they happened: each belongs to one write, and a write that
//! began after another one was acknowledged has the greater one, whichever servers and objects they were about.

use super::{Kind, Violation};
use crate::ha::history::Operation;
use std::collections::HashMap;

/// Checks all acknowledged writes.
pub fn check(operations: &[Operation]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut written: HashMap<u64, &Operation> = HashMap::new();
    for operation in operations {
        let Some(version) = operation.wrote() else { continue };
        if let Some(other) = written.insert(version.revision, operation) {
            let message = format!("revision {} was given twice: {other}, {operation}", version.revision);
            violations.push(Violation::of(Kind::Revision, message, vec![other.id, operation.id]));
        }
    }
    violations.extend(backwards(written.into_values().collect()));
    violations
}

/// Writes with a smaller revision than one that was acknowledged before they began.
fn backwards(writes: Vec<&Operation>) -> Vec<Violation> {
    let revision = |operation: &Operation| operation.wrote().map_or(0, |version| version.revision);
    let (mut by_start, mut by_end) = (writes.clone(), writes);
    by_start.sort_by_key(|operation| operation.invoked);
    by_end.sort_by_key(|operation| operation.returned);
    let mut ended = by_end.into_iter().peekable();
    let mut newest: Option<&Operation> = None;
    let mut violations = Vec::new();
    for operation in by_start {
        while let Some(before) = ended.next_if(|before| before.returned < operation.invoked) {
            if newest.is_none_or(|newest| revision(newest) < revision(before)) {
                newest = Some(before);
            }
        }
        if let Some(before) = newest.filter(|before| revision(before) > revision(operation)) {
            let message = format!("{operation} began after {before} was acknowledged");
            violations.push(Violation::of(Kind::Revision, message, vec![operation.id, before.id]));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, op};
    use super::*;
    use crate::ha::history::{Call, Outcome};

    fn write(key: u32, times: (u64, u64), revision: u64) -> Operation {
        Operation { key, ..op(key, times, Call::Create(revision * 10), Outcome::Written(revision)) }
    }

    #[test]
    fn concurrent_writes_may_have_any_order() {
        let operations = vec![write(1, (0, 10), 7), write(2, (5, 8), 6), write(3, (11, 20), 8)];
        assert_eq!(check(&history(operations)), []);
    }

    #[test]
    fn a_revision_that_goes_back_is_caught() {
        let operations = vec![write(1, (0, 10), 7), write(2, (0, 40), 9), write(3, (11, 20), 6)];
        let violations = check(&history(operations));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert_eq!((violations[0].kind, &violations[0].operations[..]), (Kind::Revision, &[2, 0][..]));
    }

    #[test]
    fn a_revision_of_two_writes_is_caught() {
        let violations = check(&history(vec![write(1, (0, 10), 7), write(2, (0, 40), 7)]));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert_eq!(violations[0].operations, [0, 1]);
    }
}
