//! Pods before a write.

use super::unsupported;
use crate::registry::kinds::{keep_all_but_status, keep_status};
use coracle_fields::core::v1::{
    Container, Pod, PodAffinity, PodAffinityTerm, PodCondition, PodSpec, PodStatus,
};
use coracle_fields::meta::{LabelSelector, LabelSelectorRequirement};
use coracle_fields::{At, Edit, List, Map, Reader, Schema, Text, View, make};
use coracle_validation::pods::qos;
use serde_json::Value;

/// The labels of a pod.
type Labels<'a> = View<'a, Map<Text>>;

/// A new Pod is pending, knows its quality of service, and carries the selectors that its label keys stand for.
pub fn create(pod: &mut Value) {
    let mut status = make!(part PodStatus { phase: "Pending", qos_class: qos::class(pod) });
    let view = Pod::of(pod);
    if !view.spec().scheduling_gates().is_empty() {
        let mut gated = make!(part PodCondition {
            type_: "PodScheduled",
            status: "False",
            reason: "SchedulingGated",
            last_transition_time: view.metadata().creation_timestamp(),
            message: "Scheduling is blocked due to non-empty scheduling gates",
        });
        gated.edit().last_probe_time().null();
        status.edit().conditions().push(gated);
    }
    let labels = view.metadata().labels().to_value();
    let labels: Labels<'_> = At::new(Reader::Tree(&labels));
    let mut pod = Pod::edit(pod);
    pod.status().set(status);
    if let Some(mut spec) = pod.spec().existing() {
        spec.topology_spread_constraints().each_object(|mut rule| {
            let keys = listed(rule.view().match_label_keys());
            select_by_label_keys(rule.label_selector(), &keys, "In", labels);
        });
        affinity_by_label_keys(spec, labels);
    }
}

fn listed(keys: View<'_, List<Text>>) -> Vec<String> {
    keys.items().filter_map(|key| key.get()).map(str::to_owned).collect()
}

fn affinity_by_label_keys(mut spec: Edit<'_, PodSpec>, labels: Labels<'_>) {
    let Some(mut affinity) = spec.affinity().existing() else { return };
    if let Some(kind) = affinity.pod_affinity().existing() {
        terms_by_label_keys(kind, labels);
    }
    if let Some(kind) = affinity.pod_anti_affinity().existing() {
        terms_by_label_keys(kind.like(), labels);
    }
}

fn terms_by_label_keys(mut affinity: Edit<'_, PodAffinity>, labels: Labels<'_>) {
    affinity
        .required_during_scheduling_ignored_during_execution()
        .each_object(|term| term_by_label_keys(term, labels));
    affinity.preferred_during_scheduling_ignored_during_execution().each_object(|mut weighted| {
        if let Some(term) = weighted.pod_affinity_term().existing() {
            term_by_label_keys(term, labels);
        }
    });
}

fn term_by_label_keys(mut term: Edit<'_, PodAffinityTerm>, labels: Labels<'_>) {
    let keys = listed(term.view().match_label_keys());
    select_by_label_keys(term.label_selector(), &keys, "In", labels);
    let keys = listed(term.view().mismatch_label_keys());
    select_by_label_keys(term.label_selector(), &keys, "NotIn", labels);
}

/// Adds `key In [the pod's own value]` to the selector, when there is one, for every listed key that the pod has.
fn select_by_label_keys(
    mut selector: Edit<'_, LabelSelector>,
    keys: &[String],
    operator: &str,
    labels: Labels<'_>,
) {
    if !selector.view().is_set() {
        return;
    }
    for key in keys {
        let value = labels.key(key);
        if value.is_set() {
            let wanted = make!(part LabelSelectorRequirement { key, operator, values: [value] });
            selector.match_expressions().push(wanted);
        }
    }
}

/// With initializers: they may change the containers of a pod, and with them its quality of service.
pub fn update_initializing(new: &mut Value, old: &Value) {
    keep_status(new, old);
    if Pod::of(old).metadata().initializers().is_set() {
        let class = qos::class(new);
        Pod::edit(new).status().qos_class().set(class);
    }
}

/// `/status`: spec, owner references, deletion and QoS class are kept.
pub fn status(new: &mut Value, old: &Value) {
    keep_all_but_status(new, old);
    unsupported::drop_pod_status(new, old);
    let (mut new, old) = (Pod::edit(new), Pod::of(old));
    let mut meta = new.metadata().section();
    meta.owner_references().set(old.metadata().owner_references());
    meta.deletion_timestamp().set(old.metadata().deletion_timestamp());
    meta.deletion_grace_period_seconds().set(old.metadata().deletion_grace_period_seconds());
    let mut status = new.status().section();
    let old = old.status();
    if old.qos_class().is_set() {
        status.qos_class().default(old.qos_class());
    }
    if old.observed_generation().or(0) != 0 {
        status.observed_generation().default_empty(old.observed_generation());
    }
    let conditions = old.conditions().items();
    let mut generations: Vec<(&str, i64)> = conditions
        .map(|condition| (condition.type_().text(), condition.observed_generation().or(0)))
        .collect();
    status.conditions().each_object(|mut condition| {
        let of_type = generations.iter().position(|(kind, _)| condition.view().type_() == *kind);
        if let Some((_, generation)) = of_type.map(|index| generations.remove(index))
            && generation != 0
        {
            condition.observed_generation().default_empty(generation);
        }
    });
}

/// `/ephemeralcontainers`: only they change.
pub fn ephemeral(new: &mut Value, old: &Value) {
    let containers = Pod::of(new).spec().ephemeral_containers().to_value();
    only_the_object_version(new, old);
    Pod::edit(new).spec().ephemeral_containers().put(containers);
}

/// `/resize`: only resources change, of containers and of the pod as a whole. Containers that are not those of before are kept,
/// for validation to refuse them.
pub fn resize(new: &mut Value, old: &Value) {
    let wanted = Pod::of(new).spec().to_value();
    let wanted = PodSpec::of(&wanted);
    only_the_object_version(new, old);
    let mut pod = Pod::edit(new);
    let mut spec = pod.spec().section();
    resize_containers(spec.containers(), wanted.containers());
    resize_containers(spec.init_containers(), wanted.init_containers());
    spec.resources().set(wanted.resources());
}

fn resize_containers(mut list: Edit<'_, List<Container>>, wanted: View<'_, List<Container>>) {
    let names = |list: View<'_, List<Container>>| -> Vec<String> {
        list.items().map(|container| container.name().text().to_owned()).collect()
    };
    if names(list.view()) != names(wanted) {
        return list.set(wanted);
    }
    let mut wanted = wanted.items();
    list.each_object(|mut container| {
        if let Some(asked) = wanted.next() {
            container.resources().set(asked.resources());
            container.resize_policy().set(asked.resize_policy());
        }
    });
}

/// Makes `new` the old object, but for the version that the client based its change on and managed fields.
fn only_the_object_version(new: &mut Value, old: &Value) {
    let meta = Pod::of(new).metadata();
    let (version, managed) = (meta.resource_version().to_value(), meta.managed_fields().to_value());
    *new = old.clone();
    let mut pod = Pod::edit(new);
    if !version.is_null() {
        pod.metadata().resource_version().put(version);
    }
    if !managed.is_null() {
        pod.metadata().managed_fields().put(managed);
    }
}
