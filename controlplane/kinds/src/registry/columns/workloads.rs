//! Columns of Deployments, sets and budgets.

use super::{age, count, format, name, number, text, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

fn containers() -> Column {
    wide("Containers", |object| json!(format::container_names(object.at("spec.template"))))
}

fn images() -> Column {
    wide("Images", |object| json!(format::container_images(object.at("spec.template"))))
}

fn selector() -> Column {
    wide("Selector", |object| json!(format::selector(object.at("spec.selector"))))
}

fn ready() -> Column {
    text("Ready", |object| {
        let ready = object.int("status.readyReplicas").unwrap_or_default();
        json!(format!("{ready}/{}", object.int("spec.replicas").unwrap_or_default()))
    })
}

/// Deployments.
pub fn deployment() -> Vec<Column> {
    vec![
        name(),
        ready(),
        text("Up-to-date", |object| count(object, "status.updatedReplicas")),
        text("Available", |object| count(object, "status.availableReplicas")),
        age(),
        containers(),
        images(),
        wide("Selector", |object| {
            let selector = format::selector(object.at("spec.selector"));
            json!(if selector == "<none>" { "" } else { &selector })
        }),
    ]
}

fn replicas() -> Vec<Column> {
    vec![
        name(),
        number("Desired", |object| count(object, "spec.replicas")),
        number("Current", |object| count(object, "status.replicas")),
        number("Ready", |object| count(object, "status.readyReplicas")),
        age(),
        containers(),
        images(),
    ]
}

/// What `/scale` shows.
pub fn scale() -> Vec<Column> {
    vec![
        name(),
        number("Desired", |object| count(object, "spec.replicas")),
        number("Available", |object| count(object, "status.replicas")),
        age(),
    ]
}

/// ReplicaSets.
pub fn replica_set() -> Vec<Column> {
    let mut columns = replicas();
    columns.push(selector());
    columns
}

/// ReplicationControllers, which select by plain labels.
pub fn replication_controller() -> Vec<Column> {
    let mut columns = replicas();
    columns.push(wide("Selector", |object| json!(format::labels(object.at("spec.selector")))));
    columns
}

/// StatefulSets.
pub fn stateful_set() -> Vec<Column> {
    vec![name(), ready(), age(), containers(), images()]
}

/// DaemonSets.
pub fn daemon_set() -> Vec<Column> {
    vec![
        name(),
        number("Desired", |object| count(object, "status.desiredNumberScheduled")),
        number("Current", |object| count(object, "status.currentNumberScheduled")),
        number("Ready", |object| count(object, "status.numberReady")),
        number("Up-to-date", |object| count(object, "status.updatedNumberScheduled")),
        number("Available", |object| count(object, "status.numberAvailable")),
        text("Node Selector", |object| json!(format::labels(object.at("spec.template.spec.nodeSelector")))),
        age(),
        containers(),
        images(),
        selector(),
    ]
}

/// ControllerRevisions.
pub fn controller_revision() -> Vec<Column> {
    vec![
        name(),
        text("Controller", |object| {
            let owners = object.items("metadata.ownerReferences").iter();
            let owner = owners.filter(|owner| owner.flag("controller")).map(controller_name).next();
            json!(owner.unwrap_or_else(|| "<none>".into()))
        }),
        text("Revision", |object| count(object, "revision")),
        age(),
    ]
}

/// `deployment.apps/web`.
fn controller_name(owner: &Value) -> String {
    let kind = owner.text("kind").to_lowercase();
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), owner.text("name")),
        None => format!("{kind}/{}", owner.text("name")),
    }
}

/// PodDisruptionBudgets.
pub fn budget() -> Vec<Column> {
    vec![
        name(),
        text("Min Available", |object| share(object.at("spec.minAvailable"))),
        text("Max Unavailable", |object| share(object.at("spec.maxUnavailable"))),
        number("Allowed Disruptions", |object| count(object, "status.disruptionsAllowed")),
        age(),
    ]
}

/// A number or a percentage as text.
fn share(value: &Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}
