//! A server for the page: its files from the sources, lists of any length, and timelines from the fixtures.

use crate::workload;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const UI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../controlplane/coracle/ui");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../timeline/fixtures");
/// As the server has it, which the tests of real servers check.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

/// A running server; it ends with the process.
pub struct Stub {
    /// The address of the page.
    pub page: String,
}

struct Objects {
    pods: usize,
    /// Whether it answers like the proxy of `coracle ui`, which knows causes.
    explains: bool,
}

impl Stub {
    /// One with so many pods: of each hundred one crashes and one is not ready.
    pub fn start(pods: usize) -> Self {
        Self::with(Objects { pods, explains: false })
    }

    /// One that knows causes.
    pub fn explaining(pods: usize) -> Self {
        Self::with(Objects { pods, explains: true })
    }

    fn with(objects: Objects) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // As the proxy has it: below a path that nobody knows.
        let page = format!("http://{}/0123456789abcdef/ui/", listener.local_addr().unwrap());
        let objects = Arc::new(objects);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let objects = objects.clone();
                std::thread::spawn(move || serve(stream, &objects));
            }
        });
        Self { page }
    }
}

/// Answers requests until the browser closes the connection.
fn serve(stream: TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let target = line.split(' ').nth(1)?.to_owned();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok().filter(|length| *length > 0)?;
            if header.trim().is_empty() {
                break;
            }
        }
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let path = path.strip_prefix("/0123456789abcdef").unwrap_or("/none");
        let query: HashMap<&str, &str> = query.split('&').filter_map(|part| part.split_once('=')).collect();
        if query.contains_key("watch") {
            return watch(stream, path);
        }
        if path.ends_with("/log") && query.get("follow") == Some(&"true") {
            return workload::log(stream, query.get("container").copied().unwrap_or_default());
        }
        let (code, media, body) = answer(path, &query, objects);
        let head = format!(
            "HTTP/1.1 {code} x\r\ncontent-type: {media}\r\ncontent-length: {}\r\ncontent-security-policy: {POLICY}\r\n\
             x-content-type-options: nosniff\r\ncache-control: no-cache\r\n{}\r\n",
            body.len(),
            if objects.explains { "coracle-proxy: why\r\n" } else { "" }
        );
        let mut stream = &stream;
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&body).ok()?;
    }
}

