//! Fields that field selectors may name.

use crate::object::field::Field;
use coracle_fields::batch::v1::Job;
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::core::v1::{Event, Namespace, Node, Pod, ReplicationController, Secret, Service};
use coracle_fields::resource::v1::ResourceSlice;
use coracle_fields::{Access, At, Json, Reader, Schema, events};
use serde_json::Value;

/// The dotted path from an object to one of its fields.
struct Path(String);

impl Access for Path {
    fn field(&self, field: coracle_fields::Field) -> Self {
        let dot = if self.0.is_empty() { "" } else { "." };
        Path(format!("{}{dot}{}", self.0, field.name))
    }

    fn reader<'a>(&self) -> Reader<'a>
    where
        Self: 'a,
    {
        Reader::Tree(&Value::Null)
    }
}

/// A field of `T`.
type Place<T> = fn(At<Path, T>) -> At<Path, Json>;

/// Such as `spec.nodeName`.
fn path<T>(place: Place<T>) -> String {
    place(At::new(Path(String::new()))).0.clone()
}

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

/// Reads the scalar at a dotted path, or `unset` when it is not there.
fn read(path: String, unset: &'static str) -> impl Fn(&Value) -> String + Send + Sync + 'static {
    move |object: &Value| {
        let text = text(object, &path);
        if text.is_empty() { unset.to_owned() } else { text }
    }
}

/// Fields that are read from where their name says.
fn plain<T>(places: &[Place<T>]) -> Vec<Field> {
    places.iter().map(|place| or(*place, "")).collect()
}

/// A field that reads as `unset` when it is not there.
fn or<T>(place: Place<T>, unset: &'static str) -> Field {
    let path = path(place);
    Field::new(path.clone(), read(path.clone(), unset)).reading(&[path])
}

/// Fields of Pods.
pub fn pod() -> Vec<Field> {
    let mut fields = plain::<Pod>(&[
        |pod| pod.spec().node_name().erased(),
        |pod| pod.spec().restart_policy().erased(),
        |pod| pod.spec().scheduler_name().erased(),
        |pod| pod.spec().service_account_name().erased(),
        |pod| pod.status().phase().erased(),
        |pod| pod.status().pod_ip().erased(),
        |pod| pod.status().nominated_node_name().erased(),
    ]);
    fields.push(or::<Pod>(|pod| pod.spec().host_network().erased(), "false"));
    let addresses = |pod: &Value| {
        let addresses = Pod::of(pod).status().pod_ips().items();
        addresses.filter_map(|address| address.ip().get()).collect::<Vec<_>>().join(",")
    };
    let path = path::<Pod>(|pod| pod.status().pod_ips().erased());
    fields.push(Field::new(path.clone(), addresses).reading(&[path]));
    fields
}

/// Fields of Nodes.
pub fn node() -> Vec<Field> {
    vec![or::<Node>(|node| node.spec().unschedulable().erased(), "false")]
}

/// Fields of Namespaces.
pub fn namespace() -> Vec<Field> {
    plain::<Namespace>(&[|namespace| namespace.status().phase().erased()])
}

/// Fields of Secrets.
pub fn secret() -> Vec<Field> {
    plain::<Secret>(&[|secret| secret.type_().erased()])
}

/// Fields of Services.
pub fn service() -> Vec<Field> {
    plain::<Service>(&[
        |service| service.spec().cluster_ip().erased(),
        |service| service.spec().type_().erased(),
    ])
}

/// Fields of ReplicationControllers.
pub fn replication_controller() -> Vec<Field> {
    vec![or::<ReplicationController>(|controller| controller.status().replicas().erased(), "0")]
}

/// Fields of Jobs.
pub fn job() -> Vec<Field> {
    let path = path::<Job>(|job| job.status().succeeded().erased());
    vec![Field::new("status.successful", read(path.clone(), "0")).reading(&[path])]
}

/// Fields of CertificateSigningRequests.
pub fn signing_request() -> Vec<Field> {
    plain::<CertificateSigningRequest>(&[|request| request.spec().signer_name().erased()])
}

/// Fields of ResourceSlices.
pub fn resource_slice() -> Vec<Field> {
    plain::<ResourceSlice>(&[
        |slice| slice.spec().node_name().erased(),
        |slice| slice.spec().driver().erased(),
    ])
}

/// Fields of core Events.
pub fn event() -> Vec<Field> {
    let mut fields = plain::<Event>(&[
        |event| event.involved_object().kind().erased(),
        |event| event.involved_object().namespace().erased(),
        |event| event.involved_object().name().erased(),
        |event| event.involved_object().uid().erased(),
        |event| event.involved_object().api_version().erased(),
        |event| event.involved_object().resource_version().erased(),
        |event| event.involved_object().field_path().erased(),
        |event| event.reason().erased(),
        |event| event.reporting_component().erased(),
        |event| event.type_().erased(),
    ]);
    let reads = [
        path::<Event>(|event| event.source().component().erased()),
        path::<Event>(|event| event.reporting_component().erased()),
    ];
    fields.push(Field::new("source", source).reading(&reads));
    fields
}

/// Fields of `events.k8s.io` Events. They read the stored core Event, in the order of [`event`], so that an index
/// into one list is an index into the other.
pub fn regarding_event() -> Vec<Field> {
    let pairs: [(Place<events::v1::Event>, Place<Event>); 10] = [
        (|event| event.regarding().kind().erased(), |event| event.involved_object().kind().erased()),
        (
            |event| event.regarding().namespace().erased(),
            |event| event.involved_object().namespace().erased(),
        ),
        (|event| event.regarding().name().erased(), |event| event.involved_object().name().erased()),
        (|event| event.regarding().uid().erased(), |event| event.involved_object().uid().erased()),
        (
            |event| event.regarding().api_version().erased(),
            |event| event.involved_object().api_version().erased(),
        ),
        (
            |event| event.regarding().resource_version().erased(),
            |event| event.involved_object().resource_version().erased(),
        ),
        (
            |event| event.regarding().field_path().erased(),
            |event| event.involved_object().field_path().erased(),
        ),
        (|event| event.reason().erased(), |event| event.reason().erased()),
        (|event| event.reporting_controller().erased(), |event| event.reporting_component().erased()),
        (|event| event.type_().erased(), |event| event.type_().erased()),
    ];
    pairs.into_iter().map(|(name, place)| Field::new(path(name), read(path(place), ""))).collect()
}

fn source(event: &Value) -> String {
    let event = Event::of(event);
    event.source().component().filled().unwrap_or(event.reporting_component().text()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths() {
        let names = |fields: Vec<Field>| fields.into_iter().map(|field| field.name).collect::<Vec<_>>();
        assert_eq!(
            names(pod()),
            [
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
                "spec.hostNetwork",
                "status.podIPs",
            ]
        );
        assert_eq!(names(service()), ["spec.clusterIP", "spec.type"]);
        assert_eq!(names(secret()), ["type"]);
        let (core, view) = (names(event()), names(regarding_event()));
        assert_eq!((&*core[6], &*view[6]), ("involvedObject.fieldPath", "regarding.fieldPath"));
        assert_eq!((&*core[8], &*view[8]), ("reportingComponent", "reportingController"));
        assert!(event().iter().all(|field| !field.reads.is_empty()), "an Event is not read whole");
    }
}
