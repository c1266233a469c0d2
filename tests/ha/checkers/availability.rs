//! How long clients that try all servers had to wait for an answer, and which fault was the reason.

use super::{Kind, Violation};
use crate::ha::history::{Operation, Outcome, Time};
use std::collections::BTreeMap;
use std::time::Duration;

/// Something that was broken for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What, for people.
    pub name: String,
    /// When it began.
    pub begun: Time,
    /// When it was repaired.
    pub ended: Time,
    /// How long clients may wait because of it.
    pub allowed: Duration,
    /// Whether requests may stay without an answer, so that the client has to find out what became of them.
    pub may_fail: bool,
}

/// The longest time that a client was without an answer during a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// The fault, `None` for all the time in which nothing was broken.
    pub fault: Option<Fault>,
    /// The longest wait.
    pub worst: Duration,
    /// Requests that were not answered, or not in a way that tells what happened.
    pub unanswered: usize,
    /// Operations of that wait.
    pub operations: Vec<usize>,
}

/// Requests in a row until one is answered.
struct Wait {
    from: Time,
    until: Time,
    operations: Vec<usize>,
}

/// The waits during each fault, and in the end those without any. A wait belongs to the faults that were there while it lasted; if
/// there was none, to those that had been repaired for no longer than `settling` when it began. Of several only those count that
/// allow the most.
pub fn outages(operations: &[Operation], faults: &[Fault], settling: Duration) -> Vec<Outage> {
    let settling = nanos(settling);
    let none = |fault| Outage { fault, worst: Duration::ZERO, unanswered: 0, operations: Vec::new() };
    let mut outages: Vec<Outage> = faults.iter().cloned().map(Some).chain([None]).map(none).collect();
    for wait in waits(operations) {
        let touched = |settling: Time| -> Vec<usize> {
            let touches =
                |fault: &Fault| wait.from < fault.ended.saturating_add(settling) && wait.until > fault.begun;
            (0..faults.len()).filter(|number| touches(&faults[*number])).collect()
        };
        let mut hit = touched(0);
        if hit.is_empty() {
            hit = touched(settling);
        }
        let grants = |number: &usize| (faults[*number].may_fail, faults[*number].allowed);
        let most = hit.iter().map(grants).max();
        hit.retain(|number| Some(grants(number)) == most);
        if hit.is_empty() {
            hit.push(faults.len());
        }
        for number in hit {
            let outage = &mut outages[number];
            outage.unanswered += wait.operations.len() - 1;
            let lasted = Duration::from_nanos(wait.until - wait.from);
            if lasted > outage.worst {
                outage.worst = lasted;
                outage.operations.clone_from(&wait.operations);
            }
        }
    }
    outages
}

/// Outages that lasted longer than their fault allows; `quiet` is allowed without one.
pub fn check(outages: &[Outage], quiet: Duration) -> Vec<Violation> {
    let allowed = |outage: &Outage| outage.fault.as_ref().map_or(quiet, |fault| fault.allowed);
    let may_fail = |outage: &Outage| outage.fault.as_ref().is_some_and(|fault| fault.may_fail);
    let mut violations = Vec::new();
    for outage in outages {
        let name = outage.fault.as_ref().map_or("nothing that was broken", |fault| &fault.name);
        let (worst, allowed) = (outage.worst.as_secs_f64(), allowed(outage).as_secs_f64());
        let mut wrong =
            |message| violations.push(Violation::of(Kind::Unavailable, message, outage.operations.clone()));
        if worst > allowed {
            wrong(format!(
                "a client waited {worst:.2} s because of {name}, {allowed:.2} s are allowed: operations {:?}",
                outage.operations
            ));
        }
        if outage.unanswered > 0 && !may_fail(outage) {
            wrong(format!("{} requests were not answered because of {name}", outage.unanswered));
        }
    }
    violations
}