type Answer = (u16, &'static str, Vec<u8>);

fn json_answer(code: u16, value: &Value) -> Answer {
    (code, "application/json", value.to_string().into_bytes())
}

fn answer(path: &str, query: &HashMap<&str, &str>, objects: &Objects) -> Answer {
    if let Some(name) = path.strip_prefix("/ui/") {
        return file(if name.is_empty() { "index.html" } else { name });
    }
    let fixture =
        |name: &str| (200, "application/json", std::fs::read(Path::new(FIXTURES).join(name)).unwrap());
    match (path, path.rsplit('/').next().unwrap_or_default()) {
        ("/coracle/v1/traces", _) => fixture("traces.json"),
        ("/coracle/v1/trace", _) => match (query.get("name").copied(), query.contains_key("follow")) {
            (Some("missing"), _) => (404, "application/json", fixture("not-found-never.json").2),
            (Some("running"), true) => (200, "application/x-ndjson", fixture("follow.ndjson").2),
            (Some("running"), false) => fixture("deployment-running.json"),
            (Some("waits"), true) => {
                std::thread::sleep(Duration::from_secs(1));
                (200, "application/x-ndjson", waiting("the readiness probe", true))
            }
            (Some("waits"), false) => (200, "application/json", waiting("node-3, which is away", false)),
            (Some("refused"), _) => (200, "application/json", refused()),
            (Some("untold"), _) => (200, "application/json", untold()),
            (Some(name), _) if name.starts_with("web-") => fixture("pod-ready.json"),
            _ => fixture("deployment-ready.json"),
        },
        ("/coracle/v1/why", _) if objects.explains => json_answer(200, &causes(query)),
        ("/apis/metrics.k8s.io/v1beta1/nodes", _) => {
            let usage = json!({"cpu": "2000321456n", "memory": "751755Ki"});
            json_answer(200, &json!({"items": [{"metadata": {"name": "node0"}, "usage": usage}]}))
        }
        ("/apis/metrics.k8s.io/v1beta1/pods", _) => json_answer(200, &workload::usage()),
        ("/apis/apps/v1/deployments", _) => {
            json_answer(200, &page(query, 1, &workload::COLUMNS, workload::deployment))
        }
        ("/apis/apps/v1/replicasets", _) => {
            json_answer(200, &page(query, 1, &workload::COLUMNS, workload::replica_set))
        }
        ("/api/v1/namespaces/default/pods/pod-00001", _) => json_answer(200, &workload::containers()),
        (_, "pods") => json_answer(200, &page(query, objects.pods, &POD, pod)),
        (_, "nodes") => {
            json_answer(200, &page(query, 3, &["Name", "Status", "Roles", "Age", "Version"], node))
        }
        (_, "configmaps") => {
            let text = "configmaps is forbidden: User \"<img src=x>\" cannot list resource \"configmaps\"";
            json_answer(403, &json!({"kind": "Status", "code": 403, "message": text}))
        }
        (_, "events") => json_answer(200, &json!({"items": []})),
        (_, "services") => json_answer(200, &page(query, 1, &["Name", "Type"], service)),
        _ if query.contains_key("limit") => json_answer(200, &page(query, 0, &["Name"], node)),
        _ => json_answer(404, &json!({"kind": "Status", "code": 404, "message": "not found"})),
    }
}

/// A timeline whose pod waits for something, or what changes in it.
fn waiting(what: &str, is_change: bool) -> Vec<u8> {
    let text = std::fs::read(Path::new(FIXTURES).join("deployment-running.json")).unwrap();
    let mut trace: Value = serde_json::from_slice(&text).unwrap();
    let pods = trace["objects"].as_array_mut().unwrap().iter_mut();
    for pod in pods.filter(|object| object["resource"] == "pods") {
        pod["waits"] = json!(format!("waits for {what}"));
    }
    if !is_change {
        return trace.to_string().into_bytes();
    }
    let change = json!({"type": "spans", "spans": [], "objects": trace["objects"], "critical": trace["critical"],
        "summary": trace["summary"], "state": trace["state"]});
    format!("{change}\n").into_bytes()
}

/// A timeline with a pod whose node has told nothing of it.
fn untold() -> Vec<u8> {
    let text = std::fs::read(Path::new(FIXTURES).join("deployment-ready.json")).unwrap();
    let mut trace: Value = serde_json::from_slice(&text).unwrap();
    let mut pods = trace["objects"].as_array_mut().unwrap().iter_mut();
    pods.find(|object| object["resource"] == "pods").unwrap()["untold"] = json!(true);
    trace.to_string().into_bytes()
}

/// A timeline of a pod that no node can run.
fn refused() -> Vec<u8> {
    let text = std::fs::read(Path::new(FIXTURES).join("pod-ready.json")).unwrap();
    let mut trace: Value = serde_json::from_slice(&text).unwrap();
    let spans = trace["spans"].as_array_mut().unwrap();
    let mut verdict = spans.iter().find(|span| span["stage"] == "verdict").unwrap().clone();
    spans.retain(|span| span["stage"] != "verdict");
    verdict["flags"] = json!(["failed"]);
    for (node, reason) in [
        ("node1", "NodeResourcesFit: Insufficient cpu"),
        ("2 more nodes", "NodeAffinity: node(s) didn't match Pod's node affinity/selector"),
    ] {
        (verdict["id"], verdict["name"], verdict["text"]) = (json!(node), json!(node), json!(reason));
        spans.push(verdict.clone());
    }
    trace.to_string().into_bytes()
}

fn file(name: &str) -> Answer {
    let media = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    };
    match std::fs::read(Path::new(UI).join(name)) {
        Ok(bytes) if !name.contains('/') => (200, media, bytes),
        _ => (404, "text/plain", Vec::new()),
    }
}

