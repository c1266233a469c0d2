use std::future::poll_fn;
use std::pin::pin;

use crate::clock::Moment;
use crate::context::TraceContext;
use crate::ids::{SpanId, Uid};
use crate::open::SlotRef;
use crate::record::{Flags, Record, Text};
use crate::recorder::Inner;
use crate::scope::{Scope, current, enter};
use crate::stage::Stage;

/// A stage that has begun. It ends when this is dropped.
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    /// Nothing where nothing is recorded.
    live: Option<Live>,
}

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    record: Record,
    text: Text,
    /// For what is below the span.
    scope: Scope,
    slot: SlotRef,
}

/// Begins a stage below the current scope.
///
/// ```
/// use coracle_trace::{Recorder, Scope, Stage, Uid, enter, stage};
///
/// let recorder = Recorder::for_tests();
/// enter(Scope::of_pod(recorder, Uid(7), 1), || {
///     let mut span = stage(Stage::Admit);
///     span.failed();
/// });
/// assert_eq!(recorder.read(&mut |_, _, _| ()).records(), 1);
/// ```
pub fn stage(stage: Stage) -> Span {
    stage_named(stage, "")
}

/// Begins a stage below the current scope. What follows a line feed in the name is shown as an explanation.
pub fn stage_named(stage: Stage, name: &str) -> Span {
    let scope = current();
    let Some(inner) = scope.recorder.inner() else { return Span { live: None } };
    let mut record = new_record(&scope, stage, inner.clock.now());
    let text = named(&mut record, name);
    let scope = Scope { span: record.span, ..scope };
    let slot = inner.claim(&record, &text);
    Span { live: Some(Live { inner, record, text, scope, slot }) }
}

/// Records something that takes no time.
pub fn point(stage: Stage, name: &str, code: u16) {
    let scope = current();
    let Some(inner) = scope.recorder.inner() else { return };
    let mut record = new_record(&scope, stage, inner.clock.now());
    record.code = code;
    let text = named(&mut record, name);
    scope.used();
    inner.push(&record, None, &text);
}

/// Runs a future as a stage: what it records hangs below. An error marks the stage as failed, and dropping the future as cancelled.
pub async fn tracked<T, E>(
    stage: Stage,
    name: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut work = pin!(work);
    let mut span = stage_named(stage, name);
    span.flag(Flags::CANCELLED, true);
    let scope = span.is_on().then(|| span.scope());
    let result = poll_fn(|context| match scope {
        Some(scope) => enter(scope, || work.as_mut().poll(context)),
        None => work.as_mut().poll(context),
    })
    .await;
    span.ended(&result);
    result
}

/// Runs something as a stage, as [`tracked`] does.
///
/// ```
/// use coracle_trace::{Flags, Recorder, Scope, Stage, Uid, enter, tracked_sync};
///
/// let recorder = Recorder::for_tests();
/// let result = enter(Scope::of_pod(recorder, Uid(7), 1), || {
///     tracked_sync(Stage::CniPlugin, "bridge ADD", || Err::<(), _>("no such device"))
/// });
/// assert!(result.is_err());
/// drop(recorder.read(&mut |record, _, text| {
///     assert_eq!(text, "bridge ADD");
///     assert!(record.flags.contains(Flags::FAILED));
/// }));
/// ```
pub fn tracked_sync<T, E>(stage: Stage, name: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut span = stage_named(stage, name);
    span.flag(Flags::CANCELLED, true);
    let result = if span.is_on() { enter(span.scope(), work) } else { work() };
    span.ended(&result);
    result
}

impl Span {
    /// Its id; [`SpanId::NONE`] where nothing is recorded.
    pub fn id(&self) -> SpanId {
        self.live.as_ref().map_or(SpanId::NONE, |live| live.record.span)
    }

    /// For what is below it.
    pub fn scope(&self) -> Scope {
        self.live.as_ref().map_or_else(current, |live| live.scope)
    }

    /// Changes the name. What follows a line feed is shown as an explanation.
    pub fn rename(&mut self, name: &str) {
        self.change(|live| live.text = named(&mut live.record, name));
    }

    /// Sets the code: an exit code, attempt or count, by stage.
    pub fn code(&mut self, code: u16) {
        self.change(|live| live.record.code = code);
    }

    /// Marks it as failed.
    pub fn failed(&mut self) {
        self.flag(Flags::FAILED, true);
    }

    /// Sets when it began.
    pub fn began(&mut self, at: Moment) {
        self.change(|live| live.record.start = at);
    }

    /// Sets what it is about, if that is not what the scope is about.
    pub fn about(&mut self, subject: Uid, revision: u64) {
        self.change(|live| {
            (live.record.subject, live.record.revision) = (subject, revision);
            (live.scope.subject, live.scope.revision) = (subject, revision);
            live.record.place();
            live.scope.span = live.record.span;
        });
    }

    /// Forgets it. What was recorded below it is not forgotten.
    pub fn discard(mut self) {
        if let Some(live) = self.live.take() {
            live.inner.open.free(live.slot);
        }
    }

    /// Ends it, as dropping does.
    pub fn finish(self) {}

    fn is_on(&self) -> bool {
        self.live.is_some()
    }

    fn ended<T, E>(&mut self, result: &Result<T, E>) {
        self.flag(Flags::CANCELLED, false);
        self.flag(Flags::FAILED, result.is_err());
    }

    fn flag(&mut self, flag: Flags, is_set: bool) {
        if let Some(Live { record, .. }) = &mut self.live {
            record.flags = if is_set { record.flags.with(flag) } else { record.flags.without(flag) };
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Live)) {
        if let Some(live) = &mut self.live {
            change(live);
            live.inner.open.update(live.slot, &live.record, live.text.bytes());
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let Some(live) = &mut self.live else { return };
        live.record.duration = live.inner.clock.now().nanos_since(live.record.start);
        if std::thread::panicking() {
            live.record.flags |= Flags::CANCELLED;
        }
        live.scope.used();
        live.inner.push(&live.record, None, &live.text);
        live.inner.open.free(live.slot);
    }
}

/// A record that begins below a scope.
pub(crate) fn new_record(scope: &Scope, stage: Stage, start: Moment) -> Record {
    let mut record = Record {
        stage,
        flags: sampled(scope.flags),
        code: 0,
        span: SpanId::NONE,
        parent: scope.span,
        trace: scope.trace,
        subject: scope.subject,
        revision: scope.revision,
        start,
        duration: 0,
    };
    record.place();
    record
}

impl Record {
    /// Sets the id if there is none, and id and parent of a stage that an object has once.
    pub(crate) fn place(&mut self) {
        if self.stage.is_single() && !self.subject.is_none() {
            self.span = SpanId::of_stage(self.subject, self.stage);
            self.parent = SpanId::of_write(self.subject, self.revision);
        } else if self.span.is_none() {
            self.span = SpanId::fresh();
        }
    }
}

/// The text of a name; a flag says if it was cut.
pub(crate) fn named(record: &mut Record, name: &str) -> Text {
    let mut text = Text::EMPTY;
    if !text.push(name) {
        record.flags |= Flags::TRUNCATED;
    }
    text
}

/// Flags of records from those of a trace.
pub(crate) fn sampled(flags: u8) -> Flags {
    if flags & TraceContext::SAMPLED != 0 { Flags::SAMPLED } else { Flags::NONE }
}

#[cfg(test)]
mod tests;
