//! Spans of agents: `POST /coracle/v1/spans/<node>` with blocks as they are on the node's disk.

use super::counters::IngestCounters;
use super::placement::Placement;
use bytes::Bytes;
use coracle_apiserver::context::Context;
use coracle_apiserver::explain::may_deliver;
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body};
use coracle_client::user::MASTERS;
use coracle_proto::status::ApiError;
use coracle_timeline::{Batch, Block, BlockError, CollectorHandle, IngestError, StoredRecord, Taken, encode};
use coracle_trace::{Flags, TraceId, Uid};
use http::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The largest body.
const BODY: usize = 256 * 1024;
/// The media type of blocks.
pub const BLOCKS: &str = "application/vnd.coracle.spans";
/// Records per second that a node may deliver.
const RATE: f64 = 2000.0;
/// Records that a node may deliver at once, when it was quiet before: the spool of one that was away.
const BURST: f64 = 40_000.0;
/// From this on the offset of a node's clock is logged.
const WARNED: Duration = Duration::from_secs(1);
/// How long a delivery waits until it is written.
const WRITTEN: Duration = Duration::from_secs(5);
/// Nodes that deliver nothing for this long are forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60 * 60);

/// What is known of a node that delivers.
#[derive(Debug, Clone)]
struct NodeState {
    /// Up to where its spool was taken: another spool begins anew.
    taken: Taken,
    allowance: f64,
    seen: Instant,
    clock: NodeClock,
    warned: bool,
}

/// How the clock of a node compares with the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeClock {
    /// The server's clock minus the node's, in nanoseconds.
    pub offset: i64,
    /// How far that may be off, in nanoseconds.
    pub uncertainty: u32,
}

/// Takes spans of nodes.
pub struct Ingest {
    collector: CollectorHandle,
    placement: Placement,
    counters: Arc<IngestCounters>,
    /// Of this machine: agents on it have the same clock.
    boot: u128,
    nodes: Mutex<HashMap<String, NodeState>>,
    /// Nodes whose delivery is being taken: each has one at a time.
    busy: Mutex<HashSet<String>>,
}

/// A delivery that is being taken.
struct Turn<'a> {
    busy: &'a Mutex<HashSet<String>>,
    node: &'a str,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(self.node);
    }
}

/// The headers of a delivery.
struct Delivery {
    spool: u64,
    sequence: u64,
    clock: NodeClock,
    boot: u128,
}

