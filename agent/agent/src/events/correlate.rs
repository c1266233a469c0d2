//! Correlates events as Kubernetes does: a repeated event raises a count, many similar ones are aggregated, and each
//! object is rate limited.

use jiff::Timestamp;
use std::collections::{HashMap, HashSet};

use super::draft::Draft;

/// Number of similar events after which they are aggregated.
const MAX_SIMILAR: usize = 10;
/// Interval in which similar events are aggregated.
const SIMILAR_SECONDS: i64 = 600;
/// At most this many events per object at once, then one per five minutes.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// Maximum number of entries per cache.
const CACHE_SIZE: usize = 4096;

/// An event that is to be stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Observed {
    /// Aggregation key.
    pub key: String,
    /// Its text.
    pub message: String,
    /// How often it was seen.
    pub count: i32,
    /// When it was seen first.
    pub first: Timestamp,
    /// The event that is stored already.
    pub stored: Option<String>,
}

/// State of the correlation.
#[derive(Default)]
pub(super) struct Correlator {
    known: HashMap<String, Known>,
    alike: HashMap<String, Similar>,
    budgets: HashMap<String, (f64, i64)>,
}

struct Known {
    name: Option<String>,
    count: i32,
    first: Timestamp,
    last: i64,
}

#[derive(Default)]
struct Similar {
    messages: HashSet<String>,
    last: i64,
}

impl Correlator {
    /// Counts an event; `None` if its object exceeds the rate limit.
    pub fn observe(&mut self, draft: &Draft) -> Option<Observed> {
        let now = draft.at.as_second();
        let (key, message) = self.combined(draft);
        forget_oldest(&mut self.known, |known| known.last);
        let known = self.known.entry(key.clone());
        let known = known.or_insert(Known { name: None, count: 0, first: draft.at, last: now });
        known.count += 1;
        known.last = now;
        let (count, first, stored) = (known.count, known.first, known.name.clone());
        self.affords(draft).then_some(Observed { key, message, count, first, stored })
    }

    /// An event was stored under a name.
    pub fn stored(&mut self, key: &str, name: String) {
        if let Some(known) = self.known.get_mut(key) {
            known.name = Some(name);
        }
    }

    /// Key and text of the event: its own, or those of the aggregate.
    fn combined(&mut self, draft: &Draft) -> (String, String) {
        let (now, about) = (draft.at.as_second(), &draft.about);
        let group = format!("{}/{:?}/{}", object(draft), draft.kind, draft.reason);
        forget_oldest(&mut self.alike, |alike| alike.last);
        let alike = self.alike.entry(group.clone()).or_default();
        if now - alike.last > SIMILAR_SECONDS {
            alike.messages.clear();
        }
        alike.last = now;
        if alike.messages.len() < MAX_SIMILAR {
            alike.messages.insert(draft.message.clone());
        }
        if alike.messages.len() < MAX_SIMILAR {
            return (format!("{group}/{:?}/{}", about.field_path, draft.message), draft.message.clone());
        }
        (group, format!("(combined from similar events): {}", draft.message))
    }

    fn affords(&mut self, draft: &Draft) -> bool {
        let now = draft.at.as_second();
        forget_oldest(&mut self.budgets, |(_, at)| *at);
        let (tokens, at) = self.budgets.entry(object(draft)).or_insert((BURST, now));
        *tokens = (*tokens + (now - *at).max(0) as f64 / REFILL_SECONDS).min(BURST);
        *at = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }
}

/// One object: another one with its name is another.
fn object(draft: &Draft) -> String {
    let about = &draft.about;
    format!("{:?}/{:?}/{:?}/{:?}", about.kind, about.namespace, about.name, about.uid)
}

/// Evicts the older half of a full cache.
fn forget_oldest<V>(map: &mut HashMap<String, V>, last: impl Fn(&V) -> i64) {
    if map.len() < CACHE_SIZE {
        return;
    }
    let mut ages: Vec<i64> = map.values().map(&last).collect();
    ages.sort_unstable();
    let middle = ages[ages.len() / 2];
    let mut spare = CACHE_SIZE / 2;
    // Of those that are as old as the middle only some may stay.
    map.retain(|_, value| {
        let stays = last(value) >= middle && spare > 0;
        spare -= usize::from(stays);
        stays
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::events::Kind;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn draft(uid: &str, message: &str, second: i64) -> Draft {
        let about = ObjectReference {
            name: Some("p".into()),
            uid: Some(uid.into()),
            field_path: Some("spec.containers{c}".into()),
            ..ObjectReference::default()
        };
        let at = Timestamp::from_second(second).unwrap();
        Draft { about, kind: Kind::Normal, reason: "Pulled", message: message.into(), at }
    }

    #[test]
    fn the_same_again_is_counted_however_late() {
        let mut seen = Correlator::default();
        let first = seen.observe(&draft("u", "m", 0)).unwrap();
        assert_eq!((first.count, first.stored.as_deref()), (1, None));
        seen.stored(&first.key, "p.1".into());
        let again = seen.observe(&draft("u", "m", 5000)).unwrap();
        assert_eq!((again.count, again.first, again.stored.as_deref()), (2, first.first, Some("p.1")));
        // Another container's is another, and so is another pod's.
        let mut other = draft("u", "m", 5000);
        other.about.field_path = None;
        assert_eq!(seen.observe(&other).unwrap().count, 1);
        assert_eq!(seen.observe(&draft("v", "m", 5000)).unwrap().count, 1);
    }

    #[test]
    fn an_object_is_heard_less_often_and_its_successor_is_not() {
        let mut seen = Correlator::default();
        let heard = (0..40).filter(|_| seen.observe(&draft("u", "m", 0)).is_some()).count();
        assert_eq!(heard, 25);
        assert_eq!(seen.observe(&draft("u", "m", 301)).unwrap().count, 41, "what was not told counts");
        assert!(seen.observe(&draft("u", "m", 302)).is_none());
        assert!(seen.observe(&draft("v", "m", 302)).is_some(), "one with the same name is another");
    }

    #[test]
    fn many_alike_become_one() {
        let mut seen = Correlator::default();
        let mut last = None;
        for n in 0..12 {
            last = seen.observe(&draft("u", &format!("took {n}ms"), n));
        }
        let last = last.unwrap();
        assert_eq!((last.message.as_str(), last.count), ("(combined from similar events): took 11ms", 3));
        assert_eq!(seen.observe(&draft("u", "took 1s", 700)).unwrap().message, "took 1s");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = Correlator::default();
        for n in 0..3 * CACHE_SIZE {
            seen.observe(&draft(&n.to_string(), "m", 7));
        }
        assert!(seen.known.len() <= CACHE_SIZE && seen.budgets.len() <= CACHE_SIZE);
        assert!(seen.alike.len() <= CACHE_SIZE);
    }
}