/// The waits of every client, which sends one request after the other.
fn waits(operations: &[Operation]) -> Vec<Wait> {
    let mut clients: BTreeMap<u32, Vec<&Operation>> = BTreeMap::new();
    operations.iter().for_each(|operation| clients.entry(operation.client).or_default().push(operation));
    let mut waits = Vec::new();
    for mut operations in clients.into_values() {
        operations.sort_by_key(|operation| operation.invoked);
        let mut open: Option<Wait> = None;
        for operation in operations {
            let wait = open.get_or_insert(Wait { from: operation.invoked, until: 0, operations: Vec::new() });
            wait.operations.push(operation.id);
            wait.until = operation.returned.max(operation.invoked);
            if !matches!(operation.outcome, Outcome::Unknown | Outcome::NotSent) {
                waits.extend(open.take());
            }
        }
        // The history ends before an answer: nothing is known about the time after it.
        waits.extend(open.filter(|wait| wait.until != Time::MAX));
    }
    waits
}

fn nanos(duration: Duration) -> Time {
    u64::try_from(duration.as_nanos()).unwrap_or(Time::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, op};
    use super::*;
    use crate::ha::history::Call::Read;
    use crate::ha::history::Outcome::{Found, NotSent, Unknown};

    const MS: u64 = 1_000_000;

    fn read(client: u32, from: u64, until: u64, outcome: Outcome) -> Operation {
        op(client, (from * MS, until * MS), Read, outcome)
    }

    fn fault(begun: u64, ended: u64, allowed: u64) -> Fault {
        let (name, allowed) = ("a dead server".into(), Duration::from_millis(allowed));
        Fault { name, begun: begun * MS, ended: ended * MS, allowed, may_fail: true }
    }

    fn verdict(operations: Vec<Operation>, faults: &[Fault]) -> Vec<Violation> {
        let outages = outages(&history(operations), faults, Duration::from_millis(100));
        check(&outages, Duration::from_millis(50))
    }

    #[test]
    fn waits_within_what_is_allowed_are_fine() {
        let operations = || {
            vec![
                read(1, 0, 10, Found(None)),
                read(1, 100, 900, NotSent),
                read(2, 150, 160, Found(None)),
                read(1, 900, 1200, Unknown),
                read(1, 1200, 2000, Found(None)),
            ]
        };
        assert_eq!(verdict(operations(), &[fault(90, 1000, 3000)]), []);
        let all = outages(&history(operations()), &[fault(90, 1000, 3000)], Duration::ZERO);
        assert_eq!((all[0].worst, all[0].unanswered), (Duration::from_millis(1900), 2));
        assert_eq!(all[1].worst, Duration::from_millis(10), "without a fault");
        // Two at a time: the one that allows more is the reason.
        assert_eq!(verdict(operations(), &[fault(90, 1000, 3000), fault(95, 300, 1)]), []);
        // One that is repaired is the reason of nothing that another one explains.
        let repaired = Fault { may_fail: false, ..fault(0, 90, 5000) };
        assert_eq!(verdict(operations(), &[repaired, fault(95, 1000, 3000)]), []);
    }

    #[test]
    fn waits_that_are_too_long_are_caught() {
        let slow =
            || vec![read(1, 0, 10, Found(None)), read(1, 100, 900, NotSent), read(1, 900, 4000, Found(None))];
        let violations = verdict(slow(), &[fault(90, 1000, 3000)]);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert_eq!((violations[0].kind, &violations[0].operations[..]), (Kind::Unavailable, &[1, 2][..]));
        assert!(violations[0].message.contains("waited 3.90 s because of a dead server, 3.00 s are allowed"));
        let minority = Fault { may_fail: false, ..fault(90, 1000, 9000) };
        let violations = verdict(slow(), &[minority]);
        assert!(violations[0].message.starts_with("1 requests were not answered"), "{violations:?}");
        let violations = verdict(slow(), &[fault(5000, 6000, 9000)]);
        assert!(violations[0].message.contains("because of nothing that was broken"), "{violations:?}");
        let never = vec![read(1, 100, 4000, NotSent)];
        assert_eq!(verdict(never, &[fault(90, 1000, 3000)]).len(), 1);
    }
}
