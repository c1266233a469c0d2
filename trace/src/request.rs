use std::time::{Duration, Instant};

use crate::clock::{Moment, nanos};
use crate::context::TraceContext;
use crate::free_list::FreeList;
use crate::ids::{TraceId, Uid};
use crate::open::Gathered;
use crate::record::{Details, Flags, Record, Text};
use crate::recorder::{Inner, Recorder};
use crate::scope::{HolderKind, Scope, current};
use crate::span::new_record;
use crate::stage::Stage;
use crate::tally::{Tallied, Tally};

/// Bytes of method and path, of the user and of the user agent in the text.
const LINES: [usize; 3] = [95, 31, 31];
/// Slower requests are kept.
const SLOW: Duration = Duration::from_millis(500);
/// Status of requests of nobody.
const UNAUTHORIZED: u16 = 401;

/// The ends of consecutive stages of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestMark {
    /// The user is known.
    Authenticated,
    /// Audit and impersonation are done.
    Filtered,
    /// Flow control let it pass.
    Seated,
    /// It may be done.
    Authorized,
    /// The body is here.
    BodyRead,
    /// The body is an object.
    Decoded,
    /// What it asked for is done.
    Handled,
    /// The answer is ready.
    Answered,
}

/// Times that add up in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Sum {
    /// Calls of mutating webhooks.
    MutatingWebhook,
    /// Calls of validating webhooks.
    ValidatingWebhook,
    /// Waiting for flow control.
    FlowQueue,
    /// The store.
    Store,
    /// Making the form of the answer that the client asked for: another version, a table.
    Transform,
    /// Writing the answer as bytes.
    Serialize,
}

/// An HTTP request.
///
/// It is kept if something below it was recorded. Of the others so many per second are kept of which the client records the trace, that
/// were slow (500 ms), failed (5xx), or were writes that were refused, but none of a client that has not said who it is.
#[derive(Debug)]
#[must_use = "a request that is dropped before `finish` counts as cancelled"]
pub struct RequestSpan {
    began: Instant,
    /// Until it ends.
    tally: Option<Tally>,
    // In a box: requests are moved into futures, and those into others.
    live: Option<Box<Live>>,
}

#[derive(Debug)]
struct Live {
    inner: &'static Inner,
    record: Record,
    text: Text,
    /// The length of method and path in the text.
    line: usize,
    scope: Scope,
    writes: bool,
    /// The user is known.
    is_known: bool,
}

thread_local!(static FREE: FreeList<Box<Live>> = const { FreeList::new() });

/// How long a request took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestTimes {
    /// All of it.
    pub total: Duration,
    /// From its start to each mark, by [`RequestMark`].
    pub marks: [Option<Duration>; 16],
    /// Calls of admission webhooks.
    pub webhooks: Duration,
    /// Calls of mutating webhooks.
    pub mutating_webhooks: Duration,
    /// Calls of validating webhooks.
    pub validating_webhooks: Duration,
    /// Waiting for flow control.
    pub queued: Duration,
    /// The store.
    pub store: Duration,
    /// Making the form of the answer that the client asked for.
    pub transform: Duration,
    /// Writing the answer as bytes.
    pub serialize: Duration,
}

/// Ends a stage of the current request.
#[inline]
pub fn mark(mark: RequestMark) {
    let scope = current();
    if scope.tally.is_none() {
        return;
    }
    let now = Instant::now();
    scope.tally.mark(mark as usize, now);
    if let Some(inner) = scope.recorder.inner().filter(|_| scope.is_marked) {
        inner.open.mark(scope.holder, mark as usize, inner.clock.of(now));
    }
}

/// Adds to a time of the current request.
#[inline]
pub fn add(part: Sum, time: Duration) {
    current().tally.add(part as usize, time);
}

/// Does something and adds its time to a time of the current request.
#[inline]
pub fn measured<R>(part: Sum, work: impl FnOnce() -> R) -> R {
    let begun = Instant::now();
    let result = work();
    add(part, begun.elapsed());
    result
}

impl Recorder {
    /// Begins a request with the context that its client sent. `writes`: it may change something.
    ///
    /// ```
    /// use coracle_trace::{Recorder, RequestMark, Sum, TraceContext, add, enter, mark};
    ///
    /// let recorder = Recorder::for_tests();
    /// let client = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    /// let mut request = recorder.request(client, true);
    /// request.about("11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11", "POST", "/api/v1/namespaces/default/pods");
    /// request.who("alice", "kubectl/v1.35.0");
    /// enter(request.scope(), || {
    ///     mark(RequestMark::Authenticated);
    ///     add(Sum::Store, std::time::Duration::from_millis(2));
    /// });
    /// let times = request.finish(201);
    /// assert!(times.marks[RequestMark::Authenticated as usize].is_some());
    /// assert_eq!(times.store.as_millis(), 2);
    /// assert_eq!(recorder.read(&mut |record, _, _| assert_eq!(record.code, 201)).records(), 1);
    /// ```
    pub fn request(self, remote: Option<TraceContext>, writes: bool) -> RequestSpan {
        let began = Instant::now();
        let tally = Tally::begin(began);
        let live = self.inner().map(|inner| {
            let tally = tally.shared();
            let mut scope = Scope { recorder: self, trace: TraceId::fresh(), tally, ..Scope::NONE };
            if let Some(remote) = remote {
                (scope.trace, scope.span, scope.flags) = (remote.trace, remote.span, remote.flags);
            }
            let start = inner.clock.of(began);
            let mut record = new_record(&scope, Stage::Request, start);
            if remote.is_some() {
                record.flags |= Flags::REMOTE;
            }
            let is_sampled = record.flags.contains(Flags::SAMPLED);
            scope.span = record.span;
            scope.holder = inner.claim(&record, &Text::EMPTY);
            scope.holder_kind = if remote.is_some() { HolderKind::Request } else { HolderKind::Root };
            // Of others nobody looks at what they do now.
            scope.is_marked = writes || is_sampled;
            scope.is_detailed = is_sampled && inner.may_detail(start);
            let live = Live { inner, record, text: Text::EMPTY, line: 0, scope, writes, is_known: false };
            FREE.with(|free| free.boxed(live))
        });
        RequestSpan { began, tally: Some(tally), live }
    }
}

