//! Which pods fall under the scopes of a quota.

use coracle_fields::core::v1::{Pod, ResourceQuota, ResourceRequirements, ScopedResourceSelectorRequirement};
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

/// Whether a pod satisfies one expression of a scope selector.
pub fn selected(expression: &Value, pod: &Value) -> bool {
    satisfies(ScopedResourceSelectorRequirement::of(expression), Pod::of(pod))
}

fn satisfies(expression: View<'_, ScopedResourceSelectorRequirement>, pod: View<'_, Pod>) -> bool {
    let scope = expression.scope_name().text();
    let listed = expression.values().has(pod.spec().priority_class_name().text());
    match expression.operator().text() {
        "In" => listed,
        "NotIn" => !listed,
        "DoesNotExist" => !scoped(pod, scope),
        _ => scoped(pod, scope),
    }
}

/// Whether an object falls under a quota's scopes and scope selector; only pods can fall under any.
pub fn covered(quota: &Value, (group, plural): (&str, &str), object: &Value) -> bool {
    let spec = ResourceQuota::of(quota).spec();
    let (scopes, expressions) = (spec.scopes(), spec.scope_selector().match_expressions());
    if scopes.is_empty() && expressions.is_empty() {
        return true;
    }
    let pod = Pod::of(object);
    (group, plural) == ("", "pods")
        && scopes.items().filter_map(|scope| scope.get()).all(|scope| scoped(pod, scope))
        && expressions.items().all(|expression| satisfies(expression, pod))
}
