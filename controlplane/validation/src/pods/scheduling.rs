//! Where pods may run: affinity, tolerations, spreading, gates.

use crate::field_ref::FieldRef;
use crate::meta;
use crate::tree::Tree;
use coracle_proto::names::{dns1123_label, dns1123_subdomain, label_value, qualified_name};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(affinity: &FieldRef<'_>) {
    let node = affinity.at("nodeAffinity");
    if node.at(REQUIRED).is_set() {
        node_selector(&node.at(REQUIRED));
    }
    for term in node.each(PREFERRED) {
        weight(&term);
        node_term(&term.at("preference"), false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = affinity.at(kind);
        pods.each(REQUIRED).for_each(|term| pod_term(&term));
        for term in pods.each(PREFERRED) {
            weight(&term);
            pod_term(&term.at("podAffinityTerm"));
        }
    }
}

fn weight(term: &FieldRef<'_>) {
    let weight = term.value.int("weight").unwrap_or_default();
    if !(1..=100).contains(&weight) {
        term.at("weight").invalid_as(weight, "must be in the range 1-100");
    }
}

/// A node selector: at least one term.
pub(crate) fn node_selector(selector: &FieldRef<'_>) {
    let terms = selector.at("nodeSelectorTerms");
    if terms.is_empty() {
        return terms.required("must have at least one node selector term");
    }
    terms.items().for_each(|term| node_term(&term, true));
}

fn node_term(term: &FieldRef<'_>, strict_values: bool) {
    for expression in term.each("matchExpressions") {
        let values = expression.at("values");
        match expression.at("operator").text() {
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
            other => expression.at("operator").invalid_as(other, "not a valid selector operator"),
        }
        label_key(&expression.at("key"));
        if strict_values {
            values.items().for_each(|value| value.follows(label_value));
        }
    }
    for field in term.each("matchFields") {
        let values = field.at("values");
        match field.at("operator").text() {
            "In" | "NotIn" => {
                if values.len() != 1 {
                    values.required(
                        "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                    );
                }
            }
            other => field.at("operator").invalid_as(other, "not a valid selector operator"),
        }
        if field.value.text("key") == "metadata.name" {
            values.items().for_each(|value| value.follows(dns1123_subdomain));
        } else {
            field.at("key").invalid_as(field.value.text("key"), "not a valid field selector key");
        }
    }
}

fn label_key(key: &FieldRef<'_>) {
    for message in qualified_name(key.text()) {
        key.invalid_as(key.text(), message);
    }
}

fn pod_term(term: &FieldRef<'_>) {
    meta::selector(&term.at("labelSelector"));
    meta::selector(&term.at("namespaceSelector"));
    for name in term.each("namespaces") {
        for message in dns1123_label(name.text()) {
            term.at("namespace").invalid_as(name.text(), message);
        }
    }
    label_keys(term, &["matchLabelKeys", "mismatchLabelKeys"]);
    let mismatched = term.value.items("mismatchLabelKeys");
    for key in term.each("matchLabelKeys") {
        if mismatched.contains(key.value) {
            key.invalid("exists in both matchLabelKeys and mismatchLabelKeys");
        }
    }
    let key = term.at("topologyKey");
    if key.text().is_empty() {
        key.required("can not be empty");
    }
    label_key(&key);
}

fn label_keys(term: &FieldRef<'_>, lists: &[&str]) {
    for list in lists {
        let keys = term.at(list);
        if keys.is_empty() {
            continue;
        }
        if !term.at("labelSelector").is_set() {
            keys.forbidden("must not be specified when labelSelector is not set");
            continue;
        }
        keys.items().for_each(|key| label_key(&key));
    }
    let matched = term.value.items("matchLabelKeys");
    let selector = term.value.at("labelSelector");
    let mut seen: HashSet<&str> = selector.entries("matchLabels").map(|(key, _)| key.as_str()).collect();
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        let index = matched.iter().position(|other| other == key);
        if let Some(index) = index
            && seen.contains(key)
        {
            let path = format!("{}[{index}]", term.path());
            let message =
                format!("Invalid value: {:?}: exists in both matchLabelKeys and labelSelector", key);
            term.report(coracle_proto::status::FieldError::new("FieldValueInvalid", path, message));
        }
        seen.insert(key);
    }
}

pub(super) fn gates(gates: &FieldRef<'_>) {
    let mut seen = HashSet::new();
    for gate in gates.items() {
        let name = gate.value.text("name");
        for message in qualified_name(name) {
            gate.invalid_as(name, message);
        }
        if !seen.insert(name) {
            gate.with(gate.value.at("name")).duplicate();
        }
    }
}

/// Tolerations of a pod or a runtime class.
pub(crate) fn tolerations(list: &FieldRef<'_>) {
    for toleration in list.items() {
        let (key, operator) = (toleration.at("key"), toleration.at("operator"));
        let (value, effect) = (toleration.value.text("value"), toleration.at("effect"));
        if !key.text().is_empty() {
            key.follows(qualified_name);
        } else if operator.text() != "Exists" {
            operator.invalid_as(
                operator.text(),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        if toleration.at("tolerationSeconds").is_set() && effect.text() != "NoExecute" {
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
pub(crate) fn taints(list: &FieldRef<'_>) {
    let mut seen = HashSet::new();
    for taint in list.items() {
        label_key(&taint.at("key"));
        let wrong = label_value(taint.value.text("value"));
        if !wrong.is_empty() {
            taint.at("value").invalid(wrong.join(";"));
        }
        taint.at("effect").required_one_of(&EFFECTS);
        if !seen.insert((taint.value.text("key"), taint.value.text("effect"))) {
            let text =
                format!("Duplicate value: {}: taints must be unique by key and effect pair", taint.value);
            taint.report(coracle_proto::status::FieldError::new("FieldValueDuplicate", taint.path(), text));
        }
    }
}

pub(super) fn spread(list: &FieldRef<'_>) {
    fn pair(rule: &Value) -> (&str, &str) {
        (rule.text("topologyKey"), rule.text("whenUnsatisfiable"))
    }
    let rules: Vec<FieldRef<'_>> = list.items().collect();
    let last: HashMap<_, usize> =
        rules.iter().enumerate().map(|(index, rule)| (pair(rule.value), index)).collect();
    for (index, rule) in rules.iter().enumerate() {
        let skew = rule.value.int("maxSkew").unwrap_or_default();
        if skew <= 0 {
            rule.at("maxSkew").invalid_as(skew, "must be greater than 0");
        }
        rule.at("topologyKey").has_text("can not be empty");
        let action = rule.at("whenUnsatisfiable");
        action.one_of(&["DoNotSchedule", "ScheduleAnyway"]);
        let (key, when) = pair(rule.value);
        if last.get(&(key, when)).is_some_and(|last| *last > index) {
            let both: Value = json!(format!("{{{key}, {when}}}"));
            rule.at("{topologyKey, whenUnsatisfiable}").with(&both).duplicate();
        }
        let domains = rule.at("minDomains");
        domains.positive();
        if domains.is_set() && action.text() != "DoNotSchedule" {
            domains.invalid(format!(
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {}",
                action.text()
            ));
        }
        for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if rule.at(policy).is_set() {
                rule.at(policy).one_of(&["Honor", "Ignore"]);
            }
        }
        label_keys(rule, &["matchLabelKeys"]);
        meta::selector(&rule.at("labelSelector"));
    }
}
