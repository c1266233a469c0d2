//! How long objects rest that made the scheduler panic.
#![allow(clippy::unwrap_used)]
use super::*;
use coracle_kinds::object::testing;
use serde_json::json;

const FIRST_REST: Duration = Duration::from_secs(10);

/// A pod at a revision. Its labels are read by the scheduler, its annotations are not.
fn pod(uid: &str, revision: u64, label: &str, annotation: &str) -> Arc<Object> {
    let object =
        testing::object(json!({"metadata": {"namespace": "x", "name": "a", "uid": uid, "generation": 1,
        "labels": {"l": label}, "annotations": {"n": annotation}, "resourceVersion": revision.to_string()}}));
    Arc::new(Object { revision, ..Arc::into_inner(object).unwrap() })
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn a_change_that_the_scheduler_does_not_read_lifts_nothing() {
    for source in [Source::Pods, Source::Claims] {
        let (mut quarantine, now) = (Quarantine::new(FIRST_REST), Instant::now());
        assert!(!quarantine.holds(source, &pod("u", 1, "", ""), now));
        assert_eq!(quarantine.put(source, &pod("u", 1, "", ""), now), FIRST_REST);
        // To a claim the annotations say which node it is for.
        let touched = if source == Source::Pods { "other" } else { "" };
        for revision in 2..20 {
            assert!(quarantine.holds(source, &pod("u", revision, "", touched), now + seconds(9)));
        }
        assert!(quarantine.due(now + seconds(9)).is_empty());
        assert_eq!(quarantine.next_due(), Some(now + FIRST_REST));
        assert_eq!(quarantine.due(now + FIRST_REST), [key(source, &pod("u", 1, "", ""))]);
        assert!(quarantine.due(now + FIRST_REST).is_empty(), "it is tried once");
        assert!(!quarantine.holds(source, &pod("u", 20, "", ""), now + FIRST_REST));
    }
}

#[test]
fn a_change_lifts_earlier_but_not_at_once() {
    let (mut quarantine, now) = (Quarantine::new(FIRST_REST), Instant::now());
    quarantine.put(Source::Pods, &pod("u", 1, "", ""), now);
    assert!(quarantine.holds(Source::Pods, &pod("u", 2, "fixed", ""), now));
    assert_eq!(
        quarantine.next_due(),
        Some(now + FIRST_REST_OF_CHANGED),
        "it is tried without a further change"
    );
    assert!(!quarantine.holds(Source::Pods, &pod("u", 2, "fixed", ""), now + FIRST_REST_OF_CHANGED));
    assert!(
        !quarantine.holds(Source::Pods, &pod("other", 3, "", ""), now),
        "another pod of the name is not to blame"
    );
}

#[test]
fn who_changes_an_object_time_and_again_causes_few_panics() {
    let (mut quarantine, begun) = (Quarantine::new(FIRST_REST), Instant::now());
    let (mut now, mut panics) = (begun, 0);
    while now < begun + seconds(24 * 3600) {
        let bad = pod("u", 2 * panics + 1, "bad", "");
        quarantine.put(Source::Pods, &bad, now);
        panics += 1;
        // It is made good and bad again as soon as that is taken in.
        let good = pod("u", 2 * panics, "good", "");
        if quarantine.holds(Source::Pods, &good, now) {
            now = quarantine.next_due().unwrap();
        }
        assert!(quarantine.recovered(Source::Pods, &good));
        assert!(!quarantine.holds(Source::Pods, &bad, now));
        assert!(!quarantine.recovered(Source::Pods, &good), "it is released once");
        assert!(quarantine.due(now).is_empty());
    }
    assert!(panics <= 12 + 24, "{panics} panics in a day");
}

#[test]
fn panics_are_forgotten_after_a_while_or_with_the_object() {
    let (mut quarantine, now) = (Quarantine::new(FIRST_REST), Instant::now());
    let object = pod("u", 1, "", "");
    assert_eq!(quarantine.put(Source::Pods, &object, now), FIRST_REST);
    assert_eq!(quarantine.put(Source::Pods, &object, now), FIRST_REST * 2);
    for _ in 0..40 {
        quarantine.put(Source::Pods, &object, now);
    }
    assert_eq!(quarantine.put(Source::Pods, &object, now), LONGEST_REST);
    assert!(quarantine.recovered(Source::Pods, &object));
    assert!(quarantine.due(now + REMEMBERED / 2).is_empty() && !quarantine.is_empty());
    assert!(quarantine.due(now + REMEMBERED).is_empty() && quarantine.is_empty());
    quarantine.put(Source::Pods, &object, now);
    assert!(quarantine.remove(&key(Source::Pods, &object)));
    assert_eq!(quarantine.put(Source::Pods, &object, now), FIRST_REST);
    assert_eq!(quarantine.put(Source::Pods, &pod("other", 2, "", ""), now), FIRST_REST);
}
