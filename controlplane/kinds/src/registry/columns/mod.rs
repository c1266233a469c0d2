//! Columns of `kubectl get`, as users know them. Cells of kinds that are views read the stored form of the object.

use super::kinds::{Cell, Column};
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

// How long ago, in the words of kubectl.
mod ages;
// Lists, labels and selectors as text.
mod format;
// Pods and what carries pod templates.
mod pods;
mod workloads;
mod jobs;
mod network;
mod cluster;
mod storage;
mod access;
mod autoscalers;
mod extensions;
mod flow;
mod devices;

pub use access::{certificate_request, role_binding};
pub use ages::{age_of, duration_between, since};
pub use autoscalers::autoscaler;
pub use cluster::{
    component_status, config_map, event, lease, namespace, node, priority_class, quota, runtime_class, secret,
};
pub use devices::{resource_claim, resource_slice};
pub use extensions::{admission_policy, api_service, policy_binding, webhooks};
pub use flow::{flow_schema, priority_level};
pub use jobs::{cron_job, job};
pub use network::{
    endpoint_slice, endpoints, ingress, ingress_class, ip_address, network_policy, service, service_cidr,
};
pub use pods::{pod, pod_template};
pub use storage::{
    attributes_class, capacity, claim, class, driver, persistent_volume, storage_node, volume_attachment,
};
pub use workloads::{
    budget, controller_revision, daemon_set, deployment, replica_set, replication_controller, scale,
    stateful_set,
};

type Draw = fn(&Value) -> Value;

/// A column that is always shown.
pub fn column(name: &str, kind: &'static str, cell: Draw) -> Column {
    Column { name: name.into(), kind, format: "", priority: 0, cell: Cell::With(cell) }
}

/// A text column that is always shown.
fn text(name: &str, cell: Draw) -> Column {
    column(name, "string", cell)
}

/// A number column that is always shown.
fn number(name: &str, cell: Draw) -> Column {
    column(name, "integer", cell)
}

/// A text column that `-o wide` adds.
pub fn wide(name: &str, cell: Draw) -> Column {
    Column { priority: 1, ..column(name, "string", cell) }
}

/// The object's name.
pub fn name() -> Column {
    Column { format: "name", ..text("Name", |object| object.at("metadata.name").clone()) }
}

/// How long ago the object was created.
pub fn age() -> Column {
    text("Age", |object| json!(age_of(object)))
}

/// When the object was created, for kinds without own columns.
pub fn created_at() -> Column {
    column("Created At", "date", |object| object.at("metadata.creationTimestamp").clone())
}

/// The columns of a kind without columns of its own.
pub fn plain() -> Vec<Column> {
    vec![name(), created_at()]
}

/// An integer that reads as 0 when missing.
fn count(object: &Value, path: &str) -> Value {
    json!(object.int(path).unwrap_or_default())
}

/// The text at a path, or a word for its absence.
fn text_or(object: &Value, path: &str, absent: &str) -> Value {
    match object.text(path) {
        "" => json!(absent),
        text => json!(text),
    }
}

#[cfg(test)]
mod tests;
