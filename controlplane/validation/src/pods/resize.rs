//! `/resize`: only CPU and memory of containers, init containers and the pod as a whole change.

use super::{MIRROR, qos};
use crate::field_ref::{Field, walk_as};
use crate::ratchet;
use crate::tree::same;
use coracle_fields::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use coracle_fields::{Amount, Edit, List, Map, Schema as _, View};
use coracle_proto::status::FieldError;
use serde_json::Value;

const ONLY_SIZES: &str = "only cpu and memory resources are mutable";

/// A change by `/resize`. The pod's quality of service stays, and so does what it has requests and limits for.
pub fn resize(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    ratchet::changed(super::pod, new, old, errors);
    let old = Pod::of(old);
    walk_as::<Pod>(new, errors, |pod| {
        let (spec, before) = (pod.spec(), old.spec());
        if old.metadata().annotations().key(MIRROR).is_set() {
            return pod.forbidden("static pods cannot be resized");
        }
        if before.os().name() == "windows" {
            return pod.forbidden("windows pods cannot be resized");
        }
        let class = old.status().qos_class();
        if class.is_set() && class != qos::class(new) {
            spec.invalid_as(class.text(), "Pod QOS Class may not change as a result of resizing");
        }
        if has_sizes(before.resources()) || has_sizes(spec.view().resources()) {
            as_a_whole(&spec, before.resources());
        }
        let containers = same_containers(&spec.containers(), before.containers(), "containers");
        let init = same_containers(&spec.init_containers(), before.init_containers(), "initContainers");
        if !(containers && init) {
            return;
        }
        for (container, before) in spec.containers().items().zip(before.containers()) {
            nothing_removed(&container.resources(), before.resources(), "");
            if !same(&with_old_sizes(container.view(), before), &before.as_value()) {
                spec.forbidden(ONLY_SIZES);
            }
        }
        for (container, before) in spec.init_containers().items().zip(before.init_containers()) {
            init_container(&container, before);
        }
    });
}

fn has_sizes(resources: View<'_, ResourceRequirements>) -> bool {
    [resources.requests(), resources.limits()].iter().any(|list| list.entries().next().is_some())
}

/// Resources of the pod as a whole.
fn as_a_whole(spec: &Field<'_, PodSpec>, before: View<'_, ResourceRequirements>) {
    let resources = spec.resources();
    if before.is_set() && !resources.is_set() {
        return resources.forbidden("pod-level resources cannot be removed");
    }
    nothing_removed(&resources, before, "pod-level ");
    let mut rest = resources.to_value();
    old_sizes(ResourceRequirements::edit(&mut rest), before);
    if !same(&rest, &before.as_value()) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

/// Whether the containers are those of before, in their order: the other rules compare them one by one.
fn same_containers(list: &Field<'_, List<Container>>, before: View<'_, List<Container>>, what: &str) -> bool {
    if list.len() != before.len() {
        list.forbidden(format!("{what} may not be added or removed on resize"));
        return false;
    }
    let mut all = true;
    for (container, before) in list.items().zip(before) {
        let name = container.name();
        if before.name() != name.text() {
            name.forbidden(format!("{what} may not be renamed or reordered on resize"));
            all = false;
        }
    }
    all
}

fn nothing_removed(
    resources: &Field<'_, ResourceRequirements>,
    before: View<'_, ResourceRequirements>,
    of: &str,
) {
    let removed = |now: View<'_, Map<Amount>>, was: View<'_, Map<Amount>>| {
        was.entries().any(|(name, _)| !now.key(name).is_set())
    };
    for (what, list, was) in [
        ("requests", resources.requests(), before.requests()),
        ("limits", resources.limits(), before.limits()),
    ] {
        if removed(list.view(), was) {
            list.forbidden(format!("{of}resource {what} cannot be removed"));
        }
    }
}

fn init_container(container: &Field<'_, Container>, before: View<'_, Container>) {
    nothing_removed(&container.resources(), before.resources(), "");
    let was = before.as_value();
    if !same(&with_old_sizes(container.view(), before), &was) {
        container.forbidden("only cpu and memory resources for init or sidecar containers are mutable");
    }
    // Pods of older versions may have such a policy; a container that runs once is not run again for its size.
    let restarts = |container: View<'_, Container>| {
        container.resize_policy().items().any(|policy| policy.restart_policy() == "RestartContainer")
    };
    let changed = !same(&container.to_value(), &was);
    if changed && before.restart_policy() != "Always" && restarts(container.view()) {
        container.forbidden(
            "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
        );
    }
}

/// The container with the CPU and memory that it had.
fn with_old_sizes(container: View<'_, Container>, before: View<'_, Container>) -> Value {
    let mut rest = container.to_value();
    old_sizes(Container::edit(&mut rest).resources(), before.resources());
    rest
}

fn old_sizes(mut resources: Edit<'_, ResourceRequirements>, before: View<'_, ResourceRequirements>) {
    let back = |mut list: Edit<'_, Map<Amount>>, was: View<'_, Map<Amount>>| {
        for name in ["cpu", "memory"] {
            list.remove(name);
            if was.key(name).is_set() {
                list.insert(name, was.key(name));
            }
        }
    };
    back(resources.requests(), before.requests());
    back(resources.limits(), before.limits());
}