impl Ingest {
    /// Takes spans into `collector`.
    pub fn new(collector: CollectorHandle, placement: Placement, counters: Arc<IngestCounters>) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot = Uid::of(boot.trim()).0;
        Self { collector, placement, counters, boot, nodes: Mutex::default(), busy: Mutex::default() }
    }

    /// Answers a delivery.
    pub async fn serve(
        &self,
        context: &Context,
        node: &str,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        if !may_deliver(&context.user, node) && !context.user.in_group(MASTERS) {
            let why = format!("User {:?} cannot deliver spans of node {node:?}", context.user.name);
            return Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")));
        }
        if context.header("content-type") != BLOCKS {
            return Err(ApiError::unsupported_media_type(format!("the body must be {BLOCKS}")));
        }
        let delivery = Delivery::read(context)?;
        let _turn = self.turn(node)?;
        let known = self.known(node, &delivery).await;
        if known.spool == delivery.spool && known.until >= delivery.sequence {
            return Ok(respond::json(200, &json!({"until": known.until})));
        }
        let mut records = records_of(&read(body).await?, &delivery, known)?;
        self.admit(node, &delivery, records.len())?;
        let foreign = self.placement.keep_own(node, &mut records).await;
        self.counters.rejected.fetch_add(foreign as u64, Ordering::Relaxed);
        if !records.is_empty() {
            let own_clock = delivery.boot == self.boot;
            let clock = if own_clock { NodeClock::default() } else { delivery.clock };
            let batch = Batch {
                node: node.to_owned(),
                offset: clock.offset,
                uncertainty: clock.uncertainty,
                boot: delivery.boot,
                blocks: encode(&records).into_iter().flat_map(|block| block.bytes).collect(),
                taken: delivery.taken(),
            };
            self.write(batch).await?;
            self.counters.records.fetch_add(records.len() as u64, Ordering::Relaxed);
        }
        self.taken(node, &delivery);
        Ok(respond::json(200, &json!({"until": delivery.sequence})))
    }

    /// Returns when a batch is where a crash of the server does not lose it. The node deletes its own copy then.
    async fn write(&self, batch: Batch) -> Result<(), ApiError> {
        let (sender, written) = oneshot::channel();
        let tell = move |is_written| {
            let _nobody_waits = sender.send(is_written);
        };
        self.collector.ingest(batch, tell).map_err(|error| refused(&error))?;
        match tokio::time::timeout(WRITTEN, written).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(ApiError::unavailable("the spans could not be written")),
            Ok(Err(_)) => Err(refused(&IngestError::Stopped)),
            Err(_) => Err(ApiError::unavailable("the spans were not written in time")),
        }
    }

    /// The turn of a node, or 429 while it has one.
    fn turn<'a>(&'a self, node: &'a str) -> Result<Turn<'a>, ApiError> {
        if !self.busy.lock().insert(node.to_owned()) {
            return Err(ApiError::too_many_requests("another delivery of the node is being taken", 1));
        }
        Ok(Turn { busy: &self.busy, node })
    }

    /// The clocks of nodes that deliver, by name.
    pub fn clocks(&self) -> Vec<(String, NodeClock)> {
        let mut clocks: Vec<_> =
            self.nodes.lock().iter().map(|(node, state)| (node.clone(), state.clock)).collect();
        clocks.sort_by(|(a, _), (b, _)| a.cmp(b));
        clocks
    }

    /// Up to where the spool of a node was taken. What a server before this one took is on disk.
    async fn known(&self, node: &str, delivery: &Delivery) -> Taken {
        if let Some(state) = self.nodes.lock().get(node) {
            return state.taken;
        }
        let (collector, name) = (self.collector.clone(), node.to_owned());
        let found = tokio::task::spawn_blocking(move || collector.taken(&name)).await;
        let taken = match found {
            Ok(Ok(taken)) => taken.unwrap_or_default(),
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(node, error, "it is not known which spans of the node were taken");
                Taken::default()
            }
            Err(_) => Taken::default(),
        };
        let state = NodeState::new(taken, delivery.clock);
        self.nodes.lock().entry(node.to_owned()).or_insert(state).taken
    }

    /// Counts records against the rate of the node, or 429.
    fn admit(&self, node: &str, delivery: &Delivery, count: usize) -> Result<(), ApiError> {
        let mut nodes = self.nodes.lock();
        let now = Instant::now();
        nodes.retain(|_, state| now.duration_since(state.seen) < FORGOTTEN);
        let new = || NodeState::new(Taken::default(), delivery.clock);
        let state = nodes.entry(node.to_owned()).or_insert_with(new);
        let earned = now.duration_since(state.seen).as_secs_f64() * RATE;
        state.allowance = (state.allowance + earned).min(BURST);
        state.seen = now;
        state.clock = delivery.clock;
        let far = delivery.clock.offset.unsigned_abs() > WARNED.as_nanos() as u64;
        if far && !state.warned {
            let seconds = delivery.clock.offset as f64 / 1e9;
            tracing::warn!(node, offset_seconds = seconds, "the clock of the node differs from the server's");
        }
        state.warned = far;
        let missing = count as f64 - state.allowance;
        if missing > 0.0 {
            let wait = (missing / RATE).ceil().max(1.0) as u32;
            return Err(ApiError::too_many_requests("the node delivers too many spans", wait));
        }
        state.allowance -= count as f64;
        Ok(())
    }

    fn taken(&self, node: &str, delivery: &Delivery) {
        if let Some(state) = self.nodes.lock().get_mut(node) {
            let known = if state.taken.spool == delivery.spool { state.taken.until } else { 0 };
            state.taken = Taken { until: known.max(delivery.sequence), ..delivery.taken() };
        }
    }
}

impl NodeState {
    fn new(taken: Taken, clock: NodeClock) -> Self {
        Self { taken, allowance: BURST, seen: Instant::now(), clock, warned: false }
    }
}

impl Delivery {
    /// Where it ends.
    fn taken(&self) -> Taken {
        Taken { spool: self.spool, until: self.sequence }
    }

    fn read(context: &Context) -> Result<Self, ApiError> {
        let position = context.header("coracle-spans").split_once(' ');
        let position = position
            .and_then(|(spool, sequence)| Some((spool.trim().parse().ok()?, sequence.trim().parse().ok()?)));
        let Some((spool, sequence)) = position else {
            return Err(ApiError::bad_request("Coracle-Spans must be `<spool id> <sequence>`"));
        };
        let mut clock = context.header("coracle-clock").split_whitespace();
        let mut parts = || {
            let (offset, uncertainty) = (clock.next()?.parse().ok()?, clock.next()?.parse().ok()?);
            Some((NodeClock { offset, uncertainty }, Uid::of(clock.next()?).0))
        };
        let Some((clock, boot)) = parts() else {
            return Err(ApiError::bad_request(
                "Coracle-Clock must be `<offset ns> <uncertainty ns> <boot id>`",
            ));
        };
        Ok(Self { spool, sequence, clock, boot })
    }
}

async fn read(body: RequestBody) -> Result<Bytes, ApiError> {
    let read = Limited::new(body, BODY).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return ApiError::too_large(format!("spans are taken in bodies of at most {BODY} bytes"));
        }
        ApiError::bad_request(format!("the body cannot be read: {error}"))
    })?;
    Ok(read.to_bytes())
}

