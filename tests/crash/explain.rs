//! The timeline under `kill -9`: every create that was acknowledged has its write in it, once, whatever the server was doing, and what
//! was under way is marked.

use crate::dice::{Dice, rounds};
use bytes::Bytes;
use coracle_tests::caller::Caller;
use coracle_tests::client::Target;
use coracle_tests::server::Server;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

const ROUNDS: u64 = 10;
const WRITERS: u64 = 4;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// Within this time a webhook is called.
const CALL: Duration = Duration::from_secs(5);

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

/// Whoever connects to a webhook that never answers, and its URL.
fn silent_webhook() -> (Receiver<TcpStream>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let (sender, connections) = channel();
    std::thread::spawn(move || listener.incoming().flatten().try_for_each(|stream| sender.send(stream)));
    (connections, url)
}

/// Creates Secrets until the webhook is asked about one; that, its trace, and the connection, while the request waits.
fn wait_for_webhook(admin: &Caller, connections: &Receiver<TcpStream>) -> (String, String, TcpStream) {
    for number in 1..20_u128 {
        let (name, trace) = (format!("cut-{number}"), format!("{number:032x}"));
        let caller = admin.header(&format!("traceparent: 00-{trace}-00f067aa0ba902b7-01"));
        let secret = json!({"metadata": {"name": name}});
        let request = std::thread::spawn(move || caller.send("POST", SECRETS, Some(&secret)));
        if let Ok(connection) = connections.recv_timeout(CALL) {
            return (name, trace, connection);
        }
        // The configuration did not count yet.
        request.join().unwrap();
    }
    panic!("the webhook is not called")
}

#[test]
fn what_was_under_way_is_marked_and_not_said_to_be_done() {
    let (connections, url) = silent_webhook();
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]});
    let hook = json!({"name": "silent.example.com", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 30,
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": url}, "rules": [rule]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    admin.create(hooks, &json!({"metadata": {"name": "silent"}, "webhooks": [hook]}));
    let (name, trace, _connection) = wait_for_webhook(&admin, &connections);
    server.kill();
    server.restart();
    let admin = Caller::admin(&server);
    let (code, answer) = admin.get(&format!("/coracle/v1/trace?trace={trace}"));
    assert_eq!(code, 200, "{answer}");
    let spans = answer["spans"].as_array().unwrap();
    let stages =
        ["authn", "authz", "decode", "mutating", "validation", "request", "write", "validating-webhook"];
    for (index, stage) in stages.into_iter().enumerate() {
        let found: Vec<&Value> = spans.iter().filter(|span| span["stage"] == stage).collect();
        let [span] = found.as_slice() else { panic!("{} spans of {stage}: {answer:#}", found.len()) };
        let is_marked = span["flags"].to_string().contains("unfinished");
        assert_eq!(is_marked, index >= 5, "what had ended is there, what had not is marked: {span}");
        assert!(!span["end"].is_null(), "{span}");
    }
    let notes = answer["notes"].to_string();
    assert!(notes.contains("cut off by a restart of the server"), "{notes}");
    assert_eq!((admin.get(&format!("{SECRETS}/{name}")).0, &answer["state"]), (404, &json!("failed")));
}
