//! The event recorder: correlates Events and writes them in batches, in a task of its own.

use super::events::{Correlator, EventDraft, Write};
use coracle_cli::causes;
use coracle_client::Client;
use coracle_client::patch::Patch;
use coracle_kinds::object::Object;
use coracle_kinds::registry::kinds::Kind;
use coracle_proto::status::ApiError;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Records Events. Never blocks: a background task writes them.
#[derive(Clone)]
pub struct Recorder {
    drafts: mpsc::Sender<EventDraft>,
}

impl Recorder {
    /// A recorder and the constructor of its background task.
    pub fn new(component: &'static str, events: Writer) -> (Self, Task) {
        Self::with_capacity(component, events, 1000, Arc::default())
    }

    /// A recorder with a large buffer. While `busy` is set, its writes are delayed by two seconds at most.
    pub fn low_priority(component: &'static str, events: Writer, busy: Arc<AtomicBool>) -> (Self, Task) {
        Self::with_capacity(component, events, 1 << 16, busy)
    }

    fn with_capacity(
        component: &'static str,
        events: Writer,
        capacity: usize,
        busy: Arc<AtomicBool>,
    ) -> (Self, Task) {
        let (drafts, incoming) = mpsc::channel(capacity);
        // A restarted task continues with the buffered Events.
        let (events, incoming) = (Arc::new(events), Arc::new(tokio::sync::Mutex::new(incoming)));
        let task = move || {
            let (events, incoming, busy) = (events.clone(), incoming.clone(), busy.clone());
            let record = async move { record(component, &events, &mut *incoming.lock().await, busy).await };
            Box::pin(record) as BoxFuture<'static, ()>
        };
        (Self { drafts }, Box::new(task))
    }

    /// Records an Event; dropped when the buffer is full.
    pub fn send(&self, draft: EventDraft) {
        if self.drafts.try_send(draft).is_err() {
            tracing::debug!("event dropped: the buffer is full");
        }
    }
}

/// Creates the background task; it ends when all recorders are dropped.
pub type Task = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The client and kind that Events are written with.
pub struct Writer {
    /// The client of the component.
    pub client: Client,
    /// The core kind `events`.
    pub kind: Arc<Kind>,
}

/// Events per batch.
const BATCH: usize = 64;
/// Longest delay while the component is busy.
const MAX_DELAY: Duration = Duration::from_secs(2);

async fn record(
    component: &'static str,
    events: &Writer,
    incoming: &mut mpsc::Receiver<EventDraft>,
    busy: Arc<AtomicBool>,
) {
    let mut correlator = Correlator::default();
    let (mut serial, mut drafts) = (0, Vec::new());
    let mut waits_since = None;
    while incoming.recv_many(&mut drafts, BATCH).await > 0 {
        wait_while_busy(&busy, &mut waits_since).await;
        let mut new = Vec::new();
        for draft in drafts.drain(..) {
            serial += 1;
            match correlator.decide(&draft, component, serial, Timestamp::now()) {
                Write::Drop => {}
                Write::Create(namespace, body) => new.push((draft, namespace, body)),
                Write::Increment(event, patch) => {
                    // The Event to increment may be among those.
                    create(events, &mut correlator, std::mem::take(&mut new)).await;
                    let (client, patch) = (&events.client, Patch::Merge(patch));
                    let bumped = client.patch(&events.kind, &event.namespace, &event.name, "", patch).await;
                    handle_result(&mut correlator, &draft, bumped);
                }
            }
        }
        create(events, &mut correlator, new).await;
    }
}

/// Waits while the component is busy, at most [`MAX_DELAY`]; `since` is when the waiting began.
async fn wait_while_busy(busy: &AtomicBool, since: &mut Option<Instant>) {
    while busy.load(Ordering::Relaxed) {
        if since.get_or_insert_with(Instant::now).elapsed() > MAX_DELAY {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *since = None;
}

async fn create(events: &Writer, correlator: &mut Correlator, new: Vec<(EventDraft, String, Value)>) {
    let mut created = Vec::new();
    for (draft, namespace, body) in new {
        created.push(async move { (draft, events.client.create(&events.kind, &namespace, body).await) });
    }
    for (draft, result) in join_all(created).await {
        handle_result(correlator, &draft, result);
    }
}

fn handle_result(correlator: &mut Correlator, draft: &EventDraft, result: Result<Arc<Object>, ApiError>) {
    let Err(error) = result else { return };
    correlator.forget(draft);
    if !error.is_namespace_terminating() {
        tracing::debug!(error = %causes::chain(&error), "cannot write event");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Severity;
    use coracle_kinds::object::testing::object;
    use coracle_testing::Cluster;
    use serde_json::json;
    use tokio::task::JoinSet;

    #[tokio::test(flavor = "multi_thread")]
    async fn notes_wait_for_what_is_urgent_and_are_counted_in_order() {
        let cluster = Cluster::bare().await;
        let about = object(json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}}));
        let say = |reason, message: String| {
            EventDraft::new(("v1", "Pod"), &about, Severity::Normal, reason, message)
        };
        let count = |c: &Cluster, reason: &str| -> i64 {
            let events = c.list("events", "default").into_iter().filter(|e| e["reason"] == reason);
            events.map(|e| e["count"].as_i64().unwrap_or(0)).sum()
        };
        let (client, busy) = (&cluster.client, Arc::new(AtomicBool::new(true)));
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let (recorder, task) = Recorder::low_priority("me", writer, busy.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(task());
        let sent = Instant::now();
        // The second of the same finds the first in the same batch.
        for message in ["a", "b", "a"] {
            recorder.send(say("Early", message.to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        let written = count(&cluster, "Early");
        assert!(written == 0 || sent.elapsed() > MAX_DELAY, "they wait");
        busy.store(false, Ordering::Relaxed);
        cluster.until("three, one of them twice", |c| count(c, "Early") == 3).await;
        busy.store(true, Ordering::Relaxed);
        recorder.send(say("Late", "c".to_owned()));
        cluster.until("patience has an end", |c| count(c, "Late") == 1).await;
    }
}
