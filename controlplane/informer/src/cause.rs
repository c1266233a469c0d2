//! Causes: the writes that control loops react to, by uid and revision.

use coracle_kinds::object::Object;
use coracle_kinds::watch::event::{Event, EventType};
use coracle_trace::{Cause, Rank, Recorder};

/// A change as a cause; none when nothing is recorded.
pub fn of_event(event: &Event, spans: Recorder) -> Cause {
    let rank = match (event.what, &event.previous) {
        (EventType::Deleted, _) => Rank::Deleted,
        (EventType::Modified, Some(old)) if is_same_spec(old, &event.object) => Rank::Related,
        (EventType::Added | EventType::Modified, _) => Rank::Spec,
    };
    of_object(&event.object, rank, spans)
}

/// The last write of an object as a cause; none when nothing is recorded.
pub fn of_object(object: &Object, rank: Rank, spans: Recorder) -> Cause {
    if !spans.is_on() {
        return Cause::NONE;
    }
    let uid = coracle_trace::Uid::of(&object.meta.uid);
    Cause { uid, revision: object.revision, rank, since: spans.now() }
}

fn is_same_spec(old: &Object, new: &Object) -> bool {
    old.meta.uid == new.meta.uid
        && old.meta.generation == new.meta.generation
        && old.meta.deletion_timestamp == new.meta.deletion_timestamp
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing;
    use coracle_trace::SpanId;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn object(revision: u64, change: impl FnOnce(&mut Value)) -> Arc<Object> {
        let mut body = json!({"metadata": {"name": "web", "uid": "u", "generation": 1}});
        change(&mut body);
        let mut object = Arc::into_inner(testing::object(body)).unwrap();
        object.revision = revision;
        Arc::new(object)
    }

    #[test]
    fn changes_of_the_spec_count_more_than_those_of_the_status() {
        let spans = Recorder::for_tests();
        let first = object(1, |_| {});
        let status = object(2, |o| o["status"] = json!({"replicas": 1}));
        let spec = object(3, |o| o["metadata"]["generation"] = json!(2));
        let going = object(4, |o| o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        let cause = |what: EventType, object: &Arc<Object>, previous: Option<&Arc<Object>>| {
            let (object, previous) = (object.clone(), previous.cloned());
            let cause = of_event(&Event { what, object, previous, line: Default::default() }, spans);
            (cause.rank, cause.revision)
        };
        assert_eq!(cause(EventType::Added, &first, None), (Rank::Spec, 1));
        assert_eq!(cause(EventType::Modified, &status, Some(&first)), (Rank::Related, 2));
        assert_eq!(cause(EventType::Modified, &spec, Some(&first)), (Rank::Spec, 3));
        assert_eq!(cause(EventType::Modified, &going, Some(&first)), (Rank::Spec, 4));
        assert_eq!(cause(EventType::Deleted, &going, Some(&first)), (Rank::Deleted, 4));
        let resync = of_object(&first, Rank::Resync, spans);
        assert_eq!(resync.span(), SpanId::of_write(coracle_trace::Uid::of("u"), 1));
        assert_eq!(of_object(&first, Rank::Resync, Recorder::OFF), Cause::NONE);
    }
}
