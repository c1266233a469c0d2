//! Lists of this node's pods.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::containers::Containers;
use super::response::{ApiResponse, json as answer};
use crate::lifecycle::table::{Entry, PodTable};
use crate::pod::observed::State;
use crate::pod::spec;

/// `/pods`: every pod of the node with its newest status.
pub fn pods(containers: &Containers) -> ApiResponse {
    let items: Vec<Pod> = containers
        .pods
        .list()
        .into_iter()
        .map(|entry| {
            let mut pod = Pod::clone(&entry.pod);
            if let Some(status) = containers.reporter.status(spec::uid(&pod)) {
                pod.status = Some(status);
            }
            pod
        })
        .collect();
    answer(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// `/runningpods`: pods according to the runtime.
pub fn running(pods: &PodTable) -> ApiResponse {
    let alive = |entry: &Entry| {
        let running = entry.view.containers.iter().filter(|c| c.state == State::Running);
        running.map(|c| json!({"name": c.name, "image": "", "resources": {}})).collect::<Vec<_>>()
    };
    let items: Vec<_> = pods
        .list()
        .iter()
        .filter_map(|entry| {
            let containers = alive(entry);
            let meta = &entry.pod.metadata;
            (!containers.is_empty()).then(|| {
                json!({
                    "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
                    "spec": {"containers": containers},
                    "status": {},
                })
            })
        })
        .collect();
    answer(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}
