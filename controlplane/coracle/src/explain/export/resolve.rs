//! Records to spans of traces: which trace a record belongs to, what its parent is called, which object it is about, and whether its
//! trace is exported.

use crate::explain::otlp::SpanObject;
use coracle_timeline::StoredRecord;
use coracle_trace::{Flags, Recorder, SpanId, Stage, TraceContext, TraceId, Uid};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How long a record waits for the record of its parent.
const WAIT: Duration = Duration::from_secs(5);
/// How many records wait.
const MOST_WAITING: usize = 8192;
/// How many spans, objects and traces are remembered.
const MOST_KNOWN: usize = 16384;
/// How far up parents are followed.
const DEPTH: usize = 32;

/// The newest entries of a table.
struct Recent<K, V> {
    entries: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Copy + Eq + Hash, V> Recent<K, V> {
    fn new() -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new() }
    }

    fn insert(&mut self, key: K, value: V) {
        if self.entries.insert(key, value).is_none() {
            self.order.push_back(key);
            if self.order.len() > MOST_KNOWN
                && let Some(oldest) = self.order.pop_front()
            {
                self.entries.remove(&oldest);
            }
        }
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key)
    }
}

/// A span that was seen.
#[derive(Clone, Copy)]
struct Seen {
    /// The id that it is exported with: that of a write can be computed from object and revision.
    id: SpanId,
    parent: SpanId,
    trace: TraceId,
}

/// A record that is ready to be sent.
pub(super) struct Resolved {
    pub(super) stored: StoredRecord,
    pub(super) id: SpanId,
    pub(super) parent: SpanId,
    pub(super) trace: TraceId,
    /// Whether the trace id was made up, since that of the parent was not to be found.
    pub(super) derived: bool,
    /// Whether something below it says what a request did.
    pub(super) is_explained: bool,
    pub(super) object: Option<SpanObject>,
}

/// Records that wait, and what is known of those before them.
pub(super) struct Resolver {
    recorder: Recorder,
    sampling: f64,
    spans: Recent<SpanId, Seen>,
    /// Spans above a write or something else that says what a request did. It ends before the request does.
    explained: Recent<SpanId, ()>,
    objects: Recent<Uid, SpanObject>,
    /// Traces of clients, and whether they sample them.
    traces: Recent<TraceId, bool>,
    waiting: VecDeque<(Instant, StoredRecord)>,
}

