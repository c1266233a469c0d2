//! Priority and fairness: every request belongs to a flow of a priority level; a level runs so many at a time, the rest
//! waits in queues that flows share by lot, and whoever floods waits behind itself.

// Which flow a request belongs to.
mod schema;
// One level: seats, queues, whose turn it is.
mod level;

use crate::api::Api;
use crate::request_info::RequestInfo;
use coracle_client::user::User;
use coracle_proto::status::ApiError;
use level::{Asked, Level};
use parking_lot::Mutex;
use schema::{LevelWire, Schema, SchemaWire};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// How long a request waits for its turn.
const WAIT: Duration = Duration::from_secs(15);

/// Limits when there are no queues.
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
    schemas: Arc<Vec<Schema>>,
    levels: HashMap<String, Level>,
    reading: usize,
    writing: usize,
}

/// The filter.
#[derive(Clone)]
pub struct Flow {
    api: Arc<Api>,
    limits: Limits,
    state: Arc<Mutex<State>>,
}

/// The right to run; given back when dropped.
pub struct Permit {
    state: Arc<Mutex<State>>,
    what: Held,
    /// Uids of schema and level, for the headers of the answer.
    pub uids: Option<(String, String)>,
}

#[cfg(test)]
impl Permit {
    /// One that is given back to nobody.
    pub fn of_nothing() -> Self {
        Self { state: Arc::default(), what: Held::Nothing, uids: None }
    }
}

enum Held {
    Nothing,
    Seat(String),
    Reading,
    Writing,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        match &self.what {
            Held::Nothing => {}
            Held::Reading => state.reading -= 1,
            Held::Writing => state.writing -= 1,
            Held::Seat(level) => {
                if let Some(level) = state.levels.get_mut(level) {
                    level.leave();
                }
                state.dispatch();
            }
        }
    }
}

impl State {
    /// Lets those in whose turn it is: first within every level's own seats, then on seats that other levels do not need.
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
                let admitted = self.levels.get_mut(name).is_some_and(Level::admit_next);
                spare -= usize::from(admitted);
                admitted
            });
        }
    }

    /// Seats that levels lend and do not use themselves, less those that are lent already.
    fn spare(&self) -> usize {
        let lendable: usize = self.levels.values().map(Level::lendable).sum();
        let borrowed: usize = self.levels.values().map(Level::borrowed).sum();
        lendable.saturating_sub(borrowed)
    }
}

fn too_many() -> ApiError {
    let mut error = ApiError::new(429, "TooManyRequests", "Too many requests, please try again later.");
    error.details.retry_after = 1;
    error
}

impl Flow {
    /// On the flow schemas and levels of a server.
    pub fn new(api: Arc<Api>, limits: Limits) -> Self {
        Self { api, limits, state: Arc::default() }
    }

    /// Waits for the request's turn; 429 when the queue is full or the turn does not come in time.
    pub async fn admit(&self, user: &User, info: &RequestInfo) -> Result<Permit, ApiError> {
        if !self.limits.fair {
            return self.count(info);
        }
        let (schema, waiter) = {
            let mut state = self.state.lock();
            self.refresh(&mut state);
            let Some(schema) = state.schemas.iter().find(|schema| schema.matches(user, info)).cloned() else {
                // No schema at all: the cluster is still being made.
                return Ok(self.permit(Held::Nothing, None));
            };
            let spare = state.spare();
            let uid = state.levels.get(&schema.level).map(|level| level.uid.clone()).unwrap_or_default();
            let Some(level) = state.levels.get_mut(&schema.level) else {
                return Ok(self.permit(Held::Nothing, None));
            };
            let uids = Some((schema.uid.clone(), uid));
            match level.ask(schema.flow(user, info), spare) {
                Asked::Exempt => return Ok(self.permit(Held::Nothing, uids)),
                Asked::Seat => return Ok(self.permit(Held::Seat(schema.level), uids)),
                Asked::Full => return Err(too_many()),
                Asked::Wait(waiter) => ((schema, uids), waiter),
            }
        };
        let (schema, uids) = schema;
        // Dropped while waiting: whoever lets it in later gives the seat back at once.
        let place = Waiting { flow: self, level: &schema.level, waiter: Some(waiter) };
        place.turn().await.map(|()| self.permit(Held::Seat(schema.level.clone()), uids))
    }

    fn permit(&self, what: Held, uids: Option<(String, String)>) -> Permit {
        Permit { state: self.state.clone(), what, uids }
    }

    fn count(&self, info: &RequestInfo) -> Result<Permit, ApiError> {
        let mut state = self.state.lock();
        let reads = matches!(info.verb.as_str(), "get" | "list" | "watch" | "head" | "options");
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
        Ok(self.permit(if reads { Held::Reading } else { Held::Writing }, None))
    }

    /// Reads schemas and levels again when one changed.
    fn refresh(&self, state: &mut State) {
        let cache = |plural: &str| {
            let kind = self.api.registry.preferred(GROUP, plural)?;
            self.api.cache(&kind).ok()
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
        let wires: Vec<(String, String, LevelWire)> = levels
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
        let mut list: Vec<Schema> = schemas
            .list(None)
            .iter()
            .map(|o| Schema::new(&o.meta.name, &o.meta.uid, o.typed::<SchemaWire>().unwrap_or_default()))
            .collect();
        list.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        state.schemas = Arc::new(list);
        state.dispatch();
    }
}

/// A place in a queue.
struct Waiting<'a> {
    flow: &'a Flow,
    level: &'a str,
    waiter: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl Waiting<'_> {
    async fn turn(mut self) -> Result<(), ApiError> {
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
        let Some(mut waiter) = self.waiter.take() else { return };
        let mut state = self.flow.state.lock();
        // Let in between the last look and now: the seat is given back.
        waiter.close();
        if waiter.try_recv().is_ok() {
            if let Some(level) = state.levels.get_mut(self.level) {
                level.leave();
            }
            state.dispatch();
        }
    }
}
