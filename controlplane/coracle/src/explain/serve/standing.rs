//! How the objects of a tree stand now: ready, or what they wait for.

use coracle_fields::core::v1::{Container, ContainerStatus, Namespace, Node, PersistentVolumeClaim, Pod};
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{Schema as _, View};
use coracle_kinds::object::Object;
use coracle_timeline::{Cause, ObjectKey, Standing};
use std::sync::Arc;

/// Finalizers that end by themselves.
const OWN_FINALIZERS: &[&str] = &["foregroundDeletion", "orphan"];

/// Reads other objects.
pub(super) type Find<'a> = &'a dyn Fn(&ObjectKey) -> Option<Arc<Object>>;

/// How an object stands.
pub(super) fn standing(resource: &str, object: &Object, find: Find<'_>) -> Standing {
    if object.meta.deletion_timestamp.is_some() {
        return Standing::Ends(end(resource, object, find));
    }
    let cause = match resource {
        "pods" => pod(Pod::of(&object.value()), find),
        "persistentvolumeclaims" => claim(PersistentVolumeClaim::of(&object.value()), find),
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

fn cluster_scoped(resource: &str, name: &str) -> ObjectKey {
    ObjectKey { resource: resource.to_owned(), namespace: String::new(), name: name.to_owned() }
}

/// What a deletion waits for.
fn end(resource: &str, object: &Object, find: Find<'_>) -> Cause {
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
            if name.is_empty() { waits("its deletion") } else { node(name, find) }
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
fn node(name: &str, find: Find<'_>) -> Cause {
    let Some(object) = find(&cluster_scoped("nodes", name)) else {
        return stuck(format!("{name}, which does not exist"));
    };
    let value = object.value();
    let mut conditions = Node::of(&value).status().conditions().items();
    match conditions.any(|condition| condition.type_() == "Ready" && condition.status() == "True") {
        true => waits(name),
        false => stuck(format!("{name}, which is away")),
    }
}

/// What a pod waits for, unless it is ready or has ended.
fn pod(pod: View<'_, Pod>, find: Find<'_>) -> Option<Cause> {
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
    let at = node(name, find);
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
fn claim(claim: View<'_, PersistentVolumeClaim>, find: Find<'_>) -> Option<Cause> {
    match claim.status().phase().text() {
        "Bound" => return None,
        "Lost" => return Some(stuck("its volume, which is lost")),
        _ => {}
    }
    let volume = claim.spec().volume_name().text();
    let class = claim.spec().storage_class_name().text();
    if !volume.is_empty() {
        return Some(match find(&cluster_scoped("persistentvolumes", volume)) {
            Some(_) => waits(format!("volume {volume}")),
            None => stuck(format!("volume {volume}, which does not exist")),
        });
    }
    if class.is_empty() {
        return Some(stuck("a volume without a storage class"));
    }
    Some(match find(&cluster_scoped("storageclasses.storage.k8s.io", class)) {
        None => stuck(format!("storage class {class}, which does not exist")),
        Some(object) if StorageClass::of(&object.value()).volume_binding_mode() == "WaitForFirstConsumer" => {
            waits("a pod that uses it")
        }
        Some(_) => waits(format!("a volume of storage class {class}")),
    })
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
        let find = |key: &ObjectKey| match key.name.as_str() {
            "n1" => Some(object(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}))),
            "n3" => Some(object(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}))),
            "late" => Some(object(json!({"volumeBindingMode": "WaitForFirstConsumer"}))),
            _ => None,
        };
        let text = |cause: Cause| if cause.stuck { format!("stuck: {}", cause.what) } else { cause.what };
        match standing(resource, &object(value), &find) {
            Standing::Waits(cause) => format!("waits {}", text(cause)),
            Standing::Ends(cause) => format!("ends {}", text(cause)),
            other => format!("{other:?}"),
        }
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
    }
}
