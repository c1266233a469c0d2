//! Where pods may run: affinity, tolerations, spreading, gates.

use crate::field_ref::{Field, FieldRef, reported_at};
use crate::field_rules::{NumberRules as _, TextRules as _};
use crate::meta;
use coracle_fields::core::v1::{
    Affinity, NodeSelector, NodeSelectorTerm, PodAffinityTerm, PodSchedulingGate, Taint, Toleration,
    TopologySpreadConstraint, WeightedPodAffinityTerm,
};
use coracle_fields::meta::LabelSelector;
use coracle_fields::{Int32, List, Text, View};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::json;
use std::collections::{HashMap, HashSet};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn affinity(affinity: &Field<'_, Affinity>) {
    let node = affinity.node_affinity();
    let required = node.required_during_scheduling_ignored_during_execution();
    if required.is_set() {
        node_selector(&required);
    }
    for term in node.preferred_during_scheduling_ignored_during_execution().items() {
        weight(&term.weight());
        node_term(&term.preference(), false);
    }
    let pods = affinity.pod_affinity();
    pod_terms(
        &pods.required_during_scheduling_ignored_during_execution(),
        &pods.preferred_during_scheduling_ignored_during_execution(),
    );
    let pods = affinity.pod_anti_affinity();
    pod_terms(
        &pods.required_during_scheduling_ignored_during_execution(),
        &pods.preferred_during_scheduling_ignored_during_execution(),
    );
}

fn pod_terms(
    required: &Field<'_, List<PodAffinityTerm>>,
    preferred: &Field<'_, List<WeightedPodAffinityTerm>>,
) {
    required.items().for_each(|term| pod_term(&term));
    for term in preferred.items() {
        weight(&term.weight());
        pod_term(&term.pod_affinity_term());
    }
}

fn weight(field: &Field<'_, Int32>) {
    let weight = field.or(0);
    if !(1..=100).contains(&weight) {
        field.invalid_as(weight, "must be in the range 1-100");
    }
}

/// A node selector: at least one term.
pub(crate) fn node_selector(selector: &Field<'_, NodeSelector>) {
    let terms = selector.node_selector_terms();
    if terms.is_empty() {
        return terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_term(&term, true));
}

fn node_term(term: &Field<'_, NodeSelectorTerm>, strict_values: bool) {
    for expression in term.match_expressions().items() {
        let values = expression.values();
        match expression.operator().text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    values.required("must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
            }
            "Gt" | "Lt" => {
                if values.len() != 1 {
                    values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
                }
            }
            other => expression.operator().invalid_as(other, "not a valid selector operator"),
        }
        label_key(&expression.key());
        if strict_values {
            values.items().for_each(|value| value.follows(label_value));
        }
    }
    for field in term.match_fields().items() {
        let values = field.values();
        match field.operator().text() {
            "In" | "NotIn" => {
                if values.len() != 1 {
                    values.required(
                        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                    );
                }
            }
            other => field.operator().invalid_as(other, "not a valid selector operator"),
        }
        if field.view().key() == "metadata.name" {
            values.items().for_each(|value| value.follows(dns1123_subdomain));
        } else {
            field.key().invalid_as(field.view().key().text(), "not a valid field selector key");
        }
    }
}

fn label_key(key: &Field<'_, Text>) {
    for message in qualified_name(key.text()) {
        key.invalid_as(key.text(), message);
    }
}

