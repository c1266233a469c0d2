//! What the scheduler writes: bindings, conditions, evictions, claims, events.

// Claims of devices.
mod devices;

pub use devices::Reserved;

use super::attempt::Attempt;
use super::event_handlers::{SOURCES, Source};
use super::pod::PodInfo;
use super::volumes::Decision;
use coracle_client::Client;
use coracle_client::options::{DeleteOptions, Preconditions};
use coracle_client::patch::Patch;
use coracle_client::pipeline::Placement;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodCondition, PodStatus};
use coracle_fields::{Made, make};
use coracle_informer::recorder::{Recorder, Task, Writer};
use coracle_informer::resource::Resource;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use coracle_proto::time;
use coracle_trace::{Shown, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// A pod and its node.
pub struct Placed {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// The name of the node.
    pub node: String,
    /// The attempt that chose the node.
    pub attempt: Attempt,
    /// Shows the attempt until the binding is recorded.
    pub shown: Shown,
}

impl Placed {
    /// Records that the pod was bound or could not be, which ends the attempt.
    pub fn record(&self, answer: &Result<(), ApiError>, times: (Instant, Instant)) {
        match answer {
            Ok(()) => self.attempt.part(Stage::Bind, times, &self.node),
            Err(_) => self.attempt.failed_part(Stage::Bind, times, &self.node),
        }
        self.attempt.end(answer.as_ref().err().map(|error| error.message.as_str()));
    }
}

/// The API, as the scheduler uses it.
#[derive(Clone)]
pub struct Writes {
    client: Client,
    pods: Resource,
    recorder: Recorder,
    busy: Arc<AtomicBool>,
}

impl Writes {
    /// Writes through a client; the task writes events and must run beside.
    pub fn new(client: &Client) -> (Self, Task) {
        let writer = Writer { client: client.clone(), kind: client.kind("", "events") };
        let busy = Arc::new(AtomicBool::new(false));
        let (recorder, task) = Recorder::low_priority("default-scheduler", writer, busy.clone());
        let kind = client.kind("", "pods");
        let cache = client.cache(&kind);
        let pods = Resource::new(client, &recorder, kind, cache);
        (Self { client: client.clone(), pods, recorder, busy }, task)
    }

    /// While pods wait for their nodes, events about others wait for them.
    pub fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// Binds pods to nodes; the results are in order. A conflict means that the pod was bound or deleted in the meantime.
    pub async fn bind(&self, placed: &[Placed]) -> Vec<Result<(), ApiError>> {
        let placements: Vec<Placement<'_>> = placed
            .iter()
            .map(|Placed { pod, node, attempt, .. }| Placement {
                namespace: &pod.namespace,
                name: &pod.name,
                uid: &pod.uid,
                node,
                scope: attempt.scope(),
            })
            .collect();
        let answers = self.client.bind(&placements).await;
        for (Placed { pod, node, .. }, answer) in placed.iter().zip(&answers) {
            if answer.is_ok() {
                self.note_bound(pod, node);
            }
        }
        answers
    }

    /// The event of a pod that was bound.
    pub fn note_bound(&self, pod: &PodInfo, node: &str) {
        let message = format!("Successfully assigned {} to {node}", pod.key);
        self.note(pod, |pods, object| pods.normal(object, "Scheduled", message));
    }

    /// Writes the `PodScheduled` condition and the nominated node, if any.
    pub async fn explain(
        &self,
        pod: &PodInfo,
        message: &str,
        nominated: Option<&str>,
    ) -> Result<(), ApiError> {
        let mut status = self.not_scheduled(pod, "Unschedulable", message);
        match nominated {
            Some(node) => status.edit().nominated_node_name().set(node),
            None if !pod.nominated.is_empty() => status.edit().nominated_node_name().null(),
            None => {}
        }
        self.patch_status(pod, status).await
    }

    /// Writes the `PodScheduled` condition of a pod whose attempt failed for another reason than its nodes.
    pub async fn explain_error(&self, pod: &PodInfo, message: &str) -> Result<(), ApiError> {
        let status = self.not_scheduled(pod, "SchedulerError", message);
        self.patch_status(pod, status).await
    }

    /// The event and the condition of a pod without a node.
    fn not_scheduled(&self, pod: &PodInfo, reason: &str, message: &str) -> Made<PodStatus> {
        let text = message.to_owned();
        self.note(pod, |pods, object| pods.warn(object, "FailedScheduling", text));
        let condition = make!(part PodCondition {
            type_: "PodScheduled",
            status: "False",
            reason,
            message,
            last_transition_time: pod.condition.is_none().then(time::now),
        });
        make!(part PodStatus { conditions: [condition] })
    }

    /// Evicts a victim of a preemption.
    pub async fn evict(&self, victim: &PodInfo, pod: &PodInfo, node: &str) -> Result<(), ApiError> {
        if victim.deleting {
            return Ok(());
        }
        let condition = make!(part PodCondition {
            type_: "DisruptionTarget",
            status: "True",
            reason: "PreemptionByScheduler",
            message: "default-scheduler: preempting to accommodate a higher priority pod",
            last_transition_time: time::now(),
        });
        let status = make!(part PodStatus { conditions: [condition] });
        gone_is_fine(self.patch_status(victim, status).await)?;
        let message = format!("Preempted by pod {} on node {node}", pod.uid);
        self.note(victim, |pods, object| pods.normal(object, "Preempted", message));
        let preconditions = Preconditions { uid: Some(victim.uid.clone()), resource_version: None };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        let deleted = self.client.delete(&self.pods.kind, &victim.namespace, &victim.name, options).await;
        gone_is_fine(deleted.map(drop))
    }

    /// Has a claim's volume reserved or made.
    pub async fn decide(&self, pod: &PodInfo, node: &str, decision: &Decision) -> Result<(), ApiError> {
        match decision {
            Decision::Provision { claim } => {
                let kind = self.client.kind("", "persistentvolumeclaims");
                let change = make!(part PersistentVolumeClaim {
                    metadata: { annotations: [("volume.kubernetes.io/selected-node", node)] },
                });
                let patch = Patch::Merge(change.into_value());
                self.client.patch(&kind, &pod.namespace, claim, "", patch).await.map(drop)
            }
            Decision::Reserve { claim, volume } => {
                let claims = self.client.kind("", "persistentvolumeclaims");
                let found = self.client.get(&claims, &pod.namespace, claim).await?;
                let change = make!(part PersistentVolume {
                    metadata: { annotations: [("pv.kubernetes.io/bound-by-controller", "yes")] },
                    spec: {
                        claim_ref: {
                            api_version: "v1",
                            kind: "PersistentVolumeClaim",
                            namespace: &pod.namespace,
                            name: claim,
                            uid: &found.meta.uid,
                        },
                    },
                });
                let patch = Patch::Merge(change.into_value());
                let volumes = self.client.kind("", "persistentvolumes");
                self.client.patch(&volumes, "", volume, "", patch).await.map(drop)
            }
        }
    }

    /// Says that something is wrong with an object that is followed.
    pub fn warn(&self, source: Source, object: &Arc<Object>, reason: &'static str, message: String) {
        let Some((_, group, plural)) = SOURCES.iter().find(|(of, ..)| *of == source) else { return };
        let kind = self.client.kind(group, plural);
        let cache = self.client.cache(&kind);
        Resource::new(&self.client, &self.recorder, kind, cache).warn(object, reason, message);
    }

    async fn patch_status(&self, pod: &PodInfo, status: Made<PodStatus>) -> Result<(), ApiError> {
        let change = make!(part Pod { metadata: { uid: &pod.uid }, status });
        let patch = Patch::Strategic(change.into_value());
        self.client.patch(&self.pods.kind, &pod.namespace, &pod.name, "status", patch).await.map(drop)
    }

    /// The object of a node.
    pub fn node(&self, name: &str) -> Option<Arc<Object>> {
        self.client.cache(&self.client.kind("", "nodes")).get("", name)
    }

    /// The object of a pod.
    pub fn pod(&self, pod: &PodInfo) -> Option<Arc<Object>> {
        self.pods.cache.get(&pod.namespace, &pod.name)
    }

    fn note(&self, pod: &PodInfo, say: impl FnOnce(&Resource, &Arc<coracle_kinds::object::Object>)) {
        if let Some(object) = self.pods.cache.get(&pod.namespace, &pod.name) {
            say(&self.pods, &object);
        }
    }
}

/// Whether a write failed because its pod is gone, although another one may have its name by now: a patch for another uid is
/// an invalid change of `metadata.uid`.
pub fn is_gone(error: &ApiError) -> bool {
    let is_other =
        error.code == 422 && error.details.causes.iter().any(|cause| cause.field == "metadata.uid");
    error.is_not_found() || is_other
}

/// A victim that is gone needs no eviction. A deletion of another uid is a conflict.
fn gone_is_fine(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if is_gone(&error) || error.is_conflict() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_proto::status::FieldError;
    use serde_json::json;

    #[test]
    fn only_errors_of_pods_that_are_gone_are_passed_over() {
        let invalid = |field: &str| {
            let cause = FieldError::invalid(field, &json!("u"), "field is immutable");
            ApiError::invalid("", "Pod", "a", vec![cause])
        };
        for (error, gone, fine) in [
            (ApiError::not_found("", "pods", "a"), true, true),
            (invalid("metadata.uid"), true, true),
            (ApiError::conflict("", "pods", "a", "Precondition failed"), false, true),
            (invalid("status.conditions[0].type"), false, false),
            (ApiError::new(422, "Invalid", "denied by a webhook"), false, false),
            (ApiError::unavailable("the store does not answer"), false, false),
        ] {
            assert_eq!((is_gone(&error), gone_is_fine(Err(error.clone())).is_ok()), (gone, fine), "{error}");
        }
        assert_eq!(gone_is_fine(Ok(())), Ok(()));
    }
}
