//! Changes of pods: their spec is fixed but for a few fields.

use super::{MIRROR, pod, qos};
use crate::field_ref::{FieldRef, walk};
use crate::tree::{Grow, Tree, same};
use coracle_proto::names::range_error;
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Annotations of containers' AppArmor profiles, before there was a field.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A change of the pod itself.
pub fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        fixed_annotations(&root.at("metadata.annotations"), old.at("metadata.annotations"));
        let spec = root.at("spec");
        let before = old.at("spec");
        for list in ["containers", "initContainers"] {
            if spec.at(list).len() != before.items(list).len() {
                return spec.at(list).forbidden("pod updates may not add or remove containers");
            }
        }
        if !deadline(&spec.at("activeDeadlineSeconds"), before.at("activeDeadlineSeconds")) {
            return;
        }
        only_added_tolerations(&spec.at("tolerations"), before.items("tolerations"));
        only_removed_gates(&spec.at("schedulingGates"), before.items("schedulingGates"));
        if same(spec.value, before) {
            return;
        }
        let rest = without_changeable(spec.value, before, &spec);
        if !same(&rest, before) {
            spec.forbidden(format!("{FIXED}\n{}", difference("", before, &rest).join("\n")));
        }
    });
}

/// What an annotation that no update may change is called in errors.
fn fixed(key: &str) -> Option<&'static str> {
    match key {
        MIRROR => Some("mirror pod annotation"),
        _ if key.starts_with(APPARMOR) => Some("AppArmor annotations"),
        _ => None,
    }
}

/// Annotations that say what a pod is, or what confines it, stay as they were at its creation.
pub(super) fn fixed_annotations(new: &FieldRef<'_>, old: &Value) {
    for (key, was) in old.as_object().into_iter().flatten() {
        if let Some(what) = fixed(key)
            && new.value.get(key) != Some(was)
        {
            new.key(key).forbidden(format!("may not remove or update {what}"));
        }
    }
    for key in new.value.as_object().into_iter().flat_map(|all| all.keys()) {
        if let Some(what) = fixed(key)
            && old.get(key).is_none()
        {
            new.key(key).forbidden(format!("may not add {what}"));
        }
    }
}

fn deadline(new: &FieldRef<'_>, old: &Value) -> bool {
    match (new.int(), old.as_i64()) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            new.invalid(range_error(0, i64::from(i32::MAX)));
            false
        }
        (Some(now), Some(before)) if now > before => {
            new.invalid("must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            new.invalid("must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(new: &FieldRef<'_>, old: &[Value]) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.drop_key("tolerationSeconds");
        toleration
    };
    let now: HashSet<Value> = new.items().map(|item| without_seconds(item.value)).collect();
    let kept = |before: &Value| {
        let before = without_seconds(before);
        now.contains(&before) || now.iter().any(|now| same(now, &before))
    };
    if !old.iter().all(kept) {
        new.forbidden("existing toleration can not be modified except its tolerationSeconds");
    }
}

fn only_removed_gates(new: &FieldRef<'_>, old: &[Value]) {
    let before: HashSet<&str> = old.iter().map(|gate| gate.text("name")).collect();
    for gate in new.items() {
        let name = gate.value.text("name");
        if !before.contains(name) {
            gate.at("name")
                .forbidden(format!("only deletion is allowed, but found new scheduling gate '{name}'"));
        }
    }
}

/// The new spec with everything that may change set back to what it was.
fn without_changeable(new: &Value, old: &Value, spec: &FieldRef<'_>) -> Value {
    let mut rest = new.clone();
    for list in ["containers", "initContainers"] {
        let images: Vec<Value> =
            old.items(list).iter().map(|container| container.at("image").clone()).collect();
        let mut images = images.into_iter();
        rest.each(list, |container| container.put("image", images.next().unwrap_or_default()));
    }
    let mut back = |key: &str| match old.get(key) {
        Some(value) => rest.put(key, value.clone()),
        None => {
            rest.drop_key(key);
        }
    };
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        back(key);
    }
    let negative = old.int("terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0);
    if negative && new.int("terminationGracePeriodSeconds") == Some(1) {
        back("terminationGracePeriodSeconds");
    }
    if !old.items("schedulingGates").is_empty() {
        node_selector_may_narrow(&spec.at("nodeSelector"), old.at("nodeSelector"));
        back("nodeSelector");
        if let Some(affinity) = rest.existing("affinity") {
            match old.at("affinity").get("nodeAffinity") {
                Some(value) => affinity.put("nodeAffinity", value.clone()),
                None => {
                    affinity.drop_key("nodeAffinity");
                }
            }
        } else if old.has("affinity.nodeAffinity") {
            rest.put("affinity", json!({"nodeAffinity": old.at("affinity.nodeAffinity")}));
        }
    }
    rest
}

fn node_selector_may_narrow(new: &FieldRef<'_>, old: &Value) {
    for (key, value) in old.as_object().into_iter().flatten() {
        if new.value.get(key) != Some(value) {
            return new
                .invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)");
        }
    }
}

