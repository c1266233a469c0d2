//! Columns of Deployments, sets and budgets.

use super::{Column, age, count, described, format, name, number, text, wide};
use coracle_fields::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use coracle_fields::autoscaling_v1::Scale;
use coracle_fields::core::v1::{PodTemplateSpec, ReplicationController};
use coracle_fields::meta::OwnerReference;
use coracle_fields::policy::v1::PodDisruptionBudget;
use coracle_fields::{IntOrString, Schema, View};
use serde_json::{Value, json};

/// Names and images of the containers of a template.
fn containers<T: Schema + 'static>(
    template: impl Fn(View<'_, T>) -> View<'_, PodTemplateSpec> + Copy + Send + Sync + 'static,
) -> [Column; 2] {
    [
        wide::<T>("Containers", move |object| json!(format::container_names(template(object)))),
        wide::<T>("Images", move |object| json!(format::container_images(template(object)))),
    ]
}

fn share_of(part: Option<i64>, all: Option<i64>) -> Value {
    json!(format!("{}/{}", part.unwrap_or_default(), all.unwrap_or_default()))
}

/// Deployments.
pub fn deployment() -> Vec<Column> {
    let mut columns = vec![
        name(),
        text::<Deployment>("Ready", |object| {
            share_of(object.status().ready_replicas().int(), object.spec().replicas().int())
        }),
        text::<Deployment>("Up-to-date", |object| count(object.status().updated_replicas().int())),
        text::<Deployment>("Available", |object| count(object.status().available_replicas().int())),
        age(),
    ];
    columns.extend(containers::<Deployment>(|object| object.spec().template()));
    columns.push(wide::<Deployment>("Selector", |object| {
        let selector = format::selector(object.spec().selector());
        json!(if selector == "<none>" { "" } else { &selector })
    }));
    columns
}

/// What `/scale` shows.
pub fn scale() -> Vec<Column> {
    let columns = vec![
        name(),
        number::<Scale>("Desired", |object| count(object.spec().replicas().int())),
        number::<Scale>("Available", |object| count(object.status().replicas().int())),
        age(),
    ];
    described("Scale", columns)
}

/// ReplicaSets.
pub fn replica_set() -> Vec<Column> {
    let mut columns = vec![
        name(),
        number::<ReplicaSet>("Desired", |object| count(object.spec().replicas().int())),
        number::<ReplicaSet>("Current", |object| count(object.status().replicas().int())),
        number::<ReplicaSet>("Ready", |object| count(object.status().ready_replicas().int())),
        age(),
    ];
    columns.extend(containers::<ReplicaSet>(|object| object.spec().template()));
    columns.push(wide::<ReplicaSet>("Selector", |object| json!(format::selector(object.spec().selector()))));
    columns
}

/// ReplicationControllers, which select by plain labels.
pub fn replication_controller() -> Vec<Column> {
    let mut columns = vec![
        name(),
        number::<ReplicationController>("Desired", |object| count(object.spec().replicas().int())),
        number::<ReplicationController>("Current", |object| count(object.status().replicas().int())),
        number::<ReplicationController>("Ready", |object| count(object.status().ready_replicas().int())),
        age(),
    ];
    columns.extend(containers::<ReplicationController>(|object| object.spec().template()));
    columns.push(wide::<ReplicationController>("Selector", |object| {
        json!(format::labels(object.spec().selector()))
    }));
    columns
}

/// StatefulSets.
pub fn stateful_set() -> Vec<Column> {
    let mut columns = vec![
        name(),
        text::<StatefulSet>("Ready", |object| {
            share_of(object.status().ready_replicas().int(), object.spec().replicas().int())
        }),
        age(),
    ];
    columns.extend(containers::<StatefulSet>(|object| object.spec().template()));
    columns
}

/// DaemonSets.
pub fn daemon_set() -> Vec<Column> {
    let mut columns = vec![
        name(),
        number::<DaemonSet>("Desired", |object| count(object.status().desired_number_scheduled().int())),
        number::<DaemonSet>("Current", |object| count(object.status().current_number_scheduled().int())),
        number::<DaemonSet>("Ready", |object| count(object.status().number_ready().int())),
        number::<DaemonSet>("Up-to-date", |object| count(object.status().updated_number_scheduled().int())),
        number::<DaemonSet>("Available", |object| count(object.status().number_available().int())),
        text::<DaemonSet>("Node Selector", |object| {
            json!(format::labels(object.spec().template().spec().node_selector()))
        }),
        age(),
    ];
    columns.extend(containers::<DaemonSet>(|object| object.spec().template()));
    columns.push(wide::<DaemonSet>("Selector", |object| json!(format::selector(object.spec().selector()))));
    columns
}

/// ControllerRevisions.
pub fn controller_revision() -> Vec<Column> {
    vec![
        name(),
        text::<ControllerRevision>("Controller", |object| {
            let mut owners = object.metadata().owner_references().items();
            let owner = owners.find(|owner| owner.controller().flag()).map(controller_name);
            json!(owner.unwrap_or_else(|| "<none>".into()))
        }),
        text::<ControllerRevision>("Revision", |object| count(object.revision().int())),
        age(),
    ]
}

/// `deployment.apps/web`.
fn controller_name(owner: View<'_, OwnerReference>) -> String {
    let kind = owner.kind().text().to_lowercase();
    match owner.api_version().text().split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), owner.name().text()),
        None => format!("{kind}/{}", owner.name().text()),
    }
}

/// PodDisruptionBudgets.
pub fn budget() -> Vec<Column> {
    vec![
        name(),
        text::<PodDisruptionBudget>("Min Available", |object| share(object.spec().min_available())),
        text::<PodDisruptionBudget>("Max Unavailable", |object| share(object.spec().max_unavailable())),
        number::<PodDisruptionBudget>("Allowed Disruptions", |object| {
            count(object.status().disruptions_allowed().int())
        }),
        age(),
    ]
}

/// A number or a percentage as text.
fn share(value: View<'_, IntOrString>) -> Value {
    match value.to_value() {
        Value::Null => json!("N/A"),
        text @ Value::String(_) => text,
        other => json!(other.to_string()),
    }
}
