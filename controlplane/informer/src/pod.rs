//! The fields of a pod that controllers use, parsed once per change.

use super::conditions::{self, Condition};
use super::selector::Labels;
use super::time;
use coracle_cli::causes;
use coracle_fields::core::v1::{ContainerStatus, PodSpec, PodStatus};
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{FromField, Text, fields};
use coracle_kinds::object::{Object, Owner};
use jiff::Timestamp;
use serde::Deserialize;
use std::cmp::Ordering;
use std::sync::Arc;

/// A pod's phase, in the order in which pods are given up first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not started.
    #[default]
    Pending,
    /// Unknown, or not defined by the API.
    Unknown,
    /// Started.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

/// Where the kind's table of fields has what is wanted of a pod without reading it.
const NODE: usize = 0;
const PHASE: usize = 4;
const ADDRESS: usize = 5;
const ADDRESSES: usize = 8;

fn field(pod: &Object, at: usize) -> &str {
    pod.fields.get(at).map_or("", String::as_str)
}

/// The node that a pod of the cache is bound to, or empty.
pub fn node_of(pod: &Object) -> &str {
    field(pod, NODE)
}

/// Whether a pod of the cache has ended.
pub fn has_ended(pod: &Object) -> bool {
    matches!(field(pod, PHASE), "Succeeded" | "Failed")
}

/// Whether a pod of the cache has an address.
pub fn has_address(pod: &Object) -> bool {
    !(field(pod, ADDRESS).is_empty() && field(pod, ADDRESSES).is_empty())
}

/// A pod as controllers see it.
#[derive(Debug, Clone)]
pub struct Pod {
    /// The whole object.
    pub object: Arc<Object>,
    /// Phase.
    pub phase: Phase,
    /// The node it is bound to, or empty.
    pub node: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The highest restart count of its containers.
    pub restarts: i32,
    /// `controller.kubernetes.io/pod-deletion-cost`.
    pub deletion_cost: i32,
}

fields! {
    struct Fields: coracle_fields::core::v1::Pod {
        metadata: Metadata,
        spec: Spec,
        status: Status,
    }

    struct Metadata: ObjectMeta {
        creation_timestamp: Option<String>,
        annotations: Labels,
    }

    struct Spec: PodSpec {
        node_name: String,
    }

    struct Status: PodStatus {
        phase: Phase,
        conditions: Vec<Condition>,
        container_statuses: Vec<Container>,
    }

    struct Container: ContainerStatus {
        restart_count: i32,
    }
}

impl FromField<Text> for Phase {}

/// A value that the API does not define becomes `Unknown`.
impl<'de> Deserialize<'de> for Phase {
    fn deserialize<D: serde::Deserializer<'de>>(phase: D) -> Result<Self, D::Error> {
        let text = String::deserialize(phase)?;
        Ok(match text.as_str() {
            "" | "Pending" => Phase::Pending,
            "Running" => Phase::Running,
            "Succeeded" => Phase::Succeeded,
            "Failed" => Phase::Failed,
            _ => Phase::Unknown,
        })
    }
}

