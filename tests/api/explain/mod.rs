//! Timelines: what is answered about a write, who may see what, spans that nodes deliver, and the export.

// An OTLP receiver.
mod receiver;
// Answers, and how they go on.
mod answers;
// What users see of each other and of objects that they may not get.
mod rights;
// Contexts of clients, owners and webhooks.
mod contexts;
// Conversion webhooks and aggregated API servers.
mod foreign;
// Deliveries of nodes.
mod deliveries;
// Export.
mod export;
// Metrics and the log of slow requests.
mod operation;
// Nodes of others, old objects, and objects that are not there.
mod unrecorded;

use coracle_tests::caller::Caller;
use serde_json::{Value, json};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// The header of a client that records its trace.
fn traceparent() -> String {
    format!("traceparent: 00-{TRACE}-{SPAN}-01")
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}})
}

/// Makes a pod, on a node if one is named; its uid.
fn create_pod(admin: &Caller, name: &str, node: &str) -> String {
    // Controllers may not have made it yet, or there are none.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin.send("POST", accounts, Some(&json!({"metadata": {"name": "default"}})));
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    let made = admin.create("/api/v1/namespaces/default/pods", &pod);
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// The path of a question about an object in the namespace default.
fn question(resource: &str, name: &str) -> String {
    format!("/coracle/v1/trace?resource={resource}&namespace=default&name={name}")
}

/// The answer about an object.
fn trace(caller: &Caller, resource: &str, name: &str) -> Value {
    let path = question(resource, name);
    let (code, answer) = caller.get(&path);
    assert_eq!(code, 200, "{path}: {answer}");
    answer
}

/// The spans of a stage.
fn spans<'a>(trace: &'a Value, stage: &str) -> Vec<&'a Value> {
    trace["spans"].as_array().unwrap().iter().filter(|span| span["stage"] == stage).collect()
}

/// The span of a stage, of which there is one.
fn span<'a>(trace: &'a Value, stage: &str) -> &'a Value {
    match spans(trace, stage).as_slice() {
        [span] => span,
        other => panic!("{} spans of {stage}: {trace:#}", other.len()),
    }
}

/// Asks until the answer is as it should be.
fn eventually(caller: &Caller, path: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    coracle_tests::eventually(what, Duration::from_secs(20), || {
        last = caller.get(path).1;
        check(&last)
    });
    last
}
