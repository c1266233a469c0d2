//! A Deployment with a ReplicaSet and two pods, as the stub tells of them: rows, usage, logs.

use crate::stub::metadata;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

/// Columns of Deployments and ReplicaSets.
pub const COLUMNS: [&str; 2] = ["Name", "Ready"];
/// How many of the pods it has.
const PODS: usize = 2;

fn owned(name: &str, kind: &str, owner: &str) -> Value {
    let mut object = metadata(name, "default");
    let owner = json!({"kind": kind, "name": owner, "uid": format!("uid-{owner}"), "controller": true});
    object["metadata"]["ownerReferences"] = json!([owner]);
    object
}

pub fn deployment(_: usize) -> Value {
    json!({"cells": ["web", "2/2"], "object": metadata("web", "default")})
}

pub fn replica_set(_: usize) -> Value {
    json!({"cells": ["web-1", "2"], "object": owned("web-1", "Deployment", "web")})
}

/// The metadata of a pod of the stub.
pub fn pod(number: usize, name: &str) -> Value {
    if number < PODS { owned(name, "ReplicaSet", "web-1") } else { metadata(name, "default") }
}

/// What the metrics API says of its pods.
pub fn usage() -> Value {
    let container = |cpu: &str, memory: &str| json!({"name": "c", "usage": {"cpu": cpu, "memory": memory}});
    let pod = |number: usize, containers: Value| {
        let metadata = json!({"name": format!("pod-{number:05}"), "namespace": "default"});
        json!({"metadata": metadata, "containers": containers})
    };
    json!({"items": [
        pod(0, json!([container("250000000n", "64Mi"), container("250m", "64Mi")])),
        pod(1, json!([container("1", "128Mi")])),
    ]})
}

/// A pod with two containers.
pub fn containers() -> Value {
    let mut pod = metadata("pod-00001", "default");
    pod["spec"] = json!({"containers": [{"name": "web"}, {"name": "proxy"}]});
    pod
}

/// The log of a container that is followed: a line, another a second later, and no end.
pub fn log(mut stream: TcpStream, container: &str) -> Option<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n").ok()?;
    for (number, pause) in [("first", 1), ("second", 600)] {
        stream.write_all(format!("{number} <b> of {container}\n").as_bytes()).ok()?;
        std::thread::sleep(Duration::from_secs(pause));
    }
    Some(())
}
