//! Watches: every watcher sees every revision once and in order, over all its connections and whichever servers they were to; what
//! it sees is what was written; and no watcher misses what another one, or a writer, was told.

use super::{Kind, Violation};
use crate::ha::history::{Change, Operation, Revision, Sight, Version, Watcher};
use std::collections::{BTreeMap, HashMap};

/// An event as all watchers must see it: key and value, or that the object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fact {
    key: u32,
    value: Option<u64>,
}

/// Who says so, for messages.
type Facts = BTreeMap<Revision, (Fact, String)>;

/// Checks all watchers of one collection, to which all the operations belong.
pub fn check(operations: &[Operation], watchers: &[Watcher]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut facts = Facts::new();
    for operation in operations {
        if let Some(version) = operation.wrote() {
            let fact = Fact { key: operation.key, value: Some(version.value) };
            facts.insert(version.revision, (fact, operation.to_string()));
        }
    }
    let told: Vec<Told> = watchers.iter().map(|watcher| follow(watcher, &mut violations)).collect();
    for (watcher, told) in watchers.iter().zip(&told) {
        for (revision, fact) in &told.events {
            let said = (*fact, format!("watcher {}", watcher.name));
            let (known, by) = facts.entry(*revision).or_insert(said);
            if known != fact {
                let message = format!(
                    "revision {revision}: watcher {} saw {fact:?}, but {by} is {known:?}",
                    watcher.name
                );
                violations.push(Violation::new(Kind::WrongEvent, message));
            }
        }
    }
    for (watcher, told) in watchers.iter().zip(&told) {
        violations.extend(missed(watcher, told, &facts));
    }
    violations
}

/// What one watcher was told.
#[derive(Default)]
struct Told {
    events: BTreeMap<Revision, Fact>,
    /// Beginning and end of each time that it watched without listing.
    spans: Vec<(Revision, Revision)>,
}

/// Follows one watcher through all that it saw.
fn follow(watcher: &Watcher, violations: &mut Vec<Violation>) -> Told {
    let mut told = Told::default();
    let mut objects: HashMap<u32, Version> = HashMap::new();
    let (mut newest, mut first) = (0, None);
    let mut wrong = |kind, message: String| {
        violations.push(Violation::new(kind, format!("watcher {}: {message}", watcher.name)));
    };
    for sight in &watcher.sights {
        match sight {
            Sight::Listed { revision, objects: listed } => {
                told.spans.extend(first.replace(*revision).map(|first| (first, newest)));
                if *revision < newest {
                    wrong(Kind::EventOrder, format!("a list at revision {revision} after revision {newest}"));
                }
                newest = *revision;
                objects = listed.iter().copied().collect();
            }
            Sight::Connected { server, from } => {
                if *from != newest {
                    wrong(
                        Kind::EventOrder,
                        format!("went on from {from} on server {server}, not from {newest}"),
                    );
                }
            }
            Sight::Bookmark(revision) => match *revision < newest {
                true => wrong(Kind::EventOrder, format!("a bookmark at {revision} after revision {newest}")),
                false => newest = *revision,
            },
            Sight::Event { change, key, version } => {
                if told.events.contains_key(&version.revision) {
                    wrong(Kind::DuplicateEvent, format!("revision {} of key {key} twice", version.revision));
                    continue;
                }
                if version.revision <= newest {
                    let message =
                        format!("revision {} of key {key} after revision {newest}", version.revision);
                    wrong(Kind::EventOrder, message);
                }
                newest = newest.max(version.revision);
                let before = match change {
                    Change::Deleted => objects.remove(key),
                    Change::Added | Change::Modified => objects.insert(*key, *version),
                };
                if before.is_some() == (*change == Change::Added) {
                    let known = before.map_or("nothing".to_owned(), |version| version.to_string());
                    let message =
                        format!("{change:?} of key {key} at revision {}: it knew {known}", version.revision);
                    wrong(Kind::WrongEvent, message);
                }
                let value = (*change != Change::Deleted).then_some(version.value);
                told.events.insert(version.revision, Fact { key: *key, value });
            }
        }
    }
    told.spans.extend(first.map(|first| (first, newest)));
    told
}

