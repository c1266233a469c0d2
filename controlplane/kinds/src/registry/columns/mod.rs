//! Columns of `kubectl get`, as users know them. Cells of kinds that are views read the stored form of the object. What a
//! column means is said in `descriptions.rs`; every column of a built-in kind needs that.

use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Json, Schema, View};
use serde_json::{Value, json};
use std::borrow::Cow;

// How long ago, in the words of kubectl.
mod ages;
// What columns mean.
mod descriptions;
// Lists, labels and selectors as text.
mod format;
// Pods and PodTemplates.
mod pods;
// Deployments, ReplicaSets, StatefulSets, DaemonSets, ControllerRevisions, Scales, disruption budgets.
mod workloads;
// Jobs and CronJobs.
mod jobs;
// Services, endpoints, ingresses, network policies, service addresses.
mod network;
// Namespaces, Nodes, Secrets, ConfigMaps, quotas, Leases, ComponentStatuses, priority and runtime classes.
mod cluster;
// Events.
mod events;
// Volumes, claims, classes, drivers, attachments.
mod storage;
// Role bindings and certificate signing requests.
mod access;
// HorizontalPodAutoscalers.
mod autoscalers;
// Webhooks, admission policies, aggregated servers.
mod extensions;
// Flow schemas and priority levels.
mod flow;
// Device claims and slices.
mod devices;

pub use access::{certificate_request, role_binding};
pub use ages::{age_of, duration_between, since};
pub use autoscalers::autoscaler;
pub use cluster::{
    component_status, config_map, lease, namespace, node, priority_class, quota, runtime_class, secret,
};
pub use descriptions::described;
pub use devices::{resource_claim, resource_slice};
pub use events::event;
pub use extensions::{admission_policy, api_service, mutating_policy, policy_binding, webhooks};
pub use flow::{flow_schema, priority_level};
pub use jobs::{cron_job, job};
pub use network::{
    endpoint_slice, endpoints, ingress, ingress_class, ip_address, network_policy, service, service_cidr,
};
pub use pods::{pod, pod_conditions, pod_template};
pub use storage::{
    attributes_class, claim, class, driver, persistent_volume, storage_node, volume_attachment,
};
pub use workloads::{
    budget, controller_revision, daemon_set, deployment, replica_set, replication_controller, scale,
    stateful_set,
};

/// A column of `kubectl get`.
#[derive(Clone)]
pub struct Column {
    /// Header, such as `Ready`.
    pub name: String,
    /// OpenAPI type: string, integer, date …
    pub kind: &'static str,
    /// OpenAPI format, `name` for the first column.
    pub format: &'static str,
    /// What the cells mean, for people.
    pub description: Cow<'static, str>,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
    /// Renders the cell from the object.
    pub cell: Cell,
}

/// Renders a cell from an object of the column's kind; see [`column`].
pub type Draw = dyn Fn(View<'_, Json>) -> Value + Send + Sync;

/// How a cell is made from an object.
#[derive(Clone)]
pub enum Cell {
    /// By a function of the object.
    With(&'static Draw),
    /// By a JSONPath, for custom resources.
    Path(String),
}

/// A column that is always shown, of a kind of type `T`. `kind` is the OpenAPI type. `cell` must capture nothing: the closure is
/// leaked, which costs no memory only if it has no size.
pub fn column<T: Schema + 'static>(
    name: &str,
    kind: &'static str,
    cell: impl Fn(View<'_, T>) -> Value + Send + Sync + 'static,
) -> Column {
    debug_assert_eq!(size_of_val(&cell), 0, "the cell of column {name} captures something");
    // What has no size takes no memory: nothing leaks.
    let draw: &'static Draw = Box::leak(Box::new(move |object: View<'_, Json>| cell(object.as_type())));
    let description = Cow::Borrowed("");
    Column { name: name.into(), kind, format: "", description, priority: 0, cell: Cell::With(draw) }
}

/// A text column that is always shown.
fn text<T: Schema + 'static>(
    name: &str,
    cell: impl Fn(View<'_, T>) -> Value + Send + Sync + 'static,
) -> Column {
    column::<T>(name, "string", cell)
}

/// A number column that is always shown.
fn number<T: Schema + 'static>(
    name: &str,
    cell: impl Fn(View<'_, T>) -> Value + Send + Sync + 'static,
) -> Column {
    column::<T>(name, "integer", cell)
}

/// A text column that `-o wide` adds. For another type, write `Column { priority: 1, ..number::<T>(…) }`.
pub fn wide<T: Schema + 'static>(
    name: &str,
    cell: impl Fn(View<'_, T>) -> Value + Send + Sync + 'static,
) -> Column {
    Column { priority: 1, ..column::<T>(name, "string", cell) }
}

/// The object's name.
pub fn name() -> Column {
    let name = text::<PartialObjectMetadata>("Name", |object| object.metadata().name().to_value());
    Column { format: "name", ..name }
}

/// How long ago the object was created.
pub fn age() -> Column {
    text::<PartialObjectMetadata>("Age", |object| json!(age_of(object)))
}

/// When the object was created, as a timestamp; [`age`] shows how long ago that is.
pub fn created_at() -> Column {
    column::<PartialObjectMetadata>("Created At", "date", |object| {
        object.metadata().creation_timestamp().to_value()
    })
}

/// Name and Created At, for kinds of which Kubernetes shows these two. A row without `.columns(…)` has Name and Age.
pub fn plain() -> Vec<Column> {
    vec![name(), created_at()]
}

/// An integer that reads as 0 when missing.
fn count(number: Option<i64>) -> Value {
    json!(number.unwrap_or_default())
}

/// A text, or a word for its absence.
fn text_or(text: &str, absent: &str) -> Value {
    json!(if text.is_empty() { absent } else { text })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod header_tests;