/// One page of a list as a table.
fn page(query: &HashMap<&str, &str>, count: usize, columns: &[&str], row: fn(usize) -> Value) -> Value {
    let number =
        |name: &str, default: usize| query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (from, limit) = (number("continue", 0), number("limit", 500));
    let end = count.min(from + limit);
    let rows: Vec<Value> = (from..end).map(row).collect();
    let next = if end < count { end.to_string() } else { String::new() };
    let columns: Vec<Value> = columns.iter().map(|name| json!({"name": name, "priority": 0})).collect();
    json!({"kind": "Table", "metadata": {"resourceVersion": "7", "continue": next}, "columnDefinitions": columns, "rows": rows})
}

pub fn metadata(name: &str, namespace: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "labels": {"app": "web"},
        "creationTimestamp": "2026-11-16T10:00:00Z", "resourceVersion": "5"}})
}

const POD: [&str; 7] = ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node"];

fn pod(number: usize) -> Value {
    let (ready, status) = match number % 100 {
        5 => ("0/1", "CrashLoopBackOff"),
        7 => ("0/1", "Running"),
        _ => ("1/1", "Running"),
    };
    let name = format!("pod-{number:05}");
    let node = format!("node{}", number % 3);
    json!({"cells": [name, ready, status, 0, "1h", "10.0.0.1", node], "object": workload::pod(number, &name)})
}

fn node(number: usize) -> Value {
    let name = format!("node{number}");
    json!({"cells": [name, "Ready", "<none>", "1h", "v1.35.0"], "object": metadata(&name, "")})
}

fn service(_: usize) -> Value {
    json!({"cells": ["typo", "ClusterIP"], "object": metadata("typo", "default")})
}

/// What is wrong in the cluster, or with the Service; everything else is well.
fn causes(query: &HashMap<&str, &str>) -> Value {
    let finding = |kind: &str, name: &str, severity: &str, cause: &str| {
        let object = json!({"apiVersion": "v1", "kind": kind, "namespace": "default", "name": name});
        json!({"object": object, "trouble": kind.to_lowercase(), "severity": severity, "cause": cause,
            "since": "2026-11-16T10:00:00Z", "evidence": [{"what": "field", "text": "<b>"}], "remedy": "mend it"})
    };
    let service =
        finding("Service", "typo", "error", "the selector app=wbe matches no pod in namespace default");
    let mut pod = finding("Pod", "pod-00005", "error", "container c fails with exit code 3");
    pod["others"] = json!([pod["object"]]);
    let quota = finding("ResourceQuota", "q", "warning", "the quota is used up: pods (1 of 1)");
    let findings = match query.get("name").copied() {
        None => vec![service, pod, quota],
        Some("typo") => vec![service],
        Some(_) => Vec::new(),
    };
    json!({"findings": findings, "lookedAt": [], "notLookedAt": []})
}

/// A watch: pods get one more after a second.
fn watch(mut stream: TcpStream, path: &str) -> Option<()> {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n")
        .ok()?;
    std::thread::sleep(Duration::from_secs(1));
    if path.ends_with("/pods") {
        let row = json!({"cells": ["new-pod", "0/1", "Pending", 0, "1s", "", ""], "object": metadata("new-pod", "default")});
        let event = json!({"type": "ADDED", "object": {"kind": "Table", "rows": [row]}});
        stream.write_all(format!("{event}\n").as_bytes()).ok()?;
    }
    // Until the browser has had enough.
    std::thread::sleep(Duration::from_secs(600));
    Some(())
}
