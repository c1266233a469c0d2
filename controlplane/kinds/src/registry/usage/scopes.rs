//! Which pods and claims fall under the scopes of a quota.

use coracle_fields::core::v1::{
    PersistentVolumeClaim, Pod, ResourceQuota, ResourceRequirements, ScopedResourceSelectorRequirement,
};
use coracle_fields::{Schema, View};
use serde_json::Value;

fn best_effort(pod: View<'_, Pod>) -> bool {
    let asks = |resources: View<'_, ResourceRequirements>| {
        let sections = [resources.requests(), resources.limits()];
        sections.iter().any(|section| ["cpu", "memory"].iter().any(|name| section.key(name).is_set()))
    };
    let spec = pod.spec();
    let mut containers = spec.containers().items().chain(spec.init_containers().items());
    !asks(spec.resources()) && !containers.any(|container| asks(container.resources()))
}

/// Whether a pod falls under a scope.
pub fn in_scope(pod: &Value, scope: &str) -> bool {
    scoped(Pod::of(pod), scope)
}

fn scoped(pod: View<'_, Pod>, scope: &str) -> bool {
    match scope {
        "Terminating" => has_deadline(pod),
        "NotTerminating" => !has_deadline(pod),
        "BestEffort" => best_effort(pod),
        "NotBestEffort" => !best_effort(pod),
        "PriorityClass" => !pod.spec().priority_class_name().text().is_empty(),
        "CrossNamespacePodAffinity" => {
            let affinity = pod.spec().affinity();
            [affinity.pod_affinity().erased(), affinity.pod_anti_affinity().erased()].iter().any(|kind| {
                let text = kind.as_value().to_string();
                text.contains("\"namespaces\":[\"") || text.contains("\"namespaceSelector\":{")
            })
        }
        _ => false,
    }
}

/// Whether a pod ends by itself.
pub fn terminating(pod: &Value) -> bool {
    has_deadline(Pod::of(pod))
}

fn has_deadline(pod: View<'_, Pod>) -> bool {
    pod.spec().active_deadline_seconds().int().is_some_and(|seconds| seconds >= 0)
}

/// Whether an object satisfies one expression of a scope selector.
pub fn selected(kind: (&str, &str), expression: &Value, object: &Value) -> bool {
    satisfies(kind, ScopedResourceSelectorRequirement::of(expression), object)
}

fn satisfies(
    kind: (&str, &str),
    expression: View<'_, ScopedResourceSelectorRequirement>,
    object: &Value,
) -> bool {
    match kind {
        ("", "pods") => pod_satisfies(expression, Pod::of(object)),
        ("", "persistentvolumeclaims") => claim_satisfies(expression, PersistentVolumeClaim::of(object)),
        _ => false,
    }
}

fn pod_satisfies(expression: View<'_, ScopedResourceSelectorRequirement>, pod: View<'_, Pod>) -> bool {
    let scope = expression.scope_name().text();
    let listed = expression.values().has(pod.spec().priority_class_name().text());
    match expression.operator().text() {
        "In" => listed,
        "NotIn" => !listed,
        "DoesNotExist" => !scoped(pod, scope),
        _ => scoped(pod, scope),
    }
}

/// Whether one of the VolumeAttributesClasses of a claim is selected; the other scopes are about pods.
fn claim_satisfies(
    expression: View<'_, ScopedResourceSelectorRequirement>,
    claim: View<'_, PersistentVolumeClaim>,
) -> bool {
    if expression.scope_name() != "VolumeAttributesClass" {
        return false;
    }
    let classes = attributes_classes(claim);
    let values = expression.values();
    match expression.operator().text() {
        "In" => classes.iter().any(|class| values.has(class)),
        "NotIn" => classes.is_empty() || classes.iter().any(|class| !values.has(class)),
        "DoesNotExist" => classes.is_empty(),
        _ => !classes.is_empty(),
    }
}

/// The VolumeAttributesClasses of a claim: the one it asks for, the one it has, and the one it gets.
fn attributes_classes(claim: View<'_, PersistentVolumeClaim>) -> Vec<&str> {
    let status = claim.status();
    let all = [
        claim.spec().volume_attributes_class_name().text(),
        status.current_volume_attributes_class_name().text(),
        status.modify_volume_status().target_volume_attributes_class_name().text(),
    ];
    all.into_iter().filter(|class| !class.is_empty()).collect()
}

fn in_scope_of(kind: (&str, &str), scope: &str, object: &Value) -> bool {
    match kind {
        ("", "pods") => scoped(Pod::of(object), scope),
        ("", "persistentvolumeclaims") => {
            scope == "VolumeAttributesClass"
                && !attributes_classes(PersistentVolumeClaim::of(object)).is_empty()
        }
        _ => false,
    }
}

/// Whether an object falls under a quota's scopes and scope selector; only pods and claims can fall under any.
pub fn covered(quota: &Value, kind: (&str, &str), object: &Value) -> bool {
    let spec = ResourceQuota::of(quota).spec();
    let (scopes, expressions) = (spec.scopes(), spec.scope_selector().match_expressions());
    scopes.items().filter_map(|scope| scope.get()).all(|scope| in_scope_of(kind, scope, object))
        && expressions.items().all(|expression| satisfies(kind, expression, object))
}
