//! Compares the updated index with one built from scratch.
#![allow(clippy::unwrap_used)]
use super::*;
use bytes::Bytes;
use coracle_client::user::User;
use coracle_kinds::object::testing;
use coracle_kinds::watch::event::{Event, EventType};
use proptest::prelude::*;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A cache of bindings, and the revision of the newest.
struct Stored {
    cache: Arc<Cache>,
    revision: Revision,
    /// What watchers would be sent; large lines soon leave no room for older events.
    line: Bytes,
}

impl Stored {
    fn new() -> Self {
        Self { cache: Arc::new(Cache::new(Arc::default(), 1)), revision: 1, line: Bytes::new() }
    }

    fn push(&mut self, what: EventType, (namespace, name): (&str, &str), users: &[&str], role: &str) {
        self.revision += 1;
        let subjects: Vec<_> = users.iter().map(|user| json!({"kind": "User", "name": user})).collect();
        let object = testing::object(json!({
            "metadata": {"namespace": namespace, "name": name},
            "subjects": subjects, "roleRef": {"kind": "Role", "name": role},
        }));
        let object = Arc::new(Object { revision: self.revision, ..Arc::into_inner(object).unwrap() });
        let event = Event { what, object, previous: None, line: self.line.clone() };
        self.cache.push(&coracle_kinds::object::object_key(namespace, name), event);
    }

    fn write(&mut self, name: (&str, &str), users: &[&str], role: &str) {
        self.push(EventType::Modified, name, users, role);
    }

    fn delete(&mut self, name: (&str, &str)) {
        self.push(EventType::Deleted, name, &[], "");
    }
}

fn assert_as_made_anew(index: &Index, cache: &Arc<Cache>) {
    let mut anew = Index::default();
    anew.catch_up(cache);
    assert!(index.is_current(cache));
    assert_eq!(index.known, anew.known);
    assert_eq!(index.given, anew.given);
}

#[test]
fn accounts_are_subjects_of_their_namespace() {
    let mut subject = Subject { kind: "ServiceAccount".into(), name: "a".into(), namespace: String::new() };
    let account = |namespace: &str| user_key(&User::service_account(namespace, "a").name);
    assert_eq!(subject.key("x"), Some(account("x")));
    subject.namespace = "y".into();
    assert_eq!(subject.key("x"), Some(account("y")));
    subject.kind = "Robot".into();
    assert_eq!(subject.key("x"), None);
}

proptest! {
    #[test]
    fn the_index_is_as_one_that_is_made_anew(
        steps in prop::collection::vec((0..4_usize, 0..2_usize, 0..3_usize, 0..8_usize, any::<bool>()), 1..60),
    ) {
        let (mut stored, mut index) = (Stored::new(), Index::default());
        for (what, namespace, name, users, asked) in steps {
            let binding = (["x", "y"][namespace], ["a", "b", "c"][name]);
            let chosen = ["u", "v", "w"].into_iter().enumerate().filter(|(at, _)| (users >> at) & 1 == 1);
            let named: Vec<&str> = chosen.map(|(_, user)| user).collect();
            match what {
                0 => stored.delete(binding),
                role => stored.write(binding, &named, ["", "r", "s", "t"][role]),
            }
            if asked {
                index.catch_up(&stored.cache);
                assert_as_made_anew(&index, &stored.cache);
            }
        }
        index.catch_up(&stored.cache);
        assert_as_made_anew(&index, &stored.cache);
    }
}

#[test]
fn a_change_of_one_binding_reads_no_other() {
    let (mut stored, mut index) = (Stored::new(), Index::default());
    for number in 0..100 {
        stored.write(("x", &format!("b{number}")), &["u"], "r");
    }
    assert_eq!(index.catch_up(&stored.cache), 100);
    assert!(index.is_current(&stored.cache));
    for _ in 0..50 {
        stored.write(("x", "b7"), &["u"], "s");
    }
    assert!(!index.is_current(&stored.cache));
    assert_eq!(index.catch_up(&stored.cache), 1, "the last of many changes counts");
    stored.delete(("x", "b8"));
    assert_eq!(index.catch_up(&stored.cache), 0);
    assert_as_made_anew(&index, &stored.cache);
    assert_eq!(index.granted_roles(&[user_key("u")], "x")[0].len(), 99);
    assert_eq!(index.granted_roles(&[user_key("u")], "y").len(), 0);
}

#[test]
fn who_has_missed_events_reads_only_what_differs() {
    let (mut stored, mut index) = (Stored::new(), Index::default());
    for name in ["kept", "gone", "changed"] {
        stored.write(("x", name), &["u"], "r");
    }
    assert_eq!(index.catch_up(&stored.cache), 3);
    stored.line = Bytes::from(vec![0; 2 << 20]);
    stored.delete(("x", "gone"));
    for _ in 0..300 {
        stored.write(("x", "changed"), &["v"], "r");
    }
    assert!(index.watch.as_mut().unwrap().changed_names().is_err(), "the events are not there any more");
    assert_eq!(index.catch_up(&stored.cache), 1);
    assert_as_made_anew(&index, &stored.cache);
}

#[test]
fn nobody_sees_less_than_what_was_written_before() {
    const BINDINGS: usize = 400;
    let (mut stored, bindings, written) = (Stored::new(), Bindings::default(), AtomicUsize::new(0));
    let (cache, user) = (stored.cache.clone(), [user_key("u")]);
    let count = || bindings.granted_roles(&cache, &user, "x").first().map_or(0, |given| given.len());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut before = 0;
                while before < BINDINGS {
                    let least = written.load(Ordering::Acquire).max(before);
                    before = count();
                    assert!(before >= least, "{before} of {least}");
                }
            });
        }
        for number in 0..BINDINGS {
            stored.write(("x", &format!("b{number}")), &["u"], "r");
            written.store(number + 1, Ordering::Release);
        }
    });
    stored.delete(("x", "b0"));
    assert_eq!(count(), BINDINGS - 1, "what was taken away is gone at once");
}
