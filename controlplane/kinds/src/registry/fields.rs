//! Fields that field selectors may name.

use super::kinds::Field;
use serde_json::Value;

/// The scalar at a dotted path as text, empty when unset.
fn text(object: &Value, path: &str) -> String {
    let mut at = object;
    for part in path.split('.') {
        match at.get(part) {
            Some(next) => at = next,
            None => return String::new(),
        }
    }
    match at {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Fields that are read from where their name says.
fn plain(paths: &'static [&'static str]) -> Vec<Field> {
    paths
        .iter()
        .map(|path| Field::new(*path, move |object| text(object, path)).reading(std::slice::from_ref(path)))
        .collect()
}

/// A field that reads as `unset` when it is not there.
fn or(path: &'static [&'static str; 1], unset: &'static str) -> Field {
    let read = move |object: &Value| {
        let text = text(object, path[0]);
        if text.is_empty() { unset.into() } else { text }
    };
    Field::new(path[0], read).reading(path)
}

/// Fields of Pods.
pub fn pod() -> Vec<Field> {
    let mut fields = plain(&[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ]);
    fields.push(or(&["spec.hostNetwork"], "false"));
    let addresses = |pod: &Value| {
        let ips = pod.pointer("/status/podIPs").and_then(Value::as_array).into_iter().flatten();
        ips.filter_map(|ip| ip["ip"].as_str()).collect::<Vec<_>>().join(",")
    };
    fields.push(Field::new("status.podIPs", addresses).reading(&["status.podIPs"]));
    fields
}

/// Fields of Nodes.
pub fn node() -> Vec<Field> {
    vec![or(&["spec.unschedulable"], "false")]
}

/// Fields of Namespaces.
pub fn namespace() -> Vec<Field> {
    plain(&["status.phase"])
}

/// Fields of Secrets.
pub fn secret() -> Vec<Field> {
    plain(&["type"])
}

/// Fields of Services.
pub fn service() -> Vec<Field> {
    plain(&["spec.clusterIP", "spec.type"])
}

/// Fields of ReplicationControllers.
pub fn replication_controller() -> Vec<Field> {
    vec![or(&["status.replicas"], "0")]
}

/// Fields of Jobs.
pub fn job() -> Vec<Field> {
    vec![Field::new("status.successful", |job| {
        let count = text(job, "status.succeeded");
        if count.is_empty() { "0".into() } else { count }
    })]
}

/// Fields of CertificateSigningRequests.
pub fn signing_request() -> Vec<Field> {
    plain(&["spec.signerName"])
}

/// Fields of ResourceSlices.
pub fn resource_slice() -> Vec<Field> {
    plain(&["spec.nodeName", "spec.driver"])
}

/// Fields of core Events.
pub fn event() -> Vec<Field> {
    let mut fields = plain(&[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ]);
    fields.push(Field::new("source", source).reading(&["source.component", "reportingComponent"]));
    fields
}

/// Fields of `events.k8s.io` Events. They read the stored core Event, in the order of [`event`], so that an index
/// into one list is an index into the other.
pub fn regarding_event() -> Vec<Field> {
    let pairs: &[(&'static str, &'static str)] = &[
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reason", "reason"),
        ("reportingController", "reportingComponent"),
        ("type", "type"),
    ];
    pairs.iter().map(|&(name, path)| Field::new(name, move |event| text(event, path))).collect()
}

fn source(event: &Value) -> String {
    let component = text(event, "source.component");
    if component.is_empty() { text(event, "reportingComponent") } else { component }
}