fn records_of(body: &[u8], delivery: &Delivery, known: Taken) -> Result<Vec<StoredRecord>, ApiError> {
    let wrong = |error: BlockError| ApiError::bad_request(format!("the body is no list of blocks: {error}"));
    let mut records = Vec::new();
    for block in fresh(body, delivery, known).map_err(wrong)? {
        records.extend(block.short_records().map_err(wrong)?);
    }
    records.iter_mut().for_each(restrict);
    Ok(records)
}

/// The blocks of a body that were not taken before: an agent that has not heard of it sends them again, and what came since.
fn fresh(body: &[u8], delivery: &Delivery, known: Taken) -> Result<Vec<Block>, BlockError> {
    let mut blocks = Block::split(body)?;
    // A body is a piece of one segment: the upper half of a position is its number, the lower one the offset.
    let begin = delivery.sequence.checked_sub(body.len() as u64);
    let begin = begin.filter(|begin| begin >> 32 == delivery.sequence >> 32);
    if let Some(mut end) = begin.filter(|_| known.spool == delivery.spool) {
        blocks.retain(|block| {
            end += block.bytes.len() as u64;
            end > known.until
        });
    }
    Ok(blocks)
}

/// Takes from a record of a node what only the server says: how the trace is known and which one it is, and what terminals obey.
fn restrict(stored: &mut StoredRecord) {
    let record = &mut stored.record;
    record.flags = record.flags.without(Flags::REMOTE | Flags::SAMPLED | Flags::INFERRED);
    // That of the parent; a root gets one that a node cannot choose.
    let is_root = record.parent.is_none() && !record.subject.is_none();
    record.trace = match is_root {
        true => TraceId((record.subject.0 ^ u128::from(record.span.0)).max(1)),
        false => TraceId::NONE,
    };
    stored.details = None;
    if stored.text.chars().any(|c| c.is_control() && c != '\n') {
        let shown = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
        stored.text = stored.text.chars().map(shown).collect();
    }
}

fn refused(error: &IngestError) -> ApiError {
    match error {
        IngestError::Full => ApiError::too_many_requests(error.to_string(), 1),
        IngestError::Stopped => ApiError::unavailable(error.to_string()),
        IngestError::Block(_) => ApiError::bad_request(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_trace::{Moment, Record, SpanId, Stage};

    #[test]
    fn blocks_that_were_taken_are_not_taken_again() {
        let block = |text: &str| {
            let record = Record {
                stage: Stage::Image,
                flags: Flags::NONE,
                code: 0,
                span: SpanId(5),
                parent: SpanId::NONE,
                trace: TraceId::NONE,
                subject: Uid(7),
                revision: 3,
                start: Moment::MAX,
                duration: 1,
            };
            let (text, node) = (text.to_owned(), String::new());
            let stored = StoredRecord { record, start: 1, details: None, text, node, uncertainty: 0 };
            encode(&[stored]).remove(0).bytes
        };
        let (first, second) = (block("first"), block("the second"));
        let body = [first.clone(), second.clone()].concat();
        let begin = 9 << 32 | 640;
        let (clock, boot) = (NodeClock::default(), 1);
        let delivery = Delivery { spool: 4, sequence: begin + body.len() as u64, clock, boot };
        let taken = |spool, until| {
            let fresh = fresh(&body, &delivery, Taken { spool, until }).ok()?;
            Some(fresh.into_iter().map(|block| block.bytes).collect::<Vec<_>>())
        };
        let middle = begin + first.len() as u64;
        assert_eq!(taken(4, begin), Some(vec![first.clone(), second.clone()]));
        assert_eq!(taken(4, middle), Some(vec![second.clone()]));
        assert_eq!(taken(4, delivery.sequence), Some(Vec::new()));
        assert_eq!(taken(5, delivery.sequence), Some(vec![first, second]), "another spool");
    }

    #[test]
    fn what_only_the_server_says_is_taken_from_records_of_nodes() {
        let record = |parent| Record {
            stage: Stage::Exit,
            flags: Flags::REMOTE | Flags::SAMPLED | Flags::FAILED,
            code: 1,
            span: SpanId(5),
            parent,
            trace: TraceId(9),
            subject: Uid(7 << 64),
            revision: 3,
            start: Moment::MAX,
            duration: 1,
        };
        let restricted = |parent, text: &str| {
            let text = text.to_owned();
            let (record, node) = (record(parent), String::new());
            let mut stored = StoredRecord { record, start: 1, details: None, text, node, uncertainty: 0 };
            restrict(&mut stored);
            stored
        };
        let root = restricted(SpanId::NONE, "web\nerror\u{1b}[2J\r");
        assert_eq!((root.record.flags, root.text.as_str()), (Flags::FAILED, "web\nerror [2J "));
        assert_eq!(root.record.trace, TraceId(7 << 64 | 5));
        assert_eq!(restricted(SpanId(2), "").record.trace, TraceId::NONE);
    }
}
