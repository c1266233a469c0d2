//! The span of a scheduling attempt: from the time at which a pod is taken from the queue until it is bound, or known to have
//! no node. Its id is drawn at the begin, so that writes can be recorded below it; the span itself is recorded at the end.

use super::waits::Waited;
use coracle_trace::{Cause, Flags, Moment, Record, Recorder, Scope, Shown, SpanId, Stage, TraceId, Uid};
use std::time::Instant;

/// A scheduling attempt that is under way.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Below the write that put the pod into the queue.
    above: Scope,
    span: SpanId,
    began: Moment,
    /// Which attempt of the pod it is.
    count: u16,
}

impl Attempt {
    /// Records nothing.
    pub const OFF: Self = Self { above: Scope::NONE, span: SpanId::NONE, began: Moment::MAX, count: 0 };

    /// Begins the attempt number `count` for a pod.
    pub fn begin(recorder: Recorder, cause: Cause, uid: &str, began: Instant, count: u32) -> Self {
        let Some(clock) = recorder.clock() else { return Self::OFF };
        let mut above = Scope::of_cause(recorder, cause);
        above.subject = Uid::of(uid);
        if cause.is_none() {
            above.trace = TraceId::fresh();
        }
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        Self { above, span: SpanId::fresh(), began: clock.of(began), count }
    }

    /// Whether something is recorded.
    pub fn is_on(&self) -> bool {
        self.above.recorder.is_on()
    }

    /// For what is done in the attempt.
    pub fn scope(&self) -> Scope {
        self.above.below(self.span)
    }

    /// For what is as much a consequence of the pod's write as the attempt is.
    pub fn above(&self) -> Scope {
        self.above
    }

    /// Records a time that the pod waited before the attempt, as the span `id`.
    pub fn waited(&self, id: SpanId, waited: &Waited, message: &str) {
        if !self.is_on() {
            return;
        }
        let text =
            if message.is_empty() { waited.event.into() } else { format!("{}\n{message}", waited.event) };
        let record = self.record(waited.stage, id, self.above.span, (waited.since, waited.until));
        self.above.recorder.push(&record, None, &text);
    }

    /// Records a part of the attempt.
    pub fn part(&self, stage: Stage, (from, to): (Instant, Instant), text: &str) {
        let record = self.record(stage, SpanId::fresh(), self.span, (from, to));
        self.above.recorder.push(&record, None, text);
    }

    /// Records a part of the attempt that failed, or a node that was refused.
    pub fn failed_part(&self, stage: Stage, (from, to): (Instant, Instant), text: &str) {
        let mut record = self.record(stage, SpanId::fresh(), self.span, (from, to));
        record.flags.insert(Flags::FAILED);
        self.above.recorder.push(&record, None, text);
    }

    /// The attempt is over: the pod is bound, or why not.
    pub fn end(&self, failure: Option<&str>) {
        if !self.is_on() {
            return;
        }
        let mut record = self.whole();
        if failure.is_some() {
            record.flags.insert(Flags::FAILED);
        }
        let text = failure.map(|failure| format!("\n{failure}"));
        self.above.recorder.push(&record, None, text.as_deref().unwrap_or_default());
    }

    /// Shows the attempt as open while the pod is being bound: what a killed scheduler had bound has a cause.
    pub fn show(&self) -> Shown {
        self.above.recorder.show(&self.whole())
    }

    /// The attempt until now.
    fn whole(&self) -> Record {
        let now = Instant::now();
        let mut record = self.record(Stage::Attempt, self.span, self.above.span, (now, now));
        record.duration = record.start.nanos_since(self.began);
        (record.start, record.code) = (self.began, self.count);
        record
    }

    fn record(&self, stage: Stage, span: SpanId, parent: SpanId, (from, to): (Instant, Instant)) -> Record {
        let moment = |at| self.above.recorder.clock().map_or(Moment::MAX, |clock| clock.of(at));
        let start = moment(from);
        Record {
            stage,
            flags: Flags::NONE,
            code: 0,
            span,
            parent,
            trace: self.above.trace,
            subject: self.above.subject,
            revision: self.above.revision,
            start,
            duration: moment(to).nanos_since(start),
        }
    }
}
