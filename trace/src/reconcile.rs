use std::time::Duration;

use crate::cause::{Cause, Rank};
use crate::clock::{Moment, nanos};
use crate::ids::{SpanId, TraceId};
use crate::record::{Flags, Record, Text};
use crate::recorder::{Inner, Recorder};
use crate::scope::Scope;
use crate::span::new_record;
use crate::stage::Stage;

/// Longer turns are kept.
const LONG: Duration = Duration::from_millis(100);

/// One turn of a control loop with one object. It is kept if something below it was recorded, if it failed, or if it took 100 ms.
#[derive(Debug)]
#[must_use = "a turn ends when it is dropped"]
pub struct ReconcileSpan {
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    record: Record,
    text: Text,
    scope: Scope,
    queued: Moment,
}

impl Recorder {
    /// Begins a turn of a controller with the object of a key, which has been in its queue since `queued`. A turn without a cause is a
    /// root.
    ///
    /// ```
    /// use coracle_trace::{Cause, Moment, Rank, Recorder, SpanId, Uid, Verb, enter};
    ///
    /// let recorder = Recorder::for_tests();
    /// let cause = Cause { uid: Uid(7), revision: 3, rank: Rank::Spec, since: recorder.now() };
    /// let turn = recorder.reconcile("deployment-controller", "default/web", cause, recorder.now());
    /// enter(turn.scope(), || recorder.write(Verb::Create, "replicasets.apps", "default", "web-1").stored(4));
    /// drop(turn);
    /// let mut texts = Vec::new();
    /// drop(recorder.read(&mut |_, _, text| texts.push(text.to_owned())));
    /// assert_eq!(texts[0], "create replicasets.apps default/web-1");
    /// assert_eq!(texts[1..], ["deployment-controller default/web"; 2]); // Queued and Reconcile
    /// ```
    pub fn reconcile(self, controller: &str, key: &str, cause: Cause, queued: Moment) -> ReconcileSpan {
        let Some(inner) = self.inner() else { return ReconcileSpan { live: None } };
        let mut scope = Scope::of_cause(self, cause);
        if scope.span.is_none() {
            scope.trace = TraceId::fresh();
        }
        let mut record = new_record(&scope, Stage::Reconcile, inner.clock.now());
        record.flags |= match cause.rank {
            Rank::Retry => Flags::RETRIED,
            Rank::Timer => Flags::TIMER,
            _ => Flags::NONE,
        };
        let mut text = Text::of(controller);
        if !(text.push(" ") & text.push(key)) {
            record.flags |= Flags::TRUNCATED;
        }
        scope.span = record.span;
        scope.holder = inner.claim(&record, &text);
        ReconcileSpan { live: Some(Live { inner, record, text, scope, queued }) }
    }
}

impl ReconcileSpan {
    /// For the turn.
    pub fn scope(&self) -> Scope {
        self.live.as_ref().map_or(Scope::NONE, |live| live.scope)
    }

    /// Marks it as failed.
    pub fn failed(&mut self) {
        if let Some(live) = &mut self.live {
            live.record.flags |= Flags::FAILED;
        }
    }
}

impl Drop for ReconcileSpan {
    fn drop(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.record.duration = live.inner.clock.now().nanos_since(live.record.start);
        if std::thread::panicking() {
            live.record.flags |= Flags::FAILED;
        }
        let is_used = live.inner.open.gathered(live.scope.holder).is_none_or(|gathered| gathered.is_used);
        if is_used || live.record.flags.contains(Flags::FAILED) || live.record.duration >= nanos(LONG) {
            if !live.queued.is_none() {
                let wait = live.record.start.nanos_since(live.queued);
                let flags = live.record.flags.without(Flags::FAILED);
                let (span, start) = (SpanId::fresh(), live.queued);
                let queued =
                    Record { stage: Stage::Queued, flags, span, start, duration: wait, ..live.record };
                live.inner.push(&queued, None, &live.text);
            }
            live.inner.push(&live.record, None, &live.text);
        }
        live.inner.open.free(live.scope.holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Uid;
    use crate::scope::enter;
    use crate::write::Verb;

    const KEY: &str = "default/web";

    fn records(recorder: Recorder) -> Vec<Record> {
        let mut records = Vec::new();
        let read = recorder.read(&mut |record, _, _| records.push(*record));
        recorder.release(read);
        records
    }

    fn cause(rank: Rank) -> Cause {
        Cause { uid: Uid(7), revision: 3, rank, since: Moment(0) }
    }

    #[test]
    fn a_turn_that_wrote_nothing_is_forgotten() {
        let recorder = Recorder::for_tests();
        let turn = recorder.reconcile("gc", KEY, cause(Rank::Spec), Moment::MAX);
        assert_eq!(recorder.open().len(), 1);
        drop(turn);
        assert!(recorder.open().is_empty());
        assert!(records(recorder).is_empty());
        drop(Recorder::OFF.reconcile("gc", KEY, cause(Rank::Spec), Moment::MAX));
    }

    #[test]
    fn a_turn_that_wrote_is_kept_with_its_wait() {
        let recorder = Recorder::for_tests();
        recorder.contexts().expect("a table").put(3, TraceId(33), 1);
        let queued = recorder.now();
        let turn = recorder.reconcile("gc", KEY, cause(Rank::Retry), queued);
        enter(turn.scope(), || recorder.write(Verb::Delete, "pods", "default", "web").stored(4));
        drop(turn);
        let [write, waited, turn] = records(recorder)[..] else { panic!("three records") };
        assert_eq!((write.stage, waited.stage, turn.stage), (Stage::Write, Stage::Queued, Stage::Reconcile));
        assert_eq!(write.parent, turn.span);
        assert_eq!((turn.parent, waited.parent), (cause(Rank::Retry).span(), cause(Rank::Retry).span()));
        assert_eq!([write.trace, turn.trace, waited.trace], [TraceId(33); 3]);
        assert_eq!(waited.start, queued);
        assert_eq!(waited.start.0 + waited.duration, turn.start.0);
        assert!(
            turn.flags.contains(Flags::RETRIED | Flags::SAMPLED) && waited.flags.contains(Flags::RETRIED)
        );
        assert_eq!((turn.subject, turn.revision), (Uid(7), 3));
        assert_eq!(recorder.contexts().expect("a table").get(4), Some((TraceId(33), 1)));
    }

    #[test]
    fn a_turn_that_failed_is_kept() {
        let recorder = Recorder::for_tests();
        let mut turn = recorder.reconcile("gc", KEY, cause(Rank::Timer), Moment::MAX);
        turn.failed();
        drop(turn);
        let [turn] = records(recorder)[..] else { panic!("one record") };
        assert!(turn.flags.contains(Flags::FAILED | Flags::TIMER));
        assert_eq!(turn.trace, TraceId::NONE, "that of a write which is not known here");
    }

    #[test]
    fn a_turn_without_a_cause_is_a_root() {
        let recorder = Recorder::for_tests();
        let turn = recorder.reconcile("node-lifecycle-controller", "node2", Cause::NONE, Moment::MAX);
        assert!(!turn.scope().trace.is_none());
        enter(turn.scope(), || {
            let mut write = recorder.write(Verb::Patch, "nodes", "", "node2");
            write.inferred(cause(Rank::Spec));
            write.stored(9);
        });
        drop(turn);
        let [write, turn] = records(recorder)[..] else { panic!("two records") };
        assert_eq!((write.parent, write.trace), (turn.span, turn.trace));
        assert_eq!(turn.parent, SpanId::NONE);
        assert!(!write.flags.contains(Flags::INFERRED));
    }
}
