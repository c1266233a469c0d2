//! How the objects of a tree stand now: ready, or what they wait for.

use coracle_fields::autoscaling_v2::HorizontalPodAutoscaler;
use coracle_fields::core::v1::{
    Container, ContainerStatus, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
};
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{Schema as _, View, storage_class};
use coracle_kinds::object::Object;
use coracle_timeline::{Cause, ObjectKey, Standing};
use std::sync::Arc;

/// Finalizers that end by themselves.
const OWN_FINALIZERS: &[&str] = &["foregroundDeletion", "orphan"];

/// What is known about the object that another one depends on.
pub(super) enum Other {
    /// The user may not get it: neither how it is nor whether it exists may be said.
    Hidden,
    Missing,
    There(Arc<Object>),
}

/// The object that decides how another one stands: the node of a pod, the volume or the class of a claim.
pub(super) fn depends_on(resource: &str, object: &Object) -> Option<ObjectKey> {
    let value = object.value();
    let (resource, name) = match resource {
        "pods" => ("nodes", Pod::of(&value).spec().node_name().text()),
        "persistentvolumeclaims" => {
            let claim = PersistentVolumeClaim::of(&value);
            match claim.spec().volume_name().text() {
                "" => ("storageclasses.storage.k8s.io", storage_class::of_claim(claim).unwrap_or_default()),
                volume => ("persistentvolumes", volume),
            }
        }
        _ => return None,
    };
    let key = ObjectKey { resource: resource.to_owned(), namespace: String::new(), name: name.to_owned() };
    (!name.is_empty()).then_some(key)
}

/// How an object stands. `other` is what it [depends on](depends_on); not read if there is none.
pub(super) fn standing(resource: &str, object: &Object, other: &Other) -> Standing {
    if object.meta.deletion_timestamp.is_some() {
        return Standing::Ends(end(resource, object, other));
    }
    let cause = match resource {
        "pods" => pod(Pod::of(&object.value()), other),
        "persistentvolumeclaims" => claim(PersistentVolumeClaim::of(&object.value()), other),
        coracle_timeline::AUTOSCALERS => autoscaler(HorizontalPodAutoscaler::of(&object.value())),
        _ => None,
    };
    cause.map_or(Standing::Ready, Standing::Waits)
}

fn waits(what: impl Into<String>) -> Cause {
    Cause { what: what.into(), stuck: false }
}

fn stuck(what: impl Into<String>) -> Cause {
    Cause { what: what.into(), stuck: true }
}

/// What a deletion waits for.
fn end(resource: &str, object: &Object, other: &Other) -> Cause {
    let finalizers = &object.meta.finalizers;
    if !finalizers.is_empty() {
        let what = format!("finalizer {}", finalizers.join(", "));
        let ends_by_itself = finalizers.iter().all(|name| OWN_FINALIZERS.contains(&name.as_str()));
        return Cause { what, stuck: !ends_by_itself };
    }
    match resource {
        "pods" => {
            let value = object.value();
            let name = Pod::of(&value).spec().node_name().text();
            if name.is_empty() { waits("its deletion") } else { node(name, other) }
        }
        "namespaces" => namespace(Namespace::of(&object.value())),
        _ => waits("its deletion"),
    }
}

/// What is left in a namespace that is being deleted.
fn namespace(namespace: View<'_, Namespace>) -> Cause {
    const TROUBLE: &[&str] = &[
        "NamespaceFinalizersRemaining",
        "NamespaceDeletionContentFailure",
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
    ];
    for trouble in TROUBLE {
        let mut conditions = namespace.status().conditions().items();
        let is_it =
            conditions.find(|condition| condition.type_() == *trouble && condition.status() == "True");
        if let Some(condition) = is_it {
            return stuck(condition.message().text());
        }
    }
    let others: Vec<&str> =
        namespace.spec().finalizers().texts().filter(|name| *name != "kubernetes").collect();
    if others.is_empty() { waits("its content") } else { stuck(format!("finalizer {}", others.join(", "))) }
}