impl Resolver {
    pub(super) fn new(recorder: Recorder, sampling: f64) -> Self {
        Self {
            recorder,
            sampling,
            spans: Recent::new(),
            explained: Recent::new(),
            objects: Recent::new(),
            traces: Recent::new(),
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the records of a block; returns how many are lost, here or before.
    pub(super) fn take(&mut self, records: Vec<StoredRecord>, now: Instant) -> u64 {
        let mut lost = 0_u64;
        for stored in records {
            if stored.record.stage == Stage::Lost {
                lost = lost.saturating_add(stored.record.revision);
            } else if is_exported(&stored) && self.spans.get(&stored.record.span).is_none() {
                // A node may tell something twice, if it was not told that the first time was heard.
                self.note(&stored);
                self.waiting.push_back((now, stored));
            }
        }
        let over = self.waiting.len().saturating_sub(MOST_WAITING);
        self.waiting.drain(..over);
        lost.saturating_add(over as u64)
    }

    fn note(&mut self, stored: &StoredRecord) {
        let record = &stored.record;
        let mut id = record.span;
        if record.stage == Stage::Write {
            if let Some(object) = object_of(&stored.text, record.subject) {
                self.objects.insert(record.subject, object);
            }
            if record.revision > 0 {
                id = SpanId::of_write(record.subject, record.revision);
            }
        }
        let seen = Seen { id, parent: record.parent, trace: record.trace };
        self.spans.insert(record.span, seen);
        self.spans.insert(id, seen);
        if record.stage.explains_request() && !record.parent.is_none() {
            self.explained.insert(record.parent, ());
        }
        if record.flags.contains(Flags::REMOTE) && !record.trace.is_none() {
            self.traces.insert(record.trace, record.flags.contains(Flags::SAMPLED));
        }
    }

    /// Takes the records whose parents are known, and those that waited long enough, or `all`.
    pub(super) fn ready(&mut self, now: Instant, all: bool) -> Vec<Resolved> {
        let (mut ready, mut waiting) = (Vec::new(), VecDeque::new());
        for (since, stored) in std::mem::take(&mut self.waiting) {
            let parent = stored.record.parent;
            let known = parent.is_none() || self.spans.get(&parent).is_some();
            let remote = stored.record.flags.contains(Flags::REMOTE);
            if all || known || remote || now.duration_since(since) >= WAIT {
                ready.extend(self.resolve(stored));
            } else {
                waiting.push_back((since, stored));
            }
        }
        self.waiting = waiting;
        ready
    }

    /// The record with its trace, unless that is not exported.
    fn resolve(&self, stored: StoredRecord) -> Option<Resolved> {
        let record = &stored.record;
        let seen = self.spans.get(&record.span);
        let id = seen.map_or(record.span, |seen| seen.id);
        let parent = self.spans.get(&record.parent).map_or(record.parent, |seen| seen.id);
        let (above, root) = self.trace_of(record.span);
        let by_revision = || Some(self.by_revision(record.revision));
        let found = [record.trace, above].into_iter().find(|trace| !trace.is_none());
        let trace = found.or_else(by_revision).unwrap_or_default();
        let derived = trace.is_none();
        let trace = if derived { trace_of_root(root) } else { trace };
        let sampled = record.flags.contains(Flags::SAMPLED) || self.is_sampled(trace, record.revision);
        let object = self.objects.get(&record.subject).cloned();
        let is_explained = self.explained.get(&record.span).is_some();
        sampled.then_some(Resolved { id, parent, trace, derived, is_explained, object, stored })
    }

    /// The trace of a span or of the nearest span above it that has one, and the highest span that is known.
    fn trace_of(&self, span: SpanId) -> (TraceId, SpanId) {
        let mut at = span;
        for _ in 0..DEPTH {
            let Some(seen) = self.spans.get(&at) else { break };
            if !seen.trace.is_none() || seen.parent.is_none() {
                return (seen.trace, at);
            }
            at = seen.parent;
        }
        (TraceId::NONE, at)
    }

    fn by_revision(&self, revision: u64) -> TraceId {
        let known = self.recorder.contexts().and_then(|contexts| contexts.get(revision));
        known.map_or(TraceId::NONE, |(trace, _)| trace)
    }

    /// Whether a trace is exported: as the client says, else by its id, so that all servers agree.
    fn is_sampled(&self, trace: TraceId, revision: u64) -> bool {
        if let Some(sampled) = self.traces.get(&trace) {
            return *sampled;
        }
        let known = self.recorder.contexts().and_then(|contexts| contexts.get(revision));
        let by_client = known.is_some_and(|(of, flags)| of == trace && flags & TraceContext::SAMPLED != 0);
        by_client || is_in_share(trace, self.sampling)
    }
}

/// What is said of the process itself, of no trace, or not whole is not exported.
fn is_exported(stored: &StoredRecord) -> bool {
    let process = matches!(
        stored.record.stage,
        Stage::Restarted
            | Stage::ClockStep
            | Stage::Usual
            | Stage::StoreBatch
            | Stage::Other
            | Stage::SpansTaken
    );
    !process && !stored.record.flags.contains(Flags::UNFINISHED)
}

/// By the 56 lowest bits, which are random in every trace id of level 2.
fn is_in_share(trace: TraceId, share: f64) -> bool {
    let random = (trace.0 & 0x00ff_ffff_ffff_ffff) as u64;
    random < (share * (1_u64 << 56) as f64) as u64
}

/// The same for all spans below a root.
fn trace_of_root(root: SpanId) -> TraceId {
    TraceId(u128::from(root.of_mark(u8::MAX).0) << 64 | u128::from(root.of_mark(u8::MAX - 1).0))
}

/// The object of a write, from `create deployments.apps default/web`.
fn object_of(text: &str, uid: Uid) -> Option<SpanObject> {
    let (_, rest) = text.split('\n').next()?.split_once(' ')?;
    let (resource, key) = rest.split_once([' ', '/'])?;
    let (namespace, name) = key.rsplit_once('/').unwrap_or(("", key));
    Some(SpanObject { resource: resource.into(), namespace: namespace.into(), name: name.into(), uid })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_trace::{Moment, Record};

    const UID: Uid = Uid(7);

    fn stored(stage: Stage, span: u64, parent: SpanId, trace: u128) -> StoredRecord {
        let record = Record {
            stage,
            flags: Flags::NONE,
            code: 0,
            span: SpanId(span),
            parent,
            trace: TraceId(trace),
            subject: UID,
            revision: 9,
            start: Moment::MAX,
            duration: 5,
        };
        let text = if stage == Stage::Write { "create pods default/web" } else { "" };
        StoredRecord {
            record,
            start: 1,
            details: None,
            text: text.into(),
            node: String::new(),
            uncertainty: 0,
        }
    }

    fn names(ready: &[Resolved]) -> Vec<(Stage, SpanId, SpanId, TraceId)> {
        ready.iter().map(|r| (r.stored.record.stage, r.id, r.parent, r.trace)).collect()
    }

    #[test]
    fn writes_have_the_id_that_everybody_knows_and_their_children_hang_below_it() {
        let (now, write) = (Instant::now(), SpanId::of_write(UID, 9));
        let mut resolver = Resolver::new(Recorder::OFF, 1.0);
        // The plugin ends before the write, and the reconcile names the write by object and revision.
        let plugin = stored(Stage::MutatingPlugin, 2, SpanId(1), 0);
        let reconcile = stored(Stage::Reconcile, 3, write, 0);
        assert_eq!(resolver.take(vec![plugin, reconcile], now), 0);
        assert!(resolver.ready(now, false).is_empty(), "they wait for their parents");
        resolver.take(vec![stored(Stage::Write, 1, SpanId::NONE, 5)], now);
        let ready = resolver.ready(now, false);
        assert_eq!(
            names(&ready),
            [
                (Stage::MutatingPlugin, SpanId(2), write, TraceId(5)),
                (Stage::Reconcile, SpanId(3), write, TraceId(5)),
                (Stage::Write, write, SpanId::NONE, TraceId(5)),
            ]
        );
        assert_eq!(ready[0].object.as_ref().unwrap().name, "web");
    }

    #[test]
    fn spans_whose_parent_does_not_come_share_a_trace_by_it() {
        let now = Instant::now();
        let mut resolver = Resolver::new(Recorder::OFF, 1.0);
        let orphans = [stored(Stage::Image, 2, SpanId(1), 0), stored(Stage::Sandbox, 3, SpanId(1), 0)];
        resolver.take(orphans.to_vec(), now);
        assert!(resolver.ready(now + WAIT / 2, false).is_empty());
        let ready = resolver.ready(now + WAIT, false);
        assert_eq!(ready.len(), 2);
        assert!(ready[0].derived && ready[0].trace == ready[1].trace && !ready[0].trace.is_none());
    }

    #[test]
    fn clients_decide_about_their_traces() {
        let now = Instant::now();
        let mut resolver = Resolver::new(Recorder::OFF, 0.0);
        let mut request = stored(Stage::Request, 1, SpanId(99), 5);
        request.record.flags = Flags::REMOTE | Flags::SAMPLED;
        let write = stored(Stage::Write, 2, SpanId(1), 5);
        let other = stored(Stage::Write, 3, SpanId::NONE, 6);
        resolver.take(vec![request, write, other], now);
        let traces: Vec<TraceId> = resolver.ready(now, true).iter().map(|ready| ready.trace).collect();
        assert_eq!(traces, [TraceId(5), TraceId(5)]);
        assert!(is_in_share(TraceId(0x00ff_ffff_ffff_ffff), 1.0) && !is_in_share(TraceId(0), 0.0));
        assert!(is_in_share(TraceId(1 << 54), 0.5) && !is_in_share(TraceId(3 << 54), 0.5));
    }

    #[test]
    fn a_request_is_explained_by_the_write_below_it() {
        let (now, mut resolver) = (Instant::now(), Resolver::new(Recorder::OFF, 1.0));
        let write = stored(Stage::Write, 2, SpanId(1), 5);
        let others = [stored(Stage::Request, 1, SpanId::NONE, 5), stored(Stage::Request, 3, SpanId::NONE, 6)];
        resolver.take(std::iter::once(write).chain(others).collect(), now);
        let explained: Vec<bool> = resolver.ready(now, true).iter().map(|ready| ready.is_explained).collect();
        assert_eq!(explained, [false, true, false]);
    }

    #[test]
    fn what_is_told_twice_is_exported_once() {
        let (now, mut resolver) = (Instant::now(), Resolver::new(Recorder::OFF, 1.0));
        let ready = || stored(Stage::Ready, 1, SpanId::NONE, 5);
        resolver.take(vec![ready(), ready()], now);
        assert_eq!(resolver.ready(now, true).len(), 1);
        resolver.take(vec![ready()], now);
        assert_eq!(resolver.waiting(), 0);
    }

    #[test]
    fn what_was_cut_off_is_not_exported() {
        let mut resolver = Resolver::new(Recorder::OFF, 1.0);
        let mut cut = stored(Stage::PodStart, 1, SpanId::NONE, 5);
        cut.record.flags = Flags::UNFINISHED;
        let mut lost = stored(Stage::Lost, 2, SpanId::NONE, 0);
        lost.record.revision = 12;
        assert_eq!(resolver.take(vec![cut, lost], Instant::now()), 12);
        assert_eq!(resolver.waiting(), 0);
    }
}
