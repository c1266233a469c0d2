use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;

use crate::cause::Cause;
use crate::context::TraceContext;
use crate::ids::{SpanId, TraceId, Uid};
use crate::open::SlotRef;
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::tally::TallyRef;

/// What the code that runs now is part of. Everything that is recorded in it hangs below its span.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Records what happens; off outside of any entry point.
    pub recorder: Recorder,
    /// The trace; [`TraceId::NONE`] if it is not known here.
    pub trace: TraceId,
    /// The parent of what is recorded.
    pub span: SpanId,
    /// Trace flags of the client.
    pub flags: u8,
    /// The change that a control loop reacts to.
    pub cause: Cause,
    /// The object that it is about.
    pub subject: Uid,
    /// The revision of the object.
    pub revision: u64,
    /// The request or reconcile that is kept if something below it is recorded.
    pub(crate) holder: SlotRef,
    /// The write whose marks are set.
    pub(crate) write: SlotRef,
    /// Where the request is measured.
    pub(crate) tally: TallyRef,
    pub(crate) holder_kind: HolderKind,
    /// The marks of the request are also in the table of open spans.
    pub(crate) is_marked: bool,
    pub(crate) is_detailed: bool,
}

/// What is known of the request or reconcile at the top of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderKind {
    /// There is none, or it is a reconcile.
    Other,
    /// A request.
    Request,
    /// A request whose parent may still be found, by the first write below it.
    Root,
}

impl Scope {
    /// Outside of any entry point: nothing is recorded.
    pub const NONE: Self = Self {
        recorder: Recorder::OFF,
        trace: TraceId::NONE,
        span: SpanId::NONE,
        flags: 0,
        cause: Cause::NONE,
        subject: Uid::NONE,
        revision: 0,
        holder: SlotRef::NONE,
        write: SlotRef::NONE,
        tally: TallyRef::NONE,
        holder_kind: HolderKind::Other,
        is_marked: false,
        is_detailed: false,
    };

    /// Below the write that is the cause.
    pub fn of_cause(recorder: Recorder, cause: Cause) -> Self {
        let (trace, flags) = recorder.context_of(cause.revision).unwrap_or_default();
        let (subject, revision) = (cause.uid, cause.revision);
        Self { recorder, trace, span: cause.span(), flags, cause, subject, revision, ..Self::NONE }
    }

    /// Below the start of a pod, which has the id [`SpanId::of_stage`] of [`Stage::PodStart`].
    pub fn of_pod(recorder: Recorder, uid: Uid, revision: u64) -> Self {
        let span = SpanId::of_stage(uid, Stage::PodStart);
        Self { recorder, span, subject: uid, revision, ..Self::NONE }
    }

    /// The same below another span.
    #[must_use]
    pub fn below(self, span: SpanId) -> Self {
        Self { span, ..self }
    }

    /// What calls to others send, if the trace is known.
    pub fn context(self) -> Option<TraceContext> {
        let is_known = !self.trace.is_none() && !self.span.is_none();
        is_known.then_some(TraceContext { trace: self.trace, span: self.span, flags: self.flags })
    }

    /// Whether a client asked for details, by the sampled flag of its context. Only so many requests per second get them.
    pub fn is_detailed(self) -> bool {
        self.is_detailed
    }

    /// Keeps the request or reconcile at the top.
    pub(crate) fn used(&self) {
        if let Some(inner) = self.recorder.inner() {
            inner.open.used(self.holder);
        }
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::NONE
    }
}

thread_local!(static CURRENT: Cell<Scope> = const { Cell::new(Scope::NONE) });

/// The scope of the code that runs now.
#[inline]
pub fn current() -> Scope {
    CURRENT.get()
}

/// Whether a client asked for details of what is done now, see [`Scope::is_detailed`].
#[inline]
pub fn is_detailed() -> bool {
    current().is_detailed
}