/// A node that has to do something.
fn node(name: &str, other: &Other) -> Cause {
    let object = match other {
        Other::Hidden => return waits(name),
        Other::Missing => return stuck(format!("{name}, which does not exist")),
        Other::There(object) => object,
    };
    let value = object.value();
    let mut conditions = Node::of(&value).status().conditions().items();
    match conditions.any(|condition| condition.type_() == "Ready" && condition.status() == "True") {
        true => waits(name),
        false => stuck(format!("{name}, which is away")),
    }
}

/// What a pod waits for, unless it is ready or has ended.
fn pod(pod: View<'_, Pod>, other: &Other) -> Option<Cause> {
    let status = pod.status();
    let condition = |name: &str| status.conditions().items().find(|condition| condition.type_() == name);
    let is_ready = condition("Ready").is_some_and(|condition| condition.status() == "True");
    if is_ready || matches!(status.phase().text(), "Succeeded" | "Failed") {
        return None;
    }
    let name = pod.spec().node_name().text();
    if name.is_empty() {
        let reason = condition("PodScheduled").map(|condition| condition.reason().text());
        return Some(match reason {
            Some("Unschedulable") => stuck("a node"),
            Some("SchedulingGated") => stuck("its scheduling gates"),
            _ => waits("a node"),
        });
    }
    let at = node(name, other);
    if at.stuck {
        return Some(at);
    }
    let specs = || pod.spec().init_containers().items().chain(pod.spec().containers().items());
    let spec = |name: &str| specs().find(|spec| spec.name() == name);
    let mut states = status.init_container_statuses().items().chain(status.container_statuses().items());
    let cause = states.find_map(|state| container(spec(state.name().text())?, state));
    Some(cause.unwrap_or(at))
}

/// What a container waits for, unless it is ready, has ended, or its node has not begun with it.
fn container(spec: View<'_, Container>, state: View<'_, ContainerStatus>) -> Option<Cause> {
    let name = state.name().text();
    let waiting = state.state().waiting();
    match waiting.reason().text() {
        "" | "ContainerCreating" | "PodInitializing" => {}
        "CrashLoopBackOff" => return Some(stuck(format!("crash back-off of container {name}"))),
        "ImagePullBackOff" | "ErrImagePull" => {
            return Some(stuck(format!("the image of container {name}")));
        }
        reason => return Some(stuck(format!("container {name}: {reason}"))),
    }
    let what = unready(spec, state)?;
    Some(waits(format!("{what} of container {name}")))
}

/// Which step of a container has not ended.
fn unready(spec: View<'_, Container>, state: View<'_, ContainerStatus>) -> Option<&'static str> {
    let (is_running, is_started) = (state.state().running().is_set(), state.started().flag());
    let is_made = !state.container_id().text().is_empty();
    if state.ready().flag() || state.state().terminated().is_set() {
        None
    } else if is_running && !is_started && spec.startup_probe().is_set() {
        Some("the startup probe")
    } else if is_made && !is_started && spec.lifecycle().post_start().is_set() {
        Some("the postStart hook")
    } else if is_running && spec.readiness_probe().is_set() {
        Some("the readiness probe")
    } else {
        None
    }
}

/// What a claim waits for, unless it is bound.
fn claim(claim: View<'_, PersistentVolumeClaim>, other: &Other) -> Option<Cause> {
    match claim.status().phase().text() {
        "Bound" => return None,
        "Lost" => return Some(stuck("its volume, which is lost")),
        _ => {}
    }
    let volume = claim.spec().volume_name().text();
    let class = storage_class::of_claim(claim).unwrap_or_default();
    if !volume.is_empty() {
        return Some(match other {
            Other::Missing => stuck(format!("volume {volume}, which does not exist")),
            Other::There(object) if is_taken(PersistentVolume::of(&object.value()), claim) => {
                stuck(format!("volume {volume}, which is for another claim"))
            }
            Other::Hidden | Other::There(_) => waits(format!("volume {volume}")),
        });
    }
    if class.is_empty() {
        return Some(stuck("a volume without a storage class"));
    }
    Some(match other {
        Other::Missing => stuck(format!("storage class {class}, which does not exist")),
        Other::There(object)
            if StorageClass::of(&object.value()).volume_binding_mode() == "WaitForFirstConsumer" =>
        {
            waits("a pod that uses it")
        }
        Other::Hidden | Other::There(_) => waits(format!("a volume of storage class {class}")),
    })
}