impl RequestSpan {
    /// For what is done for it.
    #[inline]
    pub fn scope(&self) -> Scope {
        if let Some(live) = &self.live {
            return live.scope;
        }
        // Without a recorder it is measured, too.
        self.tally.as_ref().map_or(Scope::NONE, |tally| Scope { tally: tally.shared(), ..Scope::NONE })
    }

    /// Sets its id in the audit log and what it asks for.
    pub fn about(&mut self, audit_id: &str, method: &str, path: &str) {
        self.change(|live| {
            live.record.subject = Uid::of(audit_id);
            live.text.truncate(0);
            let most = LINES[0].saturating_sub(method.len() + 1);
            let is_whole = live.text.push_line(method, LINES[0]) & live.text.push(" ");
            let is_whole = is_whole & live.text.push_line(path, most);
            live.line = live.text.bytes().len();
            is_whole
        });
    }

    /// Sets who asked, after [`RequestSpan::about`].
    pub fn who(&mut self, user: &str, agent: &str) {
        self.change(|live| {
            live.is_known = true;
            live.text.truncate(live.line);
            let is_whole = live.text.push("\n") & live.text.push_line(user, LINES[1]);
            is_whole & live.text.push("\n") & live.text.push_line(agent, LINES[2])
        });
    }

    /// Whether everything that can be measured should be, see [`Scope::is_detailed`].
    pub fn is_detailed(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.scope.is_detailed)
    }

    /// Ends it with an HTTP status.
    pub fn finish(mut self, code: u16) -> RequestTimes {
        self.end(code, Flags::NONE)
    }

    fn change(&mut self, change: impl FnOnce(&mut Live) -> bool) {
        let Some(live) = &mut self.live else { return };
        if !change(live) {
            live.record.flags |= Flags::TRUNCATED;
        }
        live.inner.open.describe(live.scope.holder, &live.record, live.text.bytes());
    }

    fn end(&mut self, code: u16, flags: Flags) -> RequestTimes {
        let tallied = self.tally.take().map(Tally::end).unwrap_or_default();
        let times = RequestTimes::new(self.began.elapsed(), &tallied);
        let Some(mut live) = self.live.take() else { return times };
        let gathered = live.gather();
        live.record.code = code;
        live.record.duration = nanos(times.total);
        live.record.flags |= flags;
        if code >= 500 {
            live.record.flags |= Flags::FAILED;
        }
        let details = Details { marks: tallied.marks, owner: Uid::NONE };
        let details = Some(details).filter(|details| *details != Details::NONE);
        // Without a slot it is not known: something may be below a write.
        let is_used = gathered.map_or(live.writes && code != UNAUTHORIZED, |gathered| gathered.is_used);
        let end = Moment(live.record.start.0.saturating_add(live.record.duration));
        if is_used || live.is_notable(code, times.total) && live.inner.may_keep(end) {
            live.inner.push(&live.record, details.as_ref(), &live.text);
        }
        live.inner.open.free(live.scope.holder);
        let _ends_with_its_thread = FREE.try_with(|free| free.put(live));
        times
    }
}

impl Live {
    /// Takes over the parent that a write has found.
    fn gather(&mut self) -> Option<Gathered> {
        let gathered = self.inner.open.gathered(self.scope.holder)?;
        (self.record.parent, self.record.trace) = (gathered.parent, gathered.trace);
        self.record.flags |= gathered.flags;
        Some(gathered)
    }

    fn is_notable(&self, code: u16, total: Duration) -> bool {
        let is_cancelled = self.record.flags.contains(Flags::CANCELLED);
        let is_of_nobody = code == UNAUTHORIZED || is_cancelled && !self.is_known;
        let is_refused = self.writes && (code >= 400 || is_cancelled);
        let is_sampled = self.record.flags.contains(Flags::SAMPLED);
        !is_of_nobody && (is_sampled || total >= SLOW || is_refused || code >= 500)
    }
}

impl RequestTimes {
    fn new(total: Duration, tallied: &Tallied) -> Self {
        let [mutating_webhooks, validating_webhooks, queued, store, transform, serialize] = tallied.sums;
        let of_units = |units: u32| Duration::from_nanos(u64::from(units) * Details::UNIT);
        Self {
            total,
            marks: tallied.marks.map(|units| (units != 0).then(|| of_units(units))),
            webhooks: mutating_webhooks + validating_webhooks,
            mutating_webhooks,
            validating_webhooks,
            queued,
            store,
            transform,
            serialize,
        }
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        if self.tally.is_some() {
            self.end(0, Flags::CANCELLED);
        }
    }
}

#[cfg(test)]
mod tests;