/// Runs something in a scope.
///
/// ```
/// use coracle_trace::{Recorder, Scope, Stage, Uid, enter, stage_named};
///
/// let recorder = Recorder::for_tests();
/// let pod = Scope::of_pod(recorder, Uid(7), 1);
/// enter(pod, || stage_named(Stage::Volume, "data").finish());
/// let mut parents = Vec::new();
/// drop(recorder.read(&mut |record, _, _| parents.push(record.parent)));
/// assert_eq!(parents, [pod.span]);
/// ```
pub fn enter<R>(scope: Scope, work: impl FnOnce() -> R) -> R {
    let _restored = Restored(CURRENT.replace(scope));
    work()
}

/// The scope before, set again by Drop: after a panic, too.
struct Restored(Scope);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// Runs a future in a scope, which is set for each poll.
///
/// The result has room for two of the future: a large one should be boxed.
pub async fn within<F: Future>(scope: Scope, work: F) -> F::Output {
    let mut work = pin!(work);
    poll_fn(|context| enter(scope, || work.as_mut().poll(context))).await
}

/// The future in the scope of the caller, for another task.
pub fn carried<F: Future>(work: F) -> impl Future<Output = F::Output> {
    within(current(), work)
}

/// The work in the scope of the caller, for another thread.
pub fn carry<R>(work: impl FnOnce() -> R) -> impl FnOnce() -> R {
    let scope = current();
    move || enter(scope, work)
}

/// What the code that runs now reacts to.
#[inline]
pub fn cause() -> Cause {
    current().cause
}

/// Runs something, such as an event handler, that reacts to a change.
pub fn caused_by<R>(cause: Cause, work: impl FnOnce() -> R) -> R {
    enter(Scope { cause, ..current() }, work)
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::cause::Rank;
    use crate::clock::Moment;

    fn scope(span: u64) -> Scope {
        Scope { span: SpanId(span), ..Scope::NONE }
    }

    #[test]
    fn the_scope_before_comes_back() {
        enter(scope(1), || {
            assert_eq!(enter(scope(2), || current().span), SpanId(2));
            assert_eq!(current().span, SpanId(1));
            let panicked = catch_unwind(AssertUnwindSafe(|| enter(scope(3), || panic!("on purpose"))));
            assert!(panicked.is_err());
            assert_eq!(current().span, SpanId(1));
        });
        assert_eq!(current().span, SpanId::NONE);
    }

    #[test]
    fn a_future_has_its_scope_at_each_poll_and_nobody_else() {
        let mut polls = 0;
        let mut future = pin!(within(
            scope(5),
            poll_fn(move |_| {
                assert_eq!(current().span, SpanId(5));
                polls += 1;
                if polls < 3 { Poll::Pending } else { Poll::Ready(polls) }
            })
        ));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
        assert_eq!(current().span, SpanId::NONE);
        assert_eq!(enter(scope(6), || future.as_mut().poll(&mut context)), Poll::Pending);
        assert_eq!(future.as_mut().poll(&mut context), Poll::Ready(3));
    }

    #[test]
    fn other_threads_and_tasks_get_the_scope_of_their_caller() {
        let work = enter(scope(8), || carry(|| current().span));
        assert_eq!(std::thread::spawn(work).join().expect("no panic"), SpanId(8));
        let mut task = pin!(enter(scope(9), || carried(async { current().span })));
        assert_eq!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(SpanId(9)));
    }

    #[test]
    fn causes_are_ambient() {
        let change = Cause { uid: Uid(1), revision: 2, rank: Rank::Spec, since: Moment(3) };
        enter(scope(4), || {
            assert_eq!(caused_by(change, || (cause(), current().span)), (change, SpanId(4)));
            assert_eq!(cause(), Cause::NONE);
        });
    }

    #[test]
    fn a_context_needs_trace_and_span() {
        assert_eq!(scope(4).context(), None);
        let known = Scope { trace: TraceId(5), flags: 1, ..scope(4) };
        assert_eq!(known.context(), Some(TraceContext { trace: TraceId(5), span: SpanId(4), flags: 1 }));
        assert!(size_of::<Scope>() <= 160, "{}", size_of::<Scope>());
    }
}
