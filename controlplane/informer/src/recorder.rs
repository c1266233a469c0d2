//! Events on their way to the store: decided on one by one, written many at a time, after what is more urgent.

use super::events::{Correlator, Note, Write};
use super::resource::namespace_is_ending;
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

/// Where notes go; they are written by a task of their own and never hold anybody up.
#[derive(Clone)]
pub struct Recorder {
    notes: mpsc::Sender<Note>,
}

impl Recorder {
    /// A recorder and what makes the task that writes for it. `events` must be the core kind `events`.
    pub fn new(component: &'static str, events: Writer) -> (Self, Task) {
        Self::with_room(component, events, 1000, Arc::default())
    }

    /// A recorder for one who says very much at once. While it is `busy` with what is more urgent, its notes wait,
    /// though not for long.
    pub fn patient(component: &'static str, events: Writer, busy: Arc<AtomicBool>) -> (Self, Task) {
        Self::with_room(component, events, 1 << 16, busy)
    }

    fn with_room(
        component: &'static str,
        events: Writer,
        room: usize,
        busy: Arc<AtomicBool>,
    ) -> (Self, Task) {
        let (notes, incoming) = mpsc::channel(room);
        // A task that is started again goes on with the notes that wait.
        let (events, incoming) = (Arc::new(events), Arc::new(tokio::sync::Mutex::new(incoming)));
        let task = move || {
            let (events, incoming, busy) = (events.clone(), incoming.clone(), busy.clone());
            let record = async move { record(component, &events, &mut *incoming.lock().await, busy).await };
            Box::pin(record) as BoxFuture<'static, ()>
        };
        (Self { notes }, Box::new(task))
    }

    /// Says something; dropped when too much is waiting.
    pub fn send(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            tracing::debug!("an event was dropped: too many at once");
        }
    }
}

/// Makes the task that writes; it ends when nobody can say anything any more.
pub type Task = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What writes events.
pub struct Writer {
    /// The identity.
    pub client: Client,
    /// The core kind `events`.
    pub kind: Arc<Kind>,
}

/// Notes that are written together.
const TOGETHER: usize = 64;
/// How long notes wait for more urgent writes.
const PATIENCE: Duration = Duration::from_secs(2);

async fn record(
    component: &'static str,
    events: &Writer,
    incoming: &mut mpsc::Receiver<Note>,
    busy: Arc<AtomicBool>,
) {
    let mut correlator = Correlator::default();
    let (mut serial, mut notes) = (0, Vec::new());
    let mut waits_since = None;
    while incoming.recv_many(&mut notes, TOGETHER).await > 0 {
        give_way(&busy, &mut waits_since).await;
        let mut new = Vec::new();
        for note in notes.drain(..) {
            serial += 1;
            match correlator.decide(&note, component, serial, Timestamp::now()) {
                Write::Drop => {}
                Write::Create(namespace, body) => new.push((note, namespace, body)),
                Write::Bump(event, patch) => {
                    // The one to be counted up may be among those.
                    create(events, &mut correlator, std::mem::take(&mut new)).await;
                    let (client, patch) = (&events.client, Patch::Merge(patch));
                    let bumped = client.patch(&events.kind, &event.namespace, &event.name, "", patch).await;
                    settle(&mut correlator, &note, bumped);
                }
            }
        }
        create(events, &mut correlator, new).await;
    }
}

/// Lets more urgent writes go first; `since` is when that began, until there were none.
async fn give_way(busy: &AtomicBool, since: &mut Option<Instant>) {
    while busy.load(Ordering::Relaxed) {
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *since = None;
}

async fn create(events: &Writer, correlator: &mut Correlator, new: Vec<(Note, String, Value)>) {
    let mut created = Vec::new();
    for (note, namespace, body) in new {
        created.push(async move { (note, events.client.create(&events.kind, &namespace, body).await) });
    }
    for (note, result) in join_all(created).await {
        settle(correlator, &note, result);
    }
}

fn settle(correlator: &mut Correlator, note: &Note, result: Result<Arc<Object>, ApiError>) {
    let Err(error) = result else { return };
    correlator.forget(note);
    if !namespace_is_ending(&error) {
        tracing::debug!(%error, "an event was not written");
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
        let say =
            |reason, message: String| Note::new(("v1", "Pod"), &about, Severity::Normal, reason, message);
        let count = |c: &Cluster, reason: &str| -> i64 {
            let events = c.list("events", "default").into_iter().filter(|e| e["reason"] == reason);
            events.map(|e| e["count"].as_i64().unwrap_or(0)).sum()
        };
        let (client, busy) = (&cluster.client, Arc::new(AtomicBool::new(true)));
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let (recorder, task) = Recorder::patient("me", writer, busy.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(task());
        // The second of the same finds the first in the same batch.
        for message in ["a", "b", "a"] {
            recorder.send(say("Early", message.to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(count(&cluster, "Early"), 0, "they wait");
        busy.store(false, Ordering::Relaxed);
        cluster.until("three, one of them twice", |c| count(c, "Early") == 3).await;
        busy.store(true, Ordering::Relaxed);
        recorder.send(say("Late", "c".to_owned()));
        cluster.until("patience has an end", |c| count(c, "Late") == 1).await;
    }
}
