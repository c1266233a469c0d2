//! Columns of Namespaces, Nodes, Secrets, ConfigMaps, quotas, Leases, ComponentStatuses, and of priority and runtime classes.

use super::{Column, age, column, count, format, name, number, text, text_or, wide};
use coracle_fields::View;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::{
    ComponentCondition, ComponentStatus, ConfigMap, Namespace, Node, ResourceQuota, Secret,
};
use coracle_fields::node::v1::RuntimeClass;
use coracle_fields::scheduling::v1::PriorityClass;
use serde_json::json;

/// Namespaces.
pub fn namespace() -> Vec<Column> {
    vec![name(), text::<Namespace>("Status", |object| object.status().phase().to_value()), age()]
}

/// Nodes.
pub fn node() -> Vec<Column> {
    vec![
        name(),
        text::<Node>("Status", |node| {
            let ready = format::condition(node.status().conditions(), "Ready");
            let mut words = vec![match ready.map(|ready| ready.status().text()) {
                Some("True") => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            }];
            if node.spec().unschedulable().flag() {
                words.push("SchedulingDisabled");
            }
            json!(words.join(","))
        }),
        text::<Node>("Roles", |node| json!(format::or_none(roles(node)))),
        age(),
        text::<Node>("Version", |node| json!(node.status().node_info().kubelet_version().text())),
        wide::<Node>("Internal-IP", |node| json!(address(node, "InternalIP"))),
        wide::<Node>("External-IP", |node| json!(address(node, "ExternalIP"))),
        wide::<Node>("OS-Image", |node| text_or(node.status().node_info().os_image().text(), "<unknown>")),
        wide::<Node>("Kernel-Version", |node| {
            let info = node.status().node_info();
            let version = info.kernel_version().filled().unwrap_or("<unknown>");
            match info.architecture().text() {
                "" => json!(version),
                architecture => json!(format!("{version} ({architecture})")),
            }
        }),
        wide::<Node>("Container-Runtime", |node| {
            text_or(node.status().node_info().container_runtime_version().text(), "<unknown>")
        }),
    ]
}

fn roles(node: View<'_, Node>) -> Vec<String> {
    let mut roles: Vec<String> = node
        .metadata()
        .labels()
        .entries()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| value.text()),
        })
        .filter(|role| !role.is_empty())
        .map(str::to_owned)
        .collect();
    roles.sort();
    roles.dedup();
    roles
}

fn address<'a>(node: View<'a, Node>, kind: &str) -> &'a str {
    let mut addresses = node.status().addresses().items();
    addresses.find(|address| address.type_() == kind).map_or("<none>", |address| address.address().text())
}

/// Secrets.
pub fn secret() -> Vec<Column> {
    vec![
        name(),
        text::<Secret>("Type", |object| object.type_().to_value()),
        text::<Secret>("Data", |object| json!(object.data().entries().count())),
        age(),
    ]
}

/// ConfigMaps.
pub fn config_map() -> Vec<Column> {
    vec![
        name(),
        text::<ConfigMap>("Data", |object| {
            json!(object.data().entries().count() + object.binary_data().entries().count())
        }),
        age(),
    ]
}

/// ResourceQuotas.
pub fn quota() -> Vec<Column> {
    vec![
        name(),
        text::<ResourceQuota>("Request", |object| json!(used(object, false))),
        text::<ResourceQuota>("Limit", |object| json!(used(object, true))),
        age(),
    ]
}

fn used(quota: View<'_, ResourceQuota>, limits: bool) -> String {
    let spent = quota.status().used();
    let mut parts: Vec<String> = quota
        .status()
        .hard()
        .entries()
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| format!("{name}: {}/{}", spent.key(name).or("0"), hard.text()))
        .collect();
    parts.sort();
    parts.join(", ")
}

/// Leases.
pub fn lease() -> Vec<Column> {
    vec![name(), text::<Lease>("Holder", |object| json!(object.spec().holder_identity().text())), age()]
}

/// PriorityClasses.
pub fn priority_class() -> Vec<Column> {
    vec![
        name(),
        number::<PriorityClass>("Value", |object| count(object.value().int())),
        column::<PriorityClass>("Global-Default", "boolean", |object| json!(object.global_default().flag())),
        age(),
        text::<PriorityClass>("PreemptionPolicy", |object| json!(object.preemption_policy().text())),
    ]
}

/// RuntimeClasses.
pub fn runtime_class() -> Vec<Column> {
    vec![name(), text::<RuntimeClass>("Handler", |object| object.handler().to_value()), age()]
}

/// ComponentStatuses.
pub fn component_status() -> Vec<Column> {
    fn healthy(object: View<'_, ComponentStatus>) -> Option<View<'_, ComponentCondition>> {
        object.conditions().items().find(|condition| condition.type_() == "Healthy")
    }
    vec![
        name(),
        text::<ComponentStatus>("Status", |object| {
            match healthy(object).map(|condition| condition.status().text()) {
                Some("True") => json!("Healthy"),
                Some(_) => json!("Unhealthy"),
                None => json!("Unknown"),
            }
        }),
        text::<ComponentStatus>("Message", |object| {
            json!(healthy(object).map_or("", |condition| condition.message().text()))
        }),
        text::<ComponentStatus>("Error", |object| {
            json!(healthy(object).map_or("", |condition| condition.error().text()))
        }),
    ]
}