/// What others know of the time in which this one watched.
fn missed(watcher: &Watcher, told: &Told, facts: &Facts) -> Vec<Violation> {
    let spans = told.spans.iter().filter(|(first, last)| first < last);
    let expected = spans.flat_map(|(first, last)| facts.range(first + 1..=*last));
    let absent = expected.filter(|(revision, _)| !told.events.contains_key(revision));
    let violation = |(revision, (fact, by)): (&Revision, &(Fact, String))| {
        let message = format!("watcher {} did not see revision {revision}, {fact:?}: {by}", watcher.name);
        Violation::new(Kind::MissedEvent, message)
    };
    absent.map(violation).collect()
}

/// Checks that no watcher had to list again: none is away for so long that its revision is compacted.
pub fn listed_once(watchers: &[Watcher]) -> Vec<Violation> {
    let lists = |watcher: &Watcher| {
        let is_list = |sight: &&Sight| matches!(sight, Sight::Listed { .. });
        watcher.sights.iter().filter(is_list).count()
    };
    let violation = |watcher: &Watcher| {
        let message = format!("watcher {} listed {} times, once is due", watcher.name, lists(watcher));
        Violation::new(Kind::ListedAgain, message)
    };
    watchers.iter().filter(|watcher| lists(watcher) != 1).map(violation).collect()
}

/// The revision up to which a watcher has seen everything.
pub fn progress(watcher: &Watcher) -> Revision {
    let newest = watcher.sights.iter().map(|sight| match sight {
        Sight::Listed { revision, .. } | Sight::Bookmark(revision) => *revision,
        Sight::Connected { .. } => 0,
        Sight::Event { version, .. } => version.revision,
    });
    newest.max().unwrap_or(0)
}

