//! Changes of pods: their spec is fixed but for a few fields.

use super::MIRROR;
use crate::field_ref::{Field, walk_as};
use crate::ratchet;
use crate::tree::{Tree, same, same_at};
use coracle_fields::core::v1::{Container, Pod, PodSchedulingGate, PodSpec, Toleration};
use coracle_fields::{Edit, Int64, List, Map, Schema as _, Text, View};
use coracle_proto::names::range_error;
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;

const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Annotations of containers' AppArmor profiles, before there was a field.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A change of the pod itself.
pub fn update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Pod::of(old);
    walk_as::<Pod>(new, errors, |pod| {
        fixed_annotations(&pod.metadata().annotations(), old.metadata().annotations());
        let (spec, before) = (pod.spec(), old.spec());
        for (list, before) in
            [(spec.containers(), before.containers()), (spec.init_containers(), before.init_containers())]
        {
            if list.len() != before.len() {
                return list.forbidden("pod updates may not add or remove containers");
            }
        }
        if !deadline(&spec.active_deadline_seconds(), before.active_deadline_seconds()) {
            return;
        }
        only_added_tolerations(&spec.tolerations(), before.tolerations());
        only_removed_gates(&spec.scheduling_gates(), before.scheduling_gates());
        if same_at(spec.view(), before) {
            return;
        }
        let rest = without_changeable(&spec, before);
        let before = before.as_value();
        if !same(&rest, &before) {
            spec.forbidden(format!("{FIXED}\n{}", difference("", &before, &rest).join("\n")));
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
pub(super) fn fixed_annotations(new: &Field<'_, Map<Text>>, old: View<'_, Map<Text>>) {
    for (key, was) in old.entries() {
        if let Some(what) = fixed(key)
            && !new.view().key(key).same_as(was)
        {
            new.key(key).forbidden(format!("may not remove or update {what}"));
        }
    }
    for (key, now) in new.entries() {
        if let Some(what) = fixed(key)
            && !old.key(key).is_set()
        {
            now.forbidden(format!("may not add {what}"));
        }
    }
}

fn deadline(new: &Field<'_, Int64>, old: View<'_, Int64>) -> bool {
    match (new.int(), old.int()) {
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

fn only_added_tolerations(new: &Field<'_, List<Toleration>>, old: View<'_, List<Toleration>>) {
    let without_seconds = |toleration: View<'_, Toleration>| {
        let mut toleration = toleration.to_value();
        Toleration::edit(&mut toleration).toleration_seconds().clear();
        toleration
    };
    let now: HashSet<Value> = new.view().items().map(without_seconds).collect();
    let kept = |before: View<'_, Toleration>| {
        let before = without_seconds(before);
        now.contains(&before) || now.iter().any(|now| same(now, &before))
    };
    if !old.items().all(kept) {
        new.forbidden("existing toleration can not be modified except its tolerationSeconds");
    }
}

fn only_removed_gates(new: &Field<'_, List<PodSchedulingGate>>, old: View<'_, List<PodSchedulingGate>>) {
    let before: HashSet<&str> = old.items().map(|gate| gate.name().text()).collect();
    for gate in new.items() {
        let name = gate.name();
        if !before.contains(name.text()) {
            let found = name.text();
            name.forbidden(format!("only deletion is allowed, but found new scheduling gate '{found}'"));
        }
    }
}

/// The new spec with everything that may change set back to what it was.
fn without_changeable(spec: &Field<'_, PodSpec>, old: View<'_, PodSpec>) -> Value {
    let mut rest = spec.to_value();
    let mut back = PodSpec::edit(&mut rest);
    images(back.containers(), old.containers());
    images(back.init_containers(), old.init_containers());
    back.active_deadline_seconds().set(old.active_deadline_seconds());
    back.scheduling_gates().set(old.scheduling_gates());
    back.tolerations().set(old.tolerations());
    let grace = old.termination_grace_period_seconds();
    let negative = grace.int().is_some_and(|seconds| seconds < 0);
    if negative && spec.view().termination_grace_period_seconds() == 1 {
        back.termination_grace_period_seconds().set(grace);
    }
    if !old.scheduling_gates().is_empty() {
        node_selector_may_narrow(&spec.node_selector(), old.node_selector());
        back.node_selector().set(old.node_selector());
        back.affinity().node_affinity().set(old.affinity().node_affinity());
    }
    rest
}

/// Sets the images of containers back to what they were.
fn images(mut containers: Edit<'_, List<Container>>, old: View<'_, List<Container>>) {
    let mut old = old.items();
    containers
        .each_object(|mut container| container.image().set(old.next().map(|container| container.image())));
}

fn node_selector_may_narrow(new: &Field<'_, Map<Text>>, old: View<'_, Map<Text>>) {
    for (key, value) in old.entries() {
        if !new.view().key(key).same_as(value) {
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
    ratchet::changed(super::pod, new, old, errors);
    let old = Pod::of(old);
    walk_as::<Pod>(new, errors, |pod| {
        if old.metadata().annotations().key(MIRROR).is_set() {
            return pod.forbidden("static pods do not support ephemeral containers");
        }
        let list = pod.spec().ephemeral_containers();
        for before in old.spec().ephemeral_containers().items() {
            let name = before.name().text();
            match list.view().items().find(|now| now.name() == name) {
                None => {
                    list.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n"))
                }
                Some(now) if !same_at(now, before) => {
                    let lines = difference("", &before.as_value(), &now.as_value()).join("\n");
                    list.forbidden(format!(
                        "existing ephemeral containers {name:?} may not be changed\n{lines}"
                    ));
                }
                Some(_) => {}
            }
        }
    });
}
