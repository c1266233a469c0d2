//! Columns of Namespaces, Nodes, Events, Secrets, quotas, Leases and classes.

use super::{age, column, count, format, name, number, since, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// Namespaces.
pub fn namespace() -> Vec<Column> {
    vec![name(), text("Status", |object| object.at("status.phase").clone()), age()]
}

/// Nodes.
pub fn node() -> Vec<Column> {
    vec![
        name(),
        text("Status", |node| {
            let mut words = vec![match format::condition(node, "Ready").map(|ready| ready.text("status")) {
                Some("True") => "Ready",
                Some(_) => "NotReady",
                None => "Unknown",
            }];
            if node.flag("spec.unschedulable") {
                words.push("SchedulingDisabled");
            }
            json!(words.join(","))
        }),
        text("Roles", |node| json!(format::or_none(roles(node)))),
        age(),
        text("Version", |node| json!(node.text("status.nodeInfo.kubeletVersion"))),
        wide("Internal-IP", |node| json!(address(node, "InternalIP"))),
        wide("External-IP", |node| json!(address(node, "ExternalIP"))),
        wide("OS-Image", |node| text_or(node, "status.nodeInfo.osImage", "<unknown>")),
        wide("Kernel-Version", |node| text_or(node, "status.nodeInfo.kernelVersion", "<unknown>")),
        wide("Container-Runtime", |node| {
            text_or(node, "status.nodeInfo.containerRuntimeVersion", "<unknown>")
        }),
    ]
}

fn roles(node: &Value) -> Vec<String> {
    let mut roles: Vec<String> = node
        .entries("metadata.labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => (key == "kubernetes.io/role").then(|| value.as_str()).flatten(),
        })
        .filter(|role| !role.is_empty())
        .map(str::to_owned)
        .collect();
    roles.sort();
    roles.dedup();
    roles
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let mut addresses = node.items("status.addresses").iter();
    addresses.find(|address| address.text("type") == kind).map_or("<none>", |address| address.text("address"))
}

/// The value under its core name, or under the name that `events.k8s.io` has for it.
fn of<'a>(event: &'a Value, core: &str, view: &str) -> &'a Value {
    if event.has(core) { event.at(core) } else { event.at(view) }
}

fn about<'a>(event: &'a Value, field: &str) -> &'a str {
    of(event, "involvedObject", "regarding").text(field)
}

/// Events, in either form.
pub fn event() -> Vec<Column> {
    vec![
        text("Last Seen", |event| {
            let series = event.at("series.lastObservedTime");
            let (first, last) = (
                of(event, "firstTimestamp", "deprecatedFirstTimestamp"),
                of(event, "lastTimestamp", "deprecatedLastTimestamp"),
            );
            let last = [series, last, first, event.at("eventTime")];
            let time = last.into_iter().find(|time| !time.is_null()).unwrap_or(&Value::Null);
            json!(since(time))
        }),
        text("Type", |event| json!(event.text("type"))),
        text("Reason", |event| json!(event.text("reason"))),
        text("Object", |event| {
            let kind = about(event, "kind").to_lowercase();
            match about(event, "name") {
                "" => json!(kind),
                name => json!(format!("{kind}/{name}")),
            }
        }),
        wide("Subobject", |event| json!(about(event, "fieldPath"))),
        wide("Source", |event| {
            let source = of(event, "source", "deprecatedSource");
            let reporting =
                of(event, "reportingComponent", "reportingController").as_str().unwrap_or_default();
            let component = first(source.text("component"), reporting);
            match first(source.text("host"), event.text("reportingInstance")) {
                "" => json!(component),
                host => json!(format!("{component}, {host}")),
            }
        }),
        text("Message", |event| json!(of(event, "message", "note").as_str().unwrap_or_default().trim())),
        wide("First Seen", |event| {
            let first = of(event, "firstTimestamp", "deprecatedFirstTimestamp");
            json!(since(if first.is_null() { event.at("eventTime") } else { first }))
        }),
        wide("Count", |event| {
            let count = event
                .int("series.count")
                .or(of(event, "count", "deprecatedCount").as_i64())
                .unwrap_or_default();
            json!(count.max(1))
        }),
        Column { format: "name", ..wide("Name", |event| event.at("metadata.name").clone()) },
    ]
}

fn first<'a>(a: &'a str, b: &'a str) -> &'a str {
    if a.is_empty() { b } else { a }
}

/// Secrets.
pub fn secret() -> Vec<Column> {
    vec![
        name(),
        text("Type", |object| object.at("type").clone()),
        text("Data", |object| json!(object.entries("data").count())),
        age(),
    ]
}

/// ConfigMaps.
pub fn config_map() -> Vec<Column> {
    vec![
        name(),
        text("Data", |object| json!(object.entries("data").count() + object.entries("binaryData").count())),
        age(),
    ]
}

/// ResourceQuotas.
pub fn quota() -> Vec<Column> {
    vec![
        name(),
        text("Request", |object| json!(used(object, false))),
        text("Limit", |object| json!(used(object, true))),
        age(),
    ]
}

fn used(quota: &Value, limits: bool) -> String {
    let spent = quota.at("status.used");
    let mut parts: Vec<String> = quota
        .entries("status.hard")
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| {
            let used = spent.get(name).and_then(Value::as_str).unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        })
        .collect();
    parts.sort();
    parts.join(", ")
}

/// Leases.
pub fn lease() -> Vec<Column> {
    vec![name(), text("Holder", |object| json!(object.text("spec.holderIdentity"))), age()]
}

/// PriorityClasses.
pub fn priority_class() -> Vec<Column> {
    vec![
        name(),
        number("Value", |object| count(object, "value")),
        column("Global-Default", "boolean", |object| json!(object.flag("globalDefault"))),
        age(),
        text("PreemptionPolicy", |object| json!(object.text("preemptionPolicy"))),
    ]
}

/// RuntimeClasses.
pub fn runtime_class() -> Vec<Column> {
    vec![name(), text("Handler", |object| object.at("handler").clone()), age()]
}

/// ComponentStatuses.
pub fn component_status() -> Vec<Column> {
    fn healthy(object: &Value) -> Option<&Value> {
        object.items("conditions").iter().find(|condition| condition.text("type") == "Healthy")
    }
    vec![
        name(),
        text("Status", |object| match healthy(object).map(|condition| condition.text("status")) {
            Some("True") => json!("Healthy"),
            Some(_) => json!("Unhealthy"),
            None => json!("Unknown"),
        }),
        text("Message", |object| json!(healthy(object).map_or("", |condition| condition.text("message")))),
        text("Error", |object| json!(healthy(object).map_or("", |condition| condition.text("error")))),
    ]
}