/// The revisions of values that watchers saw.
pub fn revisions(watchers: &[Watcher]) -> HashMap<u64, Revision> {
    let sights = watchers.iter().flat_map(|watcher| &watcher.sights);
    let mut seen = HashMap::new();
    for sight in sights {
        match sight {
            Sight::Listed { objects, .. } => {
                seen.extend(objects.iter().map(|(_, version)| (version.value, version.revision)));
            }
            // The object that is gone carries its last value, with the revision at which it went.
            Sight::Event { change: Change::Added | Change::Modified, version, .. } => {
                seen.insert(version.value, version.revision);
            }
            _ => {}
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::testing::{history, op};
    use super::*;
    use crate::ha::history::Call;
    use crate::ha::history::Change::{Added, Deleted, Modified};
    use crate::ha::history::Outcome::Written;

    fn event(change: Change, key: u32, value: u64, revision: u64) -> Sight {
        Sight::Event { change, key, version: Version { value, revision } }
    }

    /// A list at 10 with key 1, then whatever follows.
    fn watcher(name: &str, sights: Vec<Sight>) -> Watcher {
        let listed = Sight::Listed { revision: 10, objects: vec![(1, Version { value: 1, revision: 9 })] };
        let connected = Sight::Connected { server: 0, from: 10 };
        Watcher { name: name.into(), sights: [vec![listed, connected], sights].concat() }
    }

    fn good() -> Vec<Sight> {
        vec![
            event(Modified, 1, 2, 11),
            event(Added, 2, 3, 13),
            Sight::Bookmark(15),
            Sight::Connected { server: 1, from: 15 },
            event(Deleted, 1, 2, 16),
            event(Modified, 2, 4, 17),
        ]
    }

    fn kinds(violations: &[Violation]) -> Vec<Kind> {
        violations.iter().map(|violation| violation.kind).collect()
    }

    #[test]
    fn each_revision_once_and_in_order() {
        let operations = vec![
            Operation { key: 1, ..op(0, (0, 9), Call::Replace(9, 2), Written(11)) },
            Operation { key: 2, ..op(0, (0, 9), Call::Create(3), Written(13)) },
        ];
        // One that listed later need not have seen what was before.
        let late = Watcher {
            name: "late".into(),
            sights: vec![
                Sight::Listed {
                    revision: 14,
                    objects: vec![
                        (1, Version { value: 2, revision: 11 }),
                        (2, Version { value: 3, revision: 13 }),
                    ],
                },
                Sight::Connected { server: 2, from: 14 },
                event(Deleted, 1, 2, 16),
            ],
        };
        // One whose revision was compacted listed again.
        let mut relisted = watcher("relisted", good()[..1].to_vec());
        relisted.sights.extend([
            Sight::Listed { revision: 16, objects: vec![(2, Version { value: 3, revision: 13 })] },
            Sight::Connected { server: 0, from: 16 },
            event(Modified, 2, 4, 17),
        ]);
        assert_eq!(check(&history(operations), &[watcher("a", good()), late, relisted]), []);
    }

    #[test]
    fn a_watcher_that_lists_again_is_caught() {
        let mut again = watcher("again", good());
        again.sights.push(Sight::Listed { revision: 17, objects: Vec::new() });
        let never = Watcher { name: "never".into(), sights: Vec::new() };
        let violations = listed_once(&[watcher("a", good()), again, never]);
        assert_eq!(kinds(&violations), [Kind::ListedAgain, Kind::ListedAgain]);
        assert_eq!(violations[0].message, "watcher again listed 2 times, once is due");
    }

    #[test]
    fn a_duplicate_event_is_caught() {
        let mut sights = good();
        sights.insert(4, event(Modified, 2, 3, 13));
        let violations = check(&[], &[watcher("a", sights)]);
        assert_eq!(kinds(&violations), [Kind::DuplicateEvent]);
        assert!(violations[0].message.contains("watcher a: revision 13 of key 2"), "{}", violations[0]);
    }

    #[test]
    fn events_out_of_order_are_caught() {
        let mut sights = good();
        sights.swap(4, 5);
        let violations = check(&[], &[watcher("a", sights)]);
        assert_eq!(kinds(&violations), [Kind::EventOrder]);
        assert!(
            violations[0].message.contains("revision 16 of key 1 after revision 17"),
            "{}",
            violations[0]
        );
        let back = vec![event(Modified, 1, 2, 11), Sight::Connected { server: 1, from: 10 }];
        assert_eq!(kinds(&check(&[], &[watcher("a", back)])), [Kind::EventOrder]);
    }

    #[test]
    fn a_gap_is_caught() {
        // Another watcher saw it.
        let mut sights = good();
        sights.remove(1);
        sights.pop();
        let violations = check(&[], &[watcher("a", good()), watcher("b", sights)]);
        assert_eq!(kinds(&violations), [Kind::MissedEvent]);
        assert!(violations[0].message.contains("watcher b did not see revision 13"), "{}", violations[0]);
        // Its writer was told.
        let operations = history(vec![Operation { key: 3, ..op(0, (0, 9), Call::Create(8), Written(14)) }]);
        let violations = check(&operations, &[watcher("a", good())]);
        assert_eq!(kinds(&violations), [Kind::MissedEvent]);
        assert!(violations[0].message.contains("create 8"), "{}", violations[0]);
        // Its own objects say so.
        let unknown = vec![event(Modified, 7, 2, 11)];
        assert_eq!(kinds(&check(&[], &[watcher("a", unknown)])), [Kind::WrongEvent]);
    }

    #[test]
    fn an_event_that_is_not_what_was_written_is_caught() {
        let operations =
            history(vec![Operation { key: 1, ..op(0, (0, 9), Call::Replace(9, 5), Written(11)) }]);
        let violations = check(&operations, &[watcher("a", good())]);
        assert_eq!(kinds(&violations), [Kind::WrongEvent]);
        assert!(violations[0].message.contains("#0 client 0 key 1"), "{}", violations[0]);
    }
}
