//! Records Kubernetes Events in the background; repeated ones are counted.

// An event that was not sent yet.
mod draft;
// Aggregation and rate limit of similar events.
mod correlate;

use coracle_cli::causes;
use coracle_fields::core::v1;
use coracle_fields::make;
use coracle_proto::time::format_time;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use tokio::sync::mpsc;

use self::correlate::{Correlator, Observed};
use self::draft::Draft;
pub use self::draft::Kind;
use crate::cluster::Make;
use crate::pod::spec::{self, Role};
use std::sync::Arc;

/// Maximum number of queued events; later ones are dropped.
const QUEUE_SIZE: usize = 1000;
/// Longest message in characters. Only Events with `eventTime` are limited by the API; those of a resize have the resources of all
/// containers, as JSON that somebody may read.
const LONGEST: usize = 16 * 1024;

/// Queues events; never blocks.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Draft>,
}

impl Recorder {
    /// Records an event about an object.
    pub fn record(
        &self,
        about: ObjectReference,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let draft = Draft { about, kind, reason, message: message.into(), at: Timestamp::now() };
        tracing::debug!(reason, message = draft.message, "event");
        let _ = self.sender.try_send(draft);
    }

    /// Records an event about a pod.
    pub fn pod(&self, pod: &Pod, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.record(pod_reference(pod, None), kind, reason, message);
    }

    /// Records an event about a container of a pod.
    pub fn container(
        &self,
        pod: &Pod,
        container: &str,
        kind: Kind,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.record(pod_reference(pod, Some(container)), kind, reason, message);
    }

    /// Records an event about the node.
    pub fn node(&self, node: &Node, kind: Kind, reason: &'static str, message: impl Into<String>) {
        let name = node.metadata.name.clone();
        let about = ObjectReference {
            kind: Some("Node".into()),
            uid: name.clone(),
            name,
            ..ObjectReference::default()
        };
        self.record(about, kind, reason, message);
    }
}

/// A reference to a pod, or to one of its containers.
pub fn pod_reference(pod: &Pod, container: Option<&str>) -> ObjectReference {
    let spec = spec::spec(pod);
    let field_path = container.and_then(|name| {
        let list = match spec::container(&spec, name)?.0 {
            Role::Init | Role::Sidecar => "initContainers",
            Role::Regular => "containers",
            Role::Ephemeral => "ephemeralContainers",
        };
        Some(format!("spec.{list}{{{name}}}"))
    });
    ObjectReference {
        kind: Some("Pod".into()),
        api_version: Some("v1".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        // A static pod is known to the API by its mirror, whose uid is not ours to know: the hash stands for it.
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path,
    }
}

/// A recorder, and the factory of the task that sends its events.
pub fn recorder(client: kube::Client, node: String) -> (Recorder, Make) {
    let (sender, receiver) = mpsc::channel(QUEUE_SIZE);
    // A restarted task continues with the queue.
    let parts = Arc::new((client, node, tokio::sync::Mutex::new(receiver)));
    let make = move || {
        let parts = parts.clone();
        let task = async move {
            let (client, node, receiver) = &*parts;
            let (mut seen, mut receiver) = (Correlator::default(), receiver.lock().await);
            while let Some(draft) = receiver.recv().await {
                send(&mut seen, client, node, draft).await;
            }
        };
        Box::pin(task) as futures::future::BoxFuture<'static, ()>
    };
    (Recorder { sender }, Box::new(make))
}

/// Sends one event; failures are logged and the event is lost, as upstream does after its retries.
async fn send(seen: &mut Correlator, client: &kube::Client, node: &str, draft: Draft) {
    let Some(observed) = seen.observe(&draft) else { return };
    let namespace = draft.about.namespace.clone().unwrap_or_else(|| "default".into());
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    if let Some(name) = &observed.stored {
        let patch = make!(part v1::Event {
            count: observed.count,
            last_timestamp: format_time(draft.at),
            message: cut(&observed.message),
        });
        match api.patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => return,
            // The Event object expired.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                tracing::debug!(error = %causes::chain(&error), "event not counted");
                return;
            }
        }
    }
    let event = event(&draft, &observed, &namespace, node);
    let name = event.metadata.name.clone().unwrap_or_default();
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => seen.stored(&observed.key, name),
        Err(error) => {
            tracing::debug!(error = %causes::chain(&error), reason = draft.reason, "event not recorded")
        }
    }
}

fn cut(message: &str) -> String {
    message.chars().take(LONGEST).collect()
}

fn event(draft: &Draft, observed: &Observed, namespace: &str, node: &str) -> Event {
    let object = draft.about.name.as_deref().unwrap_or_default();
    let name = format!("{object}.{:x}", draft.at.as_nanosecond());
    Event {
        metadata: ObjectMeta { name: Some(name), namespace: Some(namespace.into()), ..ObjectMeta::default() },
        involved_object: draft.about.clone(),
        type_: Some(format!("{:?}", draft.kind)),
        reason: Some(draft.reason.into()),
        message: Some(cut(&observed.message)),
        source: Some(EventSource { component: Some("kubelet".into()), host: Some(node.into()) }),
        reporting_component: Some("kubelet".into()),
        reporting_instance: Some(node.into()),
        first_timestamp: Some(Time(observed.first)),
        last_timestamp: Some(Time(draft.at)),
        count: Some(observed.count),
        ..Event::default()
    }
}
