//! API priority and fairness: every request belongs to a flow of a priority level. A level executes a limited number of
//! requests; the others wait in queues that are assigned to flows by shuffle sharding, so that a flow with many
//! requests mostly delays itself.

// FlowSchemas.
mod flow_schema;
// Priority levels: seats and queues.
mod priority_level;
// Metrics of requests by schema and level.
mod metrics;

use crate::objects::Objects;
use crate::request_info::RequestInfo;
use coracle_client::diagnostics::MetricsSource;
use coracle_client::user::User;
use coracle_proto::exposition::Page;
use coracle_proto::status::ApiError;
use coracle_trace::{RequestMark, Sum, add, mark};
use flow_schema::{FlowSchema, FlowSchemaWire, PriorityLevelWire};
use metrics::{FlowMetrics, Labels, Rejection};
use parking_lot::Mutex;
use priority_level::{PriorityLevel, QueuedRequest, SeatOutcome};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// Maximum time in a queue.
const WAIT: Duration = Duration::from_secs(15);

/// Concurrency limits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests that change nothing.
    pub reading: usize,
    /// Requests that change something.
    pub writing: usize,
    /// Whether flows have queues.
    pub fair: bool,
}

#[derive(Default)]
struct State {
    at: (u64, u64),
    schemas: Arc<Vec<FlowSchema>>,
    levels: HashMap<String, PriorityLevel>,
    reading: usize,
    writing: usize,
    metrics: FlowMetrics,
}

/// The filter.
#[derive(Clone)]
pub struct FlowControl {
    objects: Arc<Objects>,
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// A seat of a running request, released on drop.
pub struct Permit {
    state: Arc<Mutex<State>>,
    what: PermitKind,
    flow: Option<Arc<Labels>>,
    /// Uids of schema and level, for the headers of the answer.
    pub uids: Option<(String, String)>,
}

#[cfg(test)]
impl Permit {
    /// A permit that holds no seat.
    pub fn exempt() -> Self {
        Self { state: Arc::default(), what: PermitKind::Exempt, flow: None, uids: None }
    }
}

enum PermitKind {
    Exempt,
    Seat,
    Reading,
    Writing,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(flow) = &self.flow {
            state.metrics.ended(flow);
        }
        match (&self.what, &self.flow) {
            (PermitKind::Reading, _) => state.reading -= 1,
            (PermitKind::Writing, _) => state.writing -= 1,
            (PermitKind::Seat, Some(flow)) => state.release_seat(flow),
            (PermitKind::Exempt, _) | (PermitKind::Seat, None) => {}
        }
    }
}

impl State {
    /// Ends a request of a flow that had a seat.
    fn release_seat(&mut self, flow: &Labels) {
        if let Some(level) = self.levels.get_mut(&flow.level) {
            level.release_seat();
        }
        self.dispatch();
    }

    /// Starts queued requests: first on every level's own seats, then on seats that other levels lend.
    fn dispatch(&mut self) {
        for level in self.levels.values_mut() {
            while level.has_seat() && level.admit_next() {}
        }
        let mut spare = self.spare();
        let mut names: Vec<String> = self
            .levels
            .iter()
            .filter(|(_, level)| level.waiting() > 0)
            .map(|(name, _)| name.clone())
            .collect();
        names.sort();
        while spare > 0 && !names.is_empty() {
            names.retain(|name| {
                if spare == 0 {
                    return false;
                }
                let admitted = self.levels.get_mut(name).is_some_and(PriorityLevel::admit_next);
                spare -= usize::from(admitted);
                admitted
            });
        }
    }

    /// Seats that levels lend and do not use themselves, less those that are lent already.
    fn spare(&self) -> usize {
        let lendable: usize = self.levels.values().map(PriorityLevel::lendable).sum();
        let borrowed: usize = self.levels.values().map(PriorityLevel::borrowed).sum();
        lendable.saturating_sub(borrowed)
    }
}

fn too_many() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.details.retry_after = 1;
    error
}

impl FlowControl {
    /// On the flow schemas and levels of a server.
    pub fn new(objects: Arc<Objects>, limits: Limits) -> Self {
        Self { objects, limits, state: Arc::default() }
    }