fn pod_term(term: &Field<'_, PodAffinityTerm>) {
    let selector = term.label_selector();
    meta::selector(&selector);
    meta::selector(&term.namespace_selector());
    for name in term.view().namespaces().texts() {
        for message in dns1123_label(name) {
            term.below("namespace").invalid_as(name, message);
        }
    }
    let (matched, mismatched) = (term.match_label_keys(), term.mismatch_label_keys());
    label_keys(term, &selector, &matched, Some(&mismatched));
    for key in matched.items() {
        if mismatched.view().has(key.text()) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let key = term.topology_key();
    if key.text().is_empty() {
        key.required("can not be empty");
    }
    label_key(&key);
}

/// Keys of labels whose values are taken from the pod.
fn label_keys(
    term: &FieldRef<'_>,
    selector: &Field<'_, LabelSelector>,
    matched: &Field<'_, List<Text>>,
    mismatched: Option<&Field<'_, List<Text>>>,
) {
    for keys in std::iter::once(matched).chain(mismatched) {
        if keys.is_empty() {
            continue;
        }
        if !selector.is_set() {
            keys.forbidden("must not be specified when labelSelector is not set");
            continue;
        }
        keys.items().for_each(|key| label_key(&key));
    }
    let selector = selector.view();
    let mut seen: HashSet<&str> = selector.match_labels().entries().map(|(key, _)| key).collect();
    for expression in selector.match_expressions().items() {
        let key = expression.key().text();
        let index = matched.view().texts().position(|other| other == key);
        if let Some(index) = index
            && seen.contains(key)
        {
            let path = format!("{}[{index}]", term.path());
            let message =
                format!("Invalid value: {:?}: exists in both matchLabelKeys and labelSelector", key);
            term.report(FieldError::new("FieldValueInvalid", path, message));
        }
        seen.insert(key);
    }
}

pub(super) fn gates(gates: &Field<'_, List<PodSchedulingGate>>) {
    let mut seen = HashSet::new();
    for gate in gates.items() {
        let name = gate.name();
        for message in qualified_name(name.text()) {
            gate.invalid_as(name.text(), message);
        }
        if !seen.insert(name.text()) {
            reported_at(&name, &gate).duplicate();
        }
    }
}

/// Tolerations of a pod or a runtime class.
pub(crate) fn tolerations(list: &Field<'_, List<Toleration>>) {
    for toleration in list.items() {
        let (key, operator) = (toleration.key(), toleration.operator());
        let (value, effect) = (toleration.view().value().text(), toleration.effect());
        if !key.text().is_empty() {
            key.follows(qualified_name);
        } else if operator.text() != "Exists" {
            operator.invalid_as(
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.toleration_seconds().is_set() && effect.text() != "NoExecute" {
            effect.invalid_as(effect.text(), "effect must be 'NoExecute' when `tolerationSeconds` is set");
        }
        match operator.text() {
            "" | "Equal" => {
                let wrong = label_value(value);
                if !wrong.is_empty() {
                    operator.invalid_as(value, wrong.join(";"));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    operator.invalid_as(value, "value must be empty when `operator` is 'Exists'");
                }
            }
            _ => operator.unsupported(&["Equal", "Exists"]),
        }
        if !effect.text().is_empty() {
            effect.one_of(&EFFECTS);
        }
    }
}

/// Taints of a node.
pub(crate) fn taints(list: &Field<'_, List<Taint>>) {
    let mut seen = HashSet::new();
    for taint in list.items() {
        let (key, effect) = (taint.key(), taint.effect());
        label_key(&key);
        let wrong = label_value(taint.view().value().text());
        if !wrong.is_empty() {
            taint.value().invalid(wrong.join(";"));
        }
        effect.required_one_of(&EFFECTS);
        if !seen.insert((key.text(), effect.text())) {
            let text =
                format!("Duplicate value: {}: taints must be unique by key and effect pair", taint.value);
            taint.report(FieldError::new("FieldValueDuplicate", taint.path(), text));
        }
    }
}

pub(super) fn spread(list: &Field<'_, List<TopologySpreadConstraint>>) {
    fn pair(rule: View<'_, TopologySpreadConstraint>) -> (&str, &str) {
        (rule.topology_key().text(), rule.when_unsatisfiable().text())
    }
    let last: HashMap<_, usize> =
        list.view().items().enumerate().map(|(index, rule)| (pair(rule), index)).collect();
    for (index, rule) in list.items().enumerate() {
        let skew = rule.view().max_skew().or(0);
        if skew <= 0 {
            rule.max_skew().invalid_as(skew, "must be greater than 0");
        }
        rule.topology_key().has_text("can not be empty");
        let action = rule.when_unsatisfiable();
        action.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        let (key, when) = pair(rule.view());
        if last.get(&(key, when)).is_some_and(|last| *last > index) {
            let both = json!(format!("{{{key}, {when}}}"));
            rule.below("{topologyKey, whenUnsatisfiable}").with(&both).duplicate();
        }
        let domains = rule.min_domains();
        domains.positive();
        if domains.is_set() && action.text() != "DoNotSchedule" {
            domains.invalid(format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                action.text()
            ));
        }
        for policy in [rule.node_affinity_policy(), rule.node_taints_policy()] {
            if policy.is_set() {
                policy.one_of(&["Honor", "Ignore"]);
            }
        }
        let selector = rule.label_selector();
        label_keys(&rule, &selector, &rule.match_label_keys(), None);
        meta::selector(&selector);
    }
}
