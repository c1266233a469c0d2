//! Clients that write, replace, delete and read a few objects, all of them the same ones, and watchers that see it.

use coracle_tests::client::Target;
use coracle_tests::ha::dice::Dice;
use coracle_tests::ha::failover::{Answer, Failover, Unanswered};
use coracle_tests::ha::following::{Seen, follow, revision};
use coracle_tests::ha::history::{Call, Outcome, Recorder, Sight, Version, Watcher};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const NAMESPACE: &str = "ha";
pub const PATH: &str = "/api/v1/namespaces/ha/configmaps";
/// Objects: few enough that clients meet.
const KEYS: u64 = 60;
/// Between two requests of a client: the machine has other things to do.
const REST: Duration = Duration::from_millis(15);
/// After so many requests a client goes on to another server, on average.
const MOVE: u64 = 100;
const JSON: &str = "application/json";

/// What all clients share.
pub struct Load {
    pub recorder: Recorder,
    pub stop: AtomicBool,
    /// Ends watchers, which see the end of the load first.
    pub stop_watching: AtomicBool,
    next_value: AtomicU64,
    /// The version of each object that somebody saw last.
    known: Mutex<BTreeMap<u32, Version>>,
    pub watchers: Mutex<Vec<Watcher>>,
}

impl Load {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            recorder: Recorder::default(),
            stop: AtomicBool::new(false),
            stop_watching: AtomicBool::new(false),
            next_value: AtomicU64::new(1),
            known: Mutex::default(),
            watchers: Mutex::default(),
        })
    }

    /// The namespace and its objects, as far as they can be made.
    pub async fn prepare(targets: &Arc<Vec<Target>>) {
        let body = json!({"metadata": {"name": NAMESPACE}}).to_string();
        let made =
            Failover::new(targets.clone(), 0).write("POST", "/api/v1/namespaces", JSON, body.into()).await;
        assert!(made.as_ref().is_ok_and(|answer| answer.status == StatusCode::CREATED), "{made:?}");
    }

    /// One client, until it is told to stop.
    pub async fn write(self: Arc<Self>, targets: Arc<Vec<Target>>, client: u32, seed: u64) {
        let mut dice = Dice::of(seed, u64::from(client));
        let mut failover = Failover::new(targets, client as usize);
        while !self.stop.load(Ordering::Relaxed) {
            let key = dice.roll(KEYS) as u32;
            let call = self.choose(key, &mut dice);
            self.one(&mut failover, client, key, call).await;
            // Or all of them would end up at the server that has not failed yet.
            if dice.roll(MOVE) == 0 {
                failover.leave();
            }
            tokio::time::sleep(REST).await;
        }
    }

    /// What to ask for: mostly what should succeed, given what is known of the object.
    fn choose(&self, key: u32, dice: &mut Dice) -> Call {
        let known = self.known.lock().unwrap().get(&key).copied();
        let value = self.next_value.fetch_add(1, Ordering::Relaxed);
        match (known, dice.roll(10)) {
            (_, 0..=3) => Call::Read,
            (None, _) => Call::Create(value),
            (Some(_), 4) => Call::Create(value),
            (Some(version), 5) => Call::Delete(Some(version.revision)),
            (Some(_), 6) if dice.roll(4) == 0 => Call::Delete(None),
            (Some(version), _) => Call::Replace(version.revision, value),
        }
    }

    /// One request, recorded.
    pub async fn one(&self, failover: &mut Failover, client: u32, key: u32, call: Call) -> Outcome {
        let path = format!("{PATH}/k{key}");
        let id = self.recorder.invoked(client, key, call);
        let answer = match call {
            Call::Read => failover.read(&path).await,
            Call::Create(value) => {
                let body = object(key, value, None).to_string();
                failover.write("POST", PATH, JSON, body.into()).await
            }
            Call::Replace(revision, value) => {
                let body = object(key, value, Some(revision)).to_string();
                failover.write("PUT", &path, JSON, body.into()).await
            }
            Call::Delete(expected) => {
                let preconditions = expected.map(|revision| json!({"resourceVersion": revision.to_string()}));
                let body =
                    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions});
                failover.write("DELETE", &path, JSON, body.to_string().into()).await
            }
        };
        let server = match &answer {
            Ok(Answer { server, .. }) | Err(Unanswered::Unknown(server)) => *server,
            Err(Unanswered::NotSent) => failover.server(),
        };
        let outcome = outcome(call, answer);
        if outcome == Outcome::NotSent {
            failover.leave();
        }
        self.recorder.returned(id, server as u32, outcome);
        self.learn(key, call, outcome);
        outcome
    }

    fn learn(&self, key: u32, call: Call, outcome: Outcome) {
        let mut known = self.known.lock().unwrap();
        match (call.value(), outcome) {
            (_, Outcome::Found(Some(version))) => {
                known.insert(key, version);
            }
            (Some(value), Outcome::Written(revision)) => {
                known.insert(key, Version { value, revision });
            }
            (_, Outcome::Found(None) | Outcome::Missing | Outcome::Deleted) => {
                known.remove(&key);
            }
            _ => {}
        }
    }

    /// One watcher, which begins at a server.
    pub async fn watch(self: Arc<Self>, targets: Arc<Vec<Target>>, number: usize) {
        let place = {
            let mut watchers = self.watchers.lock().unwrap();
            watchers.push(Watcher { name: format!("w{number}"), sights: Vec::new() });
            watchers.len() - 1
        };
        let client = Failover::new(targets, number);
        follow(client, PATH, &self.stop_watching, |seen| {
            if let Some(sight) = sight(seen) {
                self.watchers.lock().unwrap()[place].sights.push(sight);
            }
        })
        .await;
    }
}