/// Where two trees differ, one line per place.
fn difference(path: &str, old: &Value, new: &Value) -> Vec<String> {
    if same(old, new) {
        return Vec::new();
    }
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            keys.flat_map(|key| difference(&below(key), old.at(key), new.get(key).unwrap_or(&Value::Null)))
                .collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.flat_map(|(index, (a, b))| difference(&format!("{path}[{index}]"), a, b)).collect()
        }
        _ => vec![format!("-{path}: {old}"), format!("+{path}: {new}")],
    }
}

/// `/ephemeralcontainers`: they may be added, never changed or removed.
pub fn ephemeral_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    pod(new, errors);
    walk(new, errors, |root| {
        if old.at("metadata.annotations").get(MIRROR).is_some() {
            return root.forbidden("static pods do not support ephemeral containers");
        }
        let list = root.at("spec.ephemeralContainers");
        for before in old.items("spec.ephemeralContainers") {
            let name = before.text("name");
            match list.items().find(|now| now.value.text("name") == name) {
                None => {
                    list.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n"))
                }
                Some(now) if !same(now.value, before) => {
                    let lines = difference("", before, now.value).join("\n");
                    list.forbidden(format!(
                        "existing ephemeral containers {name:?} may not be changed\n{lines}"
                    ));
                }
                Some(_) => {}
            }
        }
    });
}

/// `/resize`: CPU and memory of containers and sidecars.
pub fn resize(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    pod(new, errors);
    walk(new, errors, |root| {
        let spec = root.at("spec");
        if old.at("metadata.annotations").get(MIRROR).is_some() {
            return root.forbidden("static pods cannot be resized");
        }
        if qos::class(new) != old.text("status.qosClass") && old.has("status.qosClass") {
            spec.invalid_as(
                old.text("status.qosClass"),
                "Pod QOS Class may not change as a result of resizing",
            );
        }
        for list in ["containers", "initContainers"] {
            for (container, before) in spec.each(list).zip(old.at("spec").items(list)) {
                let sidecar = list == "containers" || before.text("restartPolicy") == "Always";
                resized(&spec, &container, before, sidecar);
            }
        }
    });
}

fn resized(spec: &FieldRef<'_>, container: &FieldRef<'_>, before: &Value, may: bool) {
    if !may {
        if !same(container.value, before) {
            spec.forbidden("resources for non-sidecar init containers are immutable");
        }
        return;
    }
    for list in ["limits", "requests"] {
        let (now, was) = (container.value.at("resources").at(list), before.at("resources").at(list));
        for resource in ["cpu", "memory"] {
            if was.get(resource).is_some() && now.get(resource).is_none() {
                container.at("resources").at(list).forbidden(format!("resource {list} cannot be removed"));
            }
        }
        let others = |list: &Value| -> Value {
            let entries = list.as_object().into_iter().flatten();
            entries
                .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect()
        };
        if !same(&others(now), &others(was)) {
            spec.forbidden("only cpu and memory resources are mutable");
        }
    }
}
