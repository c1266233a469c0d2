use crate::clock::Moment;
use crate::ids::{SpanId, TraceId, Uid};
use crate::open::SlotRef;
use crate::record::{Details, Record, Text};
use crate::recorder::{Inner, Recorder};
use crate::scope::{Scope, current};
use crate::span::{named, new_record};
use crate::stage::{Part, Stage};

/// A span that is shown as open, see [`Recorder::show`].
#[derive(Debug)]
#[must_use = "the span is shown until this is dropped"]
pub struct Shown {
    open: Option<(&'static Inner, SlotRef)>,
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some((inner, slot)) = self.open {
            inner.open.free(slot);
        }
    }
}

impl Recorder {
    /// Records a span that is over, with the beginning of a text.
    pub fn push(self, record: &Record, details: Option<&Details>, text: &str) {
        let Some(inner) = self.inner() else { return };
        let mut record = *record;
        let text = named(&mut record, text);
        inner.push(&record, details, &text);
    }

    /// Shows a span as open until the result is dropped: for a span that its owner records itself when it is over. A process that is
    /// killed before leaves it behind as unfinished.
    ///
    /// ```
    /// use coracle_trace::{Flags, Moment, Record, Recorder, SpanId, Stage, TraceId, Uid};
    ///
    /// let recorder = Recorder::for_tests();
    /// let record = Record {
    ///     stage: Stage::Attempt, flags: Flags::NONE, code: 1, span: SpanId(5), parent: SpanId(4), trace: TraceId(3),
    ///     subject: Uid(7), revision: 3, start: recorder.now(), duration: 0,
    /// };
    /// let shown = recorder.show(&record);
    /// assert_eq!(recorder.open()[0].record.span, SpanId(5));
    /// recorder.push(&record, None, "");
    /// drop(shown);
    /// assert!(recorder.open().is_empty());
    /// ```
    pub fn show(self, record: &Record) -> Shown {
        let open = self.inner().map(|inner| (inner, inner.claim(record, &Text::of(""))));
        Shown { open }
    }

    /// A span that is known only when it is over.
    ///
    /// ```
    /// use coracle_trace::{Moment, Recorder, SpanId, Stage, Uid};
    ///
    /// let recorder = Recorder::for_tests();
    /// let parent = SpanId::of_write(Uid(7), 3);
    /// let span = recorder.span_at(Stage::InitRun, parent, (Uid(7), 3), Moment(10), Moment(30), "migrate", 0);
    /// drop(recorder.read(&mut |record, _, _| assert_eq!((record.span, record.duration), (span, 20))));
    /// ```
    #[allow(clippy::too_many_arguments)]
    pub fn span_at(
        self,
        stage: Stage,
        parent: SpanId,
        about: (Uid, u64),
        from: Moment,
        to: Moment,
        text: &str,
        code: u16,
    ) -> SpanId {
        let Some(inner) = self.inner() else { return SpanId::NONE };
        let mut scope = current();
        if scope.span == parent && !parent.is_none() {
            scope.used();
        } else {
            let is_caused = parent == SpanId::of_write(about.0, about.1);
            let known = is_caused.then(|| self.context_of(about.1)).flatten();
            scope = Scope { span: parent, ..Scope::NONE };
            (scope.trace, scope.flags) = known.unwrap_or_default();
        }
        (scope.subject, scope.revision) = about;
        let mut record = new_record(&scope, stage, from);
        record.code = code;
        record.duration = to.nanos_since(from);
        if record.parent.is_none() && record.trace.is_none() && stage.part() != Part::Other {
            record.trace = TraceId::fresh();
        }
        let text = named(&mut record, text);
        inner.push(&record, None, &text);
        record.span
    }

    /// Records a batch of the store with the revisions from first to last: its begin, and when it was staged, synced and published.
    pub fn batch(
        self,
        first: u64,
        last: u64,
        began: Moment,
        staged: Moment,
        synced: Moment,
        published: Moment,
    ) {
        let Some(inner) = self.inner() else { return };
        let mut record = new_record(&Scope::NONE, Stage::StoreBatch, began);
        record.revision = last;
        record.code = u16::try_from(last.saturating_sub(first)).unwrap_or(u16::MAX);
        record.duration = published.nanos_since(began);
        let mut details = Details::NONE;
        details.marks[0] = Details::units(staged.nanos_since(began));
        details.marks[1] = Details::units(synced.nanos_since(began));
        inner.push(&record, Some(&details), &Text::EMPTY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Flags;
    use crate::scope::enter;

    #[test]
    fn a_batch_has_its_revisions_and_times() {
        let recorder = Recorder::for_tests();
        recorder.batch(11, 20, Moment(1000), Moment(7400), Moment(13_800), Moment(20_200));
        drop(recorder.read(&mut |record, details, _| {
            let details = details.expect("marks");
            assert_eq!((record.stage, record.revision, record.code), (Stage::StoreBatch, 20, 9));
            assert_eq!((record.start, record.duration), (Moment(1000), 19_200));
            assert_eq!((details.mark(0), details.mark(1), details.mark(2)), (Some(6400), Some(12_800), None));
            assert!(record.parent.is_none() && record.subject.is_none() && record.trace.is_none());
        }));
    }

    #[test]
    fn spans_of_the_past_find_their_trace() {
        let recorder = Recorder::for_tests();
        recorder.contexts().expect("a table").put(3, TraceId(33), 0);
        let about = (Uid(7), 3);
        recorder.span_at(Stage::Attempt, SpanId::of_write(Uid(7), 3), about, Moment(10), Moment(5), "", 2);
        recorder.span_at(Stage::Attempt, SpanId(9), about, Moment(10), Moment(50), &"x".repeat(200), 2);
        let started = recorder.span_at(Stage::PodStart, SpanId::NONE, about, Moment(10), Moment(50), "", 0);
        assert_eq!(started, SpanId::of_stage(Uid(7), Stage::PodStart));
        let scope = Scope { trace: TraceId(44), ..Scope::of_pod(recorder, Uid(7), 3) };
        enter(scope, || {
            recorder.span_at(Stage::InitRun, scope.span, about, Moment(10), Moment(50), "init", 1)
        });
        let mut found = Vec::new();
        drop(recorder.read(&mut |record, _, _| found.push((record.trace.0, record.duration, record.flags))));
        let expected =
            [(33, 0, Flags::NONE), (0, 40, Flags::TRUNCATED), (0, 40, Flags::NONE), (44, 40, Flags::NONE)];
        assert_eq!(found, expected);
    }
}