    /// Waits for a seat; 429 if the queue is full or the wait times out.
    pub async fn admit(&self, user: &User, info: &RequestInfo) -> Result<Permit, ApiError> {
        if !self.limits.fair {
            return self.count(info);
        }
        let (flow, uids, waiter) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            self.refresh(state);
            let Some(schema) = state.schemas.iter().find(|schema| schema.matches(user, info)).cloned() else {
                // No schema at all: the cluster is still being made.
                return Ok(self.uncounted(PermitKind::Exempt));
            };
            let spare = state.spare();
            let flow = schema.labels.clone();
            let Some(level) = state.levels.get_mut(&flow.level) else {
                return Ok(self.uncounted(PermitKind::Exempt));
            };
            let uids = (schema.uid.clone(), level.uid.clone());
            match level.request_seat(schema.flow(user, info), spare) {
                SeatOutcome::Exempt => return Ok(self.permit(state, PermitKind::Exempt, flow, uids)),
                SeatOutcome::Seat => return Ok(self.permit(state, PermitKind::Seat, flow, uids)),
                SeatOutcome::Full => {
                    let queues = level.has_queues();
                    let why = if queues { Rejection::QueueFull } else { Rejection::ConcurrencyLimit };
                    state.metrics.rejected(&flow, why);
                    return Err(too_many());
                }
                SeatOutcome::Wait(QueuedRequest { seat, length }) => {
                    state.metrics.queued(&flow, length);
                    (flow, uids, seat)
                }
            }
        };
        // Dropped while waiting: whoever lets it in later gives the seat back at once.
        let place = Waiting { control: self, flow: &flow, waiter: Some(waiter) };
        let begun = Instant::now();
        let outcome = place.wait().await;
        add(Sum::FlowQueue, begun.elapsed());
        mark(RequestMark::Seated);
        let mut state = self.state.lock();
        match outcome {
            Ok(()) => Ok(self.permit(&mut state, PermitKind::Seat, flow, uids)),
            Err(error) => {
                state.metrics.rejected(&flow, Rejection::TimeOut);
                Err(error)
            }
        }
    }

    /// A permit of a request of a flow.
    fn permit(
        &self,
        state: &mut State,
        what: PermitKind,
        flow: Arc<Labels>,
        uids: (String, String),
    ) -> Permit {
        state.metrics.begun(&flow);
        Permit { state: self.state.clone(), what, flow: Some(flow), uids: Some(uids) }
    }

    /// A permit of a request that belongs to no flow.
    fn uncounted(&self, what: PermitKind) -> Permit {
        Permit { state: self.state.clone(), what, flow: None, uids: None }
    }

    fn count(&self, info: &RequestInfo) -> Result<Permit, ApiError> {
        let mut state = self.state.lock();
        let reads = info.verb.reads();
        let (now, limit) = if reads {
            (&mut state.reading, self.limits.reading)
        } else {
            (&mut state.writing, self.limits.writing)
        };
        if *now >= limit {
            return Err(too_many());
        }
        *now += 1;
        drop(state);
        Ok(self.uncounted(if reads { PermitKind::Reading } else { PermitKind::Writing }))
    }

    /// Reads schemas and levels again when one changed.
    fn refresh(&self, state: &mut State) {
        let cache = |plural: &str| {
            let kind = self.objects.registry.preferred(GROUP, plural)?;
            self.objects.cache(&kind).ok()
        };
        let (Some(schemas), Some(levels)) = (cache("flowschemas"), cache("prioritylevelconfigurations"))
        else {
            return;
        };
        let at = (schemas.newest(), levels.newest());
        if state.at == at && state.at != (0, 0) {
            return;
        }
        state.at = at;
        let wires: Vec<(String, String, PriorityLevelWire)> = levels
            .list(None)
            .iter()
            .map(|o| (o.meta.name.clone(), o.meta.uid.clone(), o.typed().unwrap_or_default()))
            .collect();
        let shares: i64 = wires.iter().map(|(_, _, wire)| wire.shares()).sum();
        let total = (self.limits.reading + self.limits.writing) as i64;
        state.levels.retain(|name, level| wires.iter().any(|(n, _, _)| n == name) || level.busy());
        for (name, uid, wire) in wires {
            let seats = if shares == 0 { total } else { (total * wire.shares() + shares - 1) / shares };
            let level = state.levels.entry(name).or_default();
            level.uid = uid;
            level.configure(&wire, usize::try_from(seats).unwrap_or(0));
        }
        let mut list: Vec<FlowSchema> = schemas
            .list(None)
            .iter()
            .map(|o| {
                FlowSchema::new(&o.meta.name, &o.meta.uid, o.typed::<FlowSchemaWire>().unwrap_or_default())
            })
            .collect();
        list.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        state.metrics.set_schemas(list.iter().map(|schema| schema.labels.clone()));
        state.schemas = Arc::new(list);
        state.dispatch();
    }
}

impl MetricsSource for FlowControl {
    fn render(&self, page: &mut Page) {
        self.state.lock().metrics.render(page);
    }
}

/// A queued request.
struct Waiting<'a> {
    control: &'a FlowControl,
    flow: &'a Arc<Labels>,
    waiter: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Waiting<'_> {
    async fn wait(mut self) -> Result<(), ApiError> {
        let Some(waiter) = self.waiter.as_mut() else { return Err(too_many()) };
        match tokio::time::timeout(WAIT, waiter).await {
            Ok(Ok(())) => {
                self.waiter = None;
                Ok(())
            }
            _ => Err(too_many()),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.control.state.lock();
        state.metrics.left_queue(self.flow);
        let Some(mut waiter) = self.waiter.take() else { return };
        // Let in between the last look and now: the seat is given back.
        waiter.close();
        if waiter.try_recv().is_ok() {
            state.release_seat(self.flow);
        }
    }
}