impl Pod {
    /// Reads a pod; what cannot be read is as good as unset.
    pub fn read(object: &Arc<Object>) -> Self {
        let Fields { metadata, spec, status } = object.typed().unwrap_or_else(|error| {
            tracing::error!(pod = object.meta.name, namespace = object.meta.namespace, error = %causes::chain(&error), "unreadable");
            Fields::default()
        });
        let ready = conditions::find(&status.conditions, "Ready").filter(|c| c.is_true());
        let cost = metadata.annotations.get("controller.kubernetes.io/pod-deletion-cost");
        Self {
            object: object.clone(),
            phase: status.phase,
            node: spec.node_name,
            ready: ready.is_some(),
            ready_since: time::parse(ready.and_then(|c| c.last_transition_time.as_deref())),
            created: time::parse(metadata.creation_timestamp.as_deref()),
            restarts: status.container_statuses.iter().map(|c| c.restart_count).max().unwrap_or(0),
            deletion_cost: cost.and_then(|c| c.parse().ok()).unwrap_or(0),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.object.meta.name
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.object.meta.uid
    }

    /// Its labels.
    pub fn labels(&self) -> &Labels {
        &self.object.meta.labels
    }

    /// Its managing controller.
    pub fn controller(&self) -> Option<&Owner> {
        controller_of(&self.object)
    }

    /// Whether it is being deleted.
    pub fn terminating(&self) -> bool {
        self.object.meta.deletion_timestamp.is_some()
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether it counts as a replica: neither ended nor being deleted.
    pub fn active(&self) -> bool {
        !self.ended() && !self.terminating()
    }

    /// Whether it has been ready for `min_ready` seconds.
    pub fn available(&self, min_ready: i32, now: Timestamp) -> bool {
        self.ready && (min_ready <= 0 || self.available_at(min_ready).is_some_and(|at| at <= now))
    }

    /// When it will have been ready for `min_ready` seconds, if it is ready.
    pub fn available_at(&self, min_ready: i32) -> Option<Timestamp> {
        self.ready_since.map(|since| time::after(since, min_ready.into()))
    }
}

/// The managing controller of an object.
pub fn controller_of(object: &Object) -> Option<&Owner> {
    object.meta.owner_references.iter().find(|o| o.controller)
}

/// Which of two pods a scale-down gives up first; `crowd` is the number of related pods on the pod's node. Ages count
/// by their magnitude only, so that a scale-down does not always hit the newest failure domain.
pub fn deletion_order((a, crowd_a): (&Pod, usize), (b, crowd_b): (&Pod, usize), now: Timestamp) -> Ordering {
    let magnitude =
        |at: Option<Timestamp>| at.map(|t| now.duration_since(t).as_nanos().max(0).checked_ilog2());
    let ready = |p: &Pod| if p.ready { magnitude(p.ready_since) } else { None };
    (!a.node.is_empty())
        .cmp(&!b.node.is_empty())
        .then(a.phase.cmp(&b.phase))
        .then(a.ready.cmp(&b.ready))
        .then(a.deletion_cost.cmp(&b.deletion_cost))
        .then(crowd_b.cmp(&crowd_a))
        .then_with(|| ready(a).cmp(&ready(b)))
        .then(b.restarts.cmp(&a.restarts))
        .then_with(|| magnitude(a.created).cmp(&magnitude(b.created)))
        .then_with(|| a.uid().cmp(b.uid()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    fn pod(uid: &str, node: &str, phase: &str, ready: Option<&str>, created: &str) -> Pod {
        let conditions =
            ready.map(|at| json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]));
        Pod::read(&object(json!({
            "metadata": {"name": uid, "uid": uid, "creationTimestamp": created},
            "spec": {"nodeName": node}, "status": {"phase": phase, "conditions": conditions.unwrap_or(json!([]))},
        })))
    }

    #[test]
    fn fields_are_where_they_are_looked_for() {
        let fields = coracle_kinds::registry::fields::pod();
        let names = [NODE, PHASE, ADDRESS, ADDRESSES].map(|at| fields[at].name.as_str());
        assert_eq!(names, ["spec.nodeName", "status.phase", "status.podIP", "status.podIPs"]);
    }

    #[test]
    fn an_invented_phase_is_none_that_ends_a_pod() {
        let day = "2026-01-01T00:00:00Z";
        let odd = pod("odd", "n1", "Dancing", Some(day), day);
        assert_eq!(
            (odd.phase, odd.active(), odd.ready, odd.node.as_str()),
            (Phase::Unknown, true, true, "n1")
        );
    }

    #[test]
    fn those_of_least_use_go_first() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let day = "2026-01-01T00:00:00Z";
        let hour = "2026-01-01T23:00:00Z";
        let mut pods = [
            pod("old-ready", "n1", "Running", Some(day), day),
            pod("new-ready", "n1", "Running", Some(hour), day),
            pod("not-ready", "n1", "Running", None, day),
            pod("pending", "n1", "Pending", None, day),
            pod("unbound", "", "Pending", None, day),
            pod("crowded", "n2", "Running", Some(day), day),
        ];
        pods.sort_by(|a, b| {
            let crowd = |p: &Pod| if p.node == "n2" { 3 } else { 1 };
            deletion_order((a, crowd(a)), (b, crowd(b)), now)
        });
        let names: Vec<&str> = pods.iter().map(Pod::name).collect();
        assert_eq!(names, ["unbound", "pending", "not-ready", "crowded", "new-ready", "old-ready"]);
    }

    #[test]
    fn availability_waits_for_min_ready_seconds() {
        let pod = pod("a", "n1", "Running", Some("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z");
        let at = |t: &str| t.parse().unwrap();
        assert!(pod.available(0, at("2026-01-01T00:00:00Z")));
        assert!(!pod.available(10, at("2026-01-01T00:00:09Z")));
        assert!(pod.available(10, at("2026-01-01T00:00:10Z")));
    }
}
