//! The timeline under `kill -9`: every create that was acknowledged has its write in it, once, whatever the server was doing.

use crate::dice::{Dice, rounds};
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const ROUNDS: u64 = 10;
const WRITERS: u64 = 4;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Name and revision of what was acknowledged.
type Made = Arc<Mutex<Vec<(String, u64)>>>;

#[test]
fn a_killed_server_has_every_write_in_its_timeline() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(rounds_of(rounds(ROUNDS)));
}

async fn rounds_of(rounds: u64) {
    let mut server = Server::with(&["--api-only"]);
    let target = Target::new(server.data_dir(), &server.url()).unwrap();
    let mut dice = Dice::new(7);
    let mut writes = 0;
    for round in 0..rounds {
        let made = Made::default();
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(create(target.clone(), format!("r{round}-w{writer}"), made.clone()));
        }
        let enough = 1 + dice.roll(40) as usize;
        while made.lock().unwrap().len() < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_micros(dice.roll(5_000))).await;
        server.kill();
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        // Sometimes it dies again while it reads what the one before it left, and at least once.
        if round == rounds / 2 || dice.roll(4) == 0 {
            server.start_and_kill(Duration::from_micros(dice.roll(150_000)));
        }
        server.restart();
        let made = std::mem::take(&mut *made.lock().unwrap());
        writes += made.len();
        check(&target, &made, round).await;
    }
    println!("{rounds} rounds, {writes} writes");
}

/// Creates objects until the server is gone.
async fn create(target: Target, prefix: String, made: Made) {
    let Ok(mut connection) = target.connect().await else { return };
    for n in 0.. {
        let name = format!("{prefix}-{n}");
        let body = json!({"metadata": {"name": name}}).to_string();
        let Ok(response) = connection.open("POST", MAPS, body.into()).await else { return };
        let status = response.status();
        let Ok(body) = response.into_body().collect().await else { return };
        let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        assert!(status.is_success(), "{status} {body}");
        let revision = body["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        made.lock().unwrap().push((name, revision));
    }
}

async fn check(target: &Target, made: &[(String, u64)], round: u64) {
    let mut connection = target.connect().await.unwrap();
    for (name, revision) in made {
        let path = format!("/coracle/v1/trace?resource=configmaps&namespace=default&name={name}");
        let answer = connection.call("GET", &path, Bytes::new()).await;
        let answer = answer.unwrap_or_else(|error| panic!("round {round}, {name}: {error}"));
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let spans = answer["spans"].as_array().unwrap();
        let writes: Vec<&Value> = spans.iter().filter(|span| span["stage"] == "write").collect();
        let [write] = writes.as_slice() else { panic!("round {round}, {name}: {answer:#}") };
        assert_eq!(write["revision"], *revision, "round {round}, {name}");
        // It may have been killed before the request was over, never before the write was.
        let flags = write["flags"].to_string();
        assert!(!flags.contains("unfinished") && !write["end"].is_null(), "round {round}, {name}: {write}");
    }
}