/// What an answer means.
fn outcome(call: Call, answer: Result<Answer, Unanswered>) -> Outcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(Unanswered::NotSent) => return Outcome::NotSent,
        Err(Unanswered::Unknown(_)) => return Outcome::Unknown,
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    match (call, answer.status) {
        (Call::Read, StatusCode::OK) => Outcome::Found(version(&body).map(|(_, version)| version)),
        (Call::Read, StatusCode::NOT_FOUND) => Outcome::Found(None),
        (Call::Create(_) | Call::Replace(..), StatusCode::OK | StatusCode::CREATED) => {
            Outcome::Written(revision(&body))
        }
        (Call::Delete(_), StatusCode::OK) => Outcome::Deleted,
        (_, StatusCode::CONFLICT) => Outcome::Conflict,
        // A server whose clock is wrong may not believe a certificate; nothing happened.
        (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Outcome::NotSent,
        (Call::Replace(..) | Call::Delete(_), StatusCode::NOT_FOUND) => Outcome::Missing,
        (_, status) => panic!("{call:?}: {status} {body}"),
    }
}

fn object(key: u32, value: u64, revision: Option<u64>) -> Value {
    let revision = revision.map(|revision| revision.to_string());
    json!({"metadata": {"name": format!("k{key}"), "resourceVersion": revision}, "data": {"value": value.to_string()}})
}

/// Key and version of an object of the load; others, such as the certificate of the cluster, are none.
pub fn version(object: &Value) -> Option<(u32, Version)> {
    let key = object["metadata"]["name"].as_str()?.strip_prefix('k')?.parse().ok()?;
    let value = object["data"]["value"].as_str()?.parse().ok()?;
    Some((key, Version { value, revision: revision(object) }))
}

fn sight(seen: Seen) -> Option<Sight> {
    Some(match seen {
        Seen::Listed(revision, objects) => {
            Sight::Listed { revision, objects: objects.iter().filter_map(version).collect() }
        }
        Seen::Connected(server, from) => Sight::Connected { server: server as u32, from },
        Seen::Bookmark(revision) => Sight::Bookmark(revision),
        Seen::Event(change, object) => {
            let (key, version) = version(&object)?;
            Sight::Event { change, key, version }
        }
    })
}

/// Everything that is there, as one server lists it.
pub async fn listed(targets: &Arc<Vec<Target>>, server: usize) -> Option<BTreeMap<u32, Version>> {
    let answer = Failover::new(targets.clone(), server).read(PATH).await.ok()?;
    let list: Value = serde_json::from_slice(&answer.body).ok()?;
    let objects = list["items"].as_array()?.iter().filter_map(version).collect();
    (answer.server == server).then_some(objects)
}