/// Whether a volume is for another claim.
fn is_taken(volume: View<'_, PersistentVolume>, claim: View<'_, PersistentVolumeClaim>) -> bool {
    let (holder, meta) = (volume.spec().claim_ref(), claim.metadata());
    let is_it = holder.name() == meta.name().text() && holder.namespace() == meta.namespace().text();
    holder.is_set() && !is_it
}

/// What an autoscaler that does not scale waits for.
fn autoscaler(autoscaler: View<'_, HorizontalPodAutoscaler>) -> Option<Cause> {
    let failed = |name: &str| {
        let mut conditions = autoscaler.status().conditions().items();
        conditions.find(|condition| condition.type_() == name && condition.status() == "False")
    };
    if failed("AbleToScale").is_some_and(|condition| condition.reason() == "FailedGetScale") {
        return Some(stuck("its target, which cannot be scaled"));
    }
    match failed("ScalingActive")?.reason().text() {
        // It is to have no pods.
        "ScalingDisabled" => None,
        reason if reason.starts_with("FailedGet") => Some(stuck("metrics")),
        reason => Some(stuck(format!("its condition ScalingActive ({reason})"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing;
    use serde_json::{Value, json};

    fn object(mut value: Value) -> Arc<Object> {
        if value["metadata"].is_null() {
            value["metadata"] = json!({});
        }
        testing::object(value)
    }

    /// How an object stands in a cluster with a node that is there, and one that is away.
    fn said(resource: &str, value: Value) -> String {
        let there = |value: Value| Other::There(object(value));
        let find = |key: ObjectKey| match key.name.as_str() {
            "n1" => there(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})),
            "n3" => there(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})),
            "late" => there(json!({"volumeBindingMode": "WaitForFirstConsumer"})),
            "pv-1" => there(json!({"spec": {"claimRef": {"namespace": "shop", "name": "first"}}})),
            _ => Other::Missing,
        };
        said_with(resource, value, find)
    }

    /// The same for somebody who may get none of the objects that it depends on.
    fn said_to_others(resource: &str, value: Value) -> String {
        said_with(resource, value, |_| Other::Hidden)
    }

    fn said_with(resource: &str, value: Value, find: impl Fn(ObjectKey) -> Other) -> String {
        let text = |cause: Cause| if cause.stuck { format!("stuck: {}", cause.what) } else { cause.what };
        let object = object(value);
        let other = depends_on(resource, &object).map_or(Other::Hidden, find);
        match standing(resource, &object, &other) {
            Standing::Waits(cause) => format!("waits {}", text(cause)),
            Standing::Ends(cause) => format!("ends {}", text(cause)),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn what_may_not_be_read_is_told_by_its_name_alone() {
        // Whether the node is there, is away or does not exist, the pod says only which one it is.
        for node in ["n1", "n3", "n9"] {
            assert_eq!(said_to_others("pods", at(node, json!({}))), format!("waits {node}"));
        }
        let deleted =
            json!({"metadata": {"deletionTimestamp": "2026-11-17T04:00:00Z"}, "spec": {"nodeName": "n3"}});
        assert_eq!(said_to_others("pods", deleted), "ends n3");
        let claim = |spec: Value| json!({"spec": spec, "status": {"phase": "Pending"}});
        for class in ["gold", "late"] {
            let said = said_to_others("persistentvolumeclaims", claim(json!({"storageClassName": class})));
            assert_eq!(said, format!("waits a volume of storage class {class}"));
        }
        let bound = claim(json!({"volumeName": "pv-1", "storageClassName": "gold"}));
        assert_eq!(said_to_others("persistentvolumeclaims", bound), "waits volume pv-1");
    }

    fn at(node: &str, status: Value) -> Value {
        let container = json!({"name": "c", "readinessProbe": {"periodSeconds": 1}});
        json!({"spec": {"nodeName": node, "containers": [container]}, "status": status})
    }

    #[test]
    fn pods() {
        let state = |state: Value| json!({"containerStatuses": [{"name": "c", "ready": false, "started": true, "state": state}]});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        for (pod, want) in [
            (at("n1", ready.clone()), "Ready"),
            (at("n3", ready), "Ready"),
            (at("n1", json!({"phase": "Failed"})), "Ready"),
            (at("n1", json!({})), "waits n1"),
            (at("n3", json!({})), "waits stuck: n3, which is away"),
            (at("n9", json!({})), "waits stuck: n9, which does not exist"),
            (at("", json!({})), "waits a node"),
            (at("n1", state(json!({"running": {}}))), "waits the readiness probe of container c"),
            (
                at("n1", state(json!({"waiting": {"reason": "CrashLoopBackOff"}}))),
                "waits stuck: crash back-off of container c",
            ),
        ] {
            assert_eq!(said("pods", pod.clone()), want, "{pod}");
        }
        let hook = json!({"spec": {"nodeName": "n1", "containers": [{"name": "c", "lifecycle": {"postStart": {"exec": {}}}}]},
            "status": {"containerStatuses": [{"name": "c", "ready": false, "containerID": "x", "state": {"running": {}}}]}});
        assert_eq!(said("pods", hook), "waits the postStart hook of container c");
    }

    #[test]
    fn deletions() {
        let ends = |mut value: Value, finalizers: &[&str]| {
            value["metadata"] =
                json!({"deletionTimestamp": "2026-11-17T04:00:00Z", "finalizers": finalizers});
            value
        };
        let held = "ends stuck: finalizer example.com/hold";
        assert_eq!(said("configmaps", ends(json!({}), &["example.com/hold"])), held);
        assert_eq!(said("configmaps", ends(json!({}), &["orphan"])), "ends finalizer orphan");
        assert_eq!(said("pods", ends(at("n3", json!({})), &[])), "ends stuck: n3, which is away");
        assert_eq!(said("pods", ends(at("n1", json!({})), &[])), "ends n1");
        let remains = json!({"status": {"conditions": [{"type": "NamespaceFinalizersRemaining", "status": "True",
            "message": "example.com/hold in 1 resource instances"}]}});
        let namespace = said("namespaces", ends(remains, &[]));
        assert_eq!(namespace, "ends stuck: example.com/hold in 1 resource instances");
        assert_eq!(said("namespaces", ends(json!({}), &[])), "ends its content");
    }

    #[test]
    fn autoscalers() {
        let condition = |name: &str, status: &str, reason: &str| json!({"status": {"conditions": [{"type": name, "status": status, "reason": reason}]}});
        for (autoscaler, want) in [
            (json!({}), "Ready"),
            (condition("ScalingActive", "True", "ValidMetricFound"), "Ready"),
            (condition("ScalingActive", "False", "ScalingDisabled"), "Ready"),
            (condition("ScalingActive", "False", "FailedGetPodsMetric"), "waits stuck: metrics"),
            (
                condition("ScalingActive", "False", "InvalidSelector"),
                "waits stuck: its condition ScalingActive (InvalidSelector)",
            ),
            (
                condition("AbleToScale", "False", "FailedGetScale"),
                "waits stuck: its target, which cannot be scaled",
            ),
        ] {
            assert_eq!(said(coracle_timeline::AUTOSCALERS, autoscaler), want);
        }
    }

    #[test]
    fn claims() {
        let claim = |phase: &str, class: &str| json!({"spec": {"storageClassName": class}, "status": {"phase": phase}});
        for (claim, want) in [
            (claim("Bound", "x"), "Ready"),
            (claim("Pending", "gold"), "waits stuck: storage class gold, which does not exist"),
            (claim("Pending", "late"), "waits a pod that uses it"),
            (claim("Pending", ""), "waits stuck: a volume without a storage class"),
            (claim("Lost", "x"), "waits stuck: its volume, which is lost"),
        ] {
            assert_eq!(said("persistentvolumeclaims", claim), want);
        }
        let named = |volume: &str, claim: &str| {
            let meta = json!({"namespace": "shop", "name": claim});
            said("persistentvolumeclaims", json!({"metadata": meta, "spec": {"volumeName": volume}}))
        };
        assert_eq!(named("pv-1", "first"), "waits volume pv-1");
        assert_eq!(named("pv-1", "second"), "waits stuck: volume pv-1, which is for another claim");
        assert_eq!(named("pv-9", "first"), "waits stuck: volume pv-9, which does not exist");
    }
}
