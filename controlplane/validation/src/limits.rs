//! Field rules of ResourceQuotas and LimitRanges.

use super::field_ref::{FieldRef, walk};
use super::pods::resources::{amount, any_name, container_name, quantity};
use crate::tree::Tree;
use coracle_proto::names::qualified_name;
use coracle_proto::quantity::{Format, Quantity};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};

const SCOPES: [&str; 7] = [
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

/// A ResourceQuota.
pub fn quota(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        quantities(&spec.at("hard"));
        scopes(&spec);
        quantities(&root.at("status.hard"));
        quantities(&root.at("status.used"));
    });
}

fn quantities(list: &FieldRef<'_>) {
    for (name, field) in list.entries() {
        any_name(&field, name);
        amount(&field, name);
    }
}

fn scopes(spec: &FieldRef<'_>) {
    let list = spec.at("scopes");
    let hard: Vec<&str> = spec.value.entries("hard").map(|(name, _)| name.as_str()).collect();
    let conflicting = |names: &HashSet<&str>| {
        [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")]
            .iter()
            .any(|(a, b)| names.contains(a) && names.contains(b))
    };
    let unfit = |scope: &str| {
        hard.iter().any(|name| match scope {
            "BestEffort" => !matches!(*name, "pods") && is_standard(name),
            "Terminating"
            | "NotTerminating"
            | "NotBestEffort"
            | "PriorityClass"
            | "CrossNamespacePodAffinity" => is_standard(name) && !is_of_pods(name),
            _ => false,
        })
    };
    let mut names = HashSet::new();
    for scope in list.items() {
        if !SCOPES.contains(&scope.text()) {
            list.invalid("unsupported scope");
        }
        if unfit(scope.text()) {
            list.invalid("unsupported scope applied to resource");
        }
        names.insert(scope.text());
    }
    if conflicting(&names) {
        list.invalid("conflicting scopes");
    }
    let selector = spec.at("scopeSelector.matchExpressions");
    let mut names = HashSet::new();
    for expression in selector.items() {
        let (name, operator, values) = (
            expression.value.text("scopeName"),
            expression.value.text("operator"),
            expression.value.items("values"),
        );
        if !SCOPES.contains(&name) {
            selector.at("scopeName").invalid_as(name, "unsupported scope");
        }
        if unfit(name) {
            selector.with(spec.value.at("scopeSelector")).invalid("unsupported scope applied to resource");
        }
        if !matches!(name, "PriorityClass" | "VolumeAttributesClass") && operator != "Exists" {
            selector.at("operator").invalid_as(operator, "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => selector
                .at("values")
                .required("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "Exists" | "DoesNotExist" if !values.is_empty() => selector
                .at("values")
                .with(expression.value.at("values"))
                .invalid("must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => selector.at("operator").invalid_as(operator, "not a valid selector operator"),
        }
        names.insert(name);
    }
    if conflicting(&names) {
        selector.with(spec.value.at("scopes")).invalid("conflicting scopes");
    }
}

fn is_standard(name: &str) -> bool {
    !name.contains('/')
}

/// Resources that a scope of pods makes sense for.
fn is_of_pods(name: &str) -> bool {
    let base = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    matches!(base, "cpu" | "memory" | "pods" | "ephemeral-storage") || base.starts_with("hugepages-")
}

/// Scopes of a quota never change.
pub fn quota_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let set = |object: &Value| -> BTreeSet<String> {
        object.items("spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if set(new) != set(old) {
        errors.push(FieldError::invalid("spec.scopes", new.at("spec.scopes"), "field is immutable"));
    }
}

/// A change of a quota's status.
pub fn quota_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        quantities(&root.at("status.hard"));
        quantities(&root.at("status.used"));
    });
}

/// A LimitRange.
pub fn limit_range(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let mut kinds = HashSet::new();
        for limit in root.each("spec.limits") {
            let kind = limit.at("type");
            let wrong = qualified_name(kind.text());
            if !wrong.is_empty() {
                wrong.into_iter().for_each(|message| kind.invalid_as(kind.text(), message));
            } else if !kind.text().contains('/')
                && !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim")
            {
                kind.invalid("must be a standard limit type or fully qualified");
            }
            if !kinds.insert(kind.text()) {
                kind.duplicate();
            }
            names(&limit, kind.text());
            relations(&limit);
        }
    });
}

fn names(limit: &FieldRef<'_>, kind: &str) {
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let field = limit.at(list);
        if kind == "Pod" && list.starts_with("default") {
            if !field.is_empty() {
                field.forbidden("may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, quantity_spot) in field.entries() {
            if matches!(kind, "Pod" | "Container") {
                container_name(&quantity_spot, name);
            } else {
                any_name(&quantity_spot, name);
            }
            quantity(&quantity_spot);
        }
    }
    let sized = |list: &str| limit.value.at(list).get("storage").is_some();
    if kind == "PersistentVolumeClaim" && !sized("min") && !sized("max") {
        limit
            .at("limits")
            .required("either minimum or maximum storage value is required, but neither was provided");
    }
}

/// min ≤ defaultRequest ≤ default ≤ max, for each resource.
fn relations(limit: &FieldRef<'_>) {
    let names: BTreeSet<&str> = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
        .iter()
        .flat_map(|list| limit.value.entries(list).map(|(name, _)| name.as_str()))
        .collect();
    for name in names {
        let get = |list: &str| {
            limit.value.at(list).get(name).and_then(Value::as_str).and_then(|t| t.parse::<Quantity>().ok())
        };
        let above = |low: &str, high: &str, at: &str, shown: &str, low_word: &str, high_word: &str| {
            if let (Some(low), Some(high)) = (get(low), get(high))
                && low > high
            {
                let value = get(shown).map(|quantity| quantity.to_string()).unwrap_or_default();
                limit.at(at).key(name).invalid_as(
                    value,
                    format!("{low_word} value {low} is greater than {high_word} value {high}"),
                );
            }
        };
        above("min", "max", "min", "min", "min", "max");
        above("min", "defaultRequest", "defaultRequest", "defaultRequest", "min", "default request");
        above("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request", "max");
        above(
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            "default request",
            "default limit",
        );
        above("min", "default", "default", "min", "min", "default");
        above("default", "max", "default", "max", "default", "max");
        if let Some(ratio) = get("maxLimitRequestRatio")
            && ratio < Quantity::new(1, Format::DecimalSi)
        {
            limit.at("maxLimitRequestRatio").key(name).invalid(format!("ratio {ratio} is less than 1"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn quotas_and_ranges() {
        assert_eq!(
            errors(
                quota,
                &json!({"spec": {"hard": {"pods": "5", "requests.cpu": "1", "count/jobs.batch": "3"}}})
            ),
            [""; 0]
        );
        assert_eq!(
            errors(quota, &json!({"spec": {"hard": {"pods": "1.5"}}})),
            ["spec.hard[pods]: Invalid value: \"1.5\": must be an integer"]
        );
        assert_eq!(
            errors(
                quota,
                &json!({"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}})
            ),
            ["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"]
        );
        assert_eq!(
            errors(
                limit_range,
                &json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}})
            ),
            ["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"]
        );
    }
}
