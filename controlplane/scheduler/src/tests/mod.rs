//! The deciding part, on clusters made of a few words.
#![allow(clippy::unwrap_used)]

// Where a pod may run, and why not.
mod filters;
// Claims of devices.
mod devices;
// Where it runs best.
mod scores;
// Rules and weights of profiles.
mod profiles;
// Making room.
mod preempt;
// Pods that wait.
mod queue;
// What the API says of what was decided.
mod event_handlers;
// Any sequence of events.
mod model;

use super::node::NodeInfo;
use super::place::Placer;
use super::pod::PodInfo;
use super::run::Timers;
use coracle_controllers as controllers;
use coracle_informer::identity::Identity;
use coracle_testing::Cluster;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn node_with(name: &str, change: impl FnOnce(&mut Value)) -> NodeInfo {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "x.io/gpu": "2"}},
    });
    change(&mut node);
    NodeInfo::new(serde_json::from_value(node).unwrap())
}

fn node(name: &str) -> NodeInfo {
    node_with(name, |_| {})
}

fn zoned(name: &str, zone: &str) -> NodeInfo {
    node_with(name, |n| n["metadata"]["labels"]["topology.kubernetes.io/zone"] = json!(zone))
}

fn pod_with(name: &str, change: impl FnOnce(&mut Value)) -> Arc<PodInfo> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]},
    });
    change(&mut pod);
    Arc::new(PodInfo::new(serde_json::from_value(pod).unwrap()))
}

fn pod(name: &str) -> Arc<PodInfo> {
    pod_with(name, |_| {})
}

fn cpu(name: &str, amount: &str) -> Arc<PodInfo> {
    pod_with(name, |p| p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(amount))
}

fn with_nodes(nodes: Vec<NodeInfo>) -> Placer {
    let mut placer = Placer::default();
    for node in nodes {
        placer.snapshot.set_node(node);
    }
    placer
}

/// Places a pod and counts it there; the node's name or the sentence why not.
fn put(placer: &mut Placer, pod: &Arc<PodInfo>) -> Result<String, String> {
    match placer.place(pod) {
        Ok(id) => {
            placer.snapshot.assume(pod, id);
            Ok(placer.snapshot.node(id).unwrap().name.clone())
        }
        Err(why) => Err(why.message("")),
    }
}

fn term(app: &str, topology: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology})
}

fn anti(pod: &mut Value, app: &str, topology: &str) {
    pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!([term(app, topology)]);
}

/// A pod of some importance.
fn ranked(name: &str, amount: &str, priority: i32) -> Arc<PodInfo> {
    pod_with(name, |p| {
        p["spec"]["priority"] = json!(priority);
        p["metadata"]["labels"]["app"] = json!(name);
        p["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(amount);
    })
}

/// A scheduler that acts on events only: its timers are longer than any test.
pub(super) const NO_TIMERS: Timers =
    Timers { flush: Duration::from_secs(3600), rest: Duration::from_secs(3600) };

/// A cluster with controllers: they take the taints from nodes that are ready.
pub(super) async fn cluster() -> Cluster {
    Cluster::with(|parts| {
        let options = controllers::Options {
            keys: Some(parts.keys.clone()),
            pod_ranges: vec!["10.42.0.0/16".parse().expect("a range")],
            charges: Some(parts.quota_charges.clone()),
            ignored_delays: Some(coracle_testing::FALLBACK),
            ..controllers::Options::default()
        };
        let client = parts.client.clone();
        controllers::start(&move |identity: Identity| identity.client(&client), &options)
    })
    .await
}
