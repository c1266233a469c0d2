//! Lists of this node's pods.

use coracle_fields::core::v1;
use coracle_fields::{Kind as _, Made, make};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

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
    list(json!(items))
}

/// `/runningpods`: pods according to the runtime.
pub fn running(pods: &PodTable) -> ApiResponse {
    let alive = |entry: &Entry| {
        let running = entry.view.containers.iter().filter(|c| c.state == State::Running);
        running.map(|c| container(&c.name)).collect::<Vec<_>>()
    };
    let items: Vec<_> = pods
        .list()
        .iter()
        .filter_map(|entry| {
            let containers = alive(entry);
            let meta = &entry.pod.metadata;
            (!containers.is_empty()).then(|| {
                let mut pod = make!(part v1::Pod {
                    metadata: { name: &meta.name, namespace: &meta.namespace, uid: &meta.uid },
                    spec: { containers },
                });
                pod.edit().status().section();
                pod
            })
        })
        .collect();
    list(json!(items))
}

fn container(name: &str) -> Made<v1::Container> {
    let mut container = make!(part v1::Container { name, image: "" });
    container.edit().resources().section();
    container
}

fn list(items: Value) -> ApiResponse {
    let mut list = v1::PodList::made();
    list.edit().metadata().section();
    list.edit().items().put(items);
    answer(&list)
}
