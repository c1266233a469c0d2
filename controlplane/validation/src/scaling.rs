//! Field rules of HorizontalPodAutoscalers (in their v2 form) and PodDisruptionBudgets.

use super::field_ref::{FieldRef, walk};
use super::meta;
use super::workloads::{at_most_all, count_or_percent};
use crate::tree::Tree;
use coracle_proto::names::path_segment;
use coracle_proto::quantity::Quantity;
use coracle_proto::status::FieldError;
use serde_json::Value;

const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("External", "external"),
    ("ContainerResource", "containerResource"),
];

/// An autoscaler.
pub fn autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let (min, max) = (spec.at("minReplicas"), spec.at("maxReplicas"));
        if min.int().is_some_and(|count| count < 1) {
            min.invalid("must be greater than or equal to 1");
        }
        let most = max.int().unwrap_or_default();
        if most < 1 {
            max.invalid_as(most, "must be greater than 0");
        }
        if min.int().is_some_and(|least| most < least) {
            max.invalid_as(most, "must be greater than or equal to `minReplicas`");
        }
        let target = spec.at("scaleTargetRef");
        target.at("kind").named(path_segment);
        target.at("name").named(path_segment);
        spec.each("metrics").for_each(|metric| metric_spec(&metric));
        for rules in ["scaleUp", "scaleDown"] {
            let rules = spec.at("behavior").at(rules);
            if rules.is_set() {
                scaling_rules(&rules);
            }
        }
    });
}

fn metric_spec(metric: &FieldRef<'_>) {
    let kind = metric.at("type");
    let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    if kind.has_text("must specify a metric source type") {
        kind.one_of(&known);
    }
    let wanted = SOURCES.iter().find(|(name, _)| *name == kind.text()).map(|(_, field)| *field);
    for (_, field) in SOURCES {
        let source = metric.at(field);
        match (source.is_set(), Some(field) == wanted) {
            (true, true) => metric_source(field, &source),
            (true, false) => source.forbidden("must populate the given metric source only"),
            (false, true) => source.required("must populate information for the given metric source"),
            (false, false) => {}
        }
    }
}

fn metric_source(field: &str, source: &FieldRef<'_>) {
    let target = source.at("target");
    if matches!(field, "object" | "pods" | "external") {
        let name = source.at("metric.name");
        if name.has_text("must specify a metric name") {
            name.follows(path_segment);
        }
    } else {
        source.at("name").has_text("must specify a resource name");
    }
    if field == "containerResource" {
        source.at("container").has_text("must specify a container");
    }
    if field == "object" {
        source.at("describedObject.kind").named(path_segment);
        source.at("describedObject.name").named(path_segment);
    }
    let kind = target.at("type");
    if kind.has_text("must specify a metric target type")
        && !matches!(kind.text(), "Utilization" | "Value" | "AverageValue")
    {
        kind.invalid("must be either Utilization, Value, or AverageValue");
    }
    for value in ["value", "averageValue"] {
        let entry = target.at(value);
        if entry.text().parse::<Quantity>().is_ok_and(|quantity| quantity.signum() <= 0) {
            entry.invalid("must be positive");
        }
    }
    let share = target.at("averageUtilization");
    if share.int().is_some_and(|percent| percent < 1) {
        share.invalid("must be greater than 0");
    }
    let (value, average) = (target.at("value"), target.at("averageValue"));
    match field {
        "object" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        "external" if value.is_set() && average.is_set() => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        "pods" if !average.is_set() => average.required("must specify a positive target averageValue"),
        "resource" | "containerResource" => match (share.is_set(), average.is_set()) {
            (false, false) => share.required("must set either a target raw value or a target utilization"),
            (true, true) => average.forbidden("may not set both a target raw value and a target utilization"),
            _ => {}
        },
        _ => {}
    }
}

fn scaling_rules(rules: &FieldRef<'_>) {
    let window = rules.at("stabilizationWindowSeconds");
    if window.int().is_some_and(|seconds| seconds < 0) {
        window.invalid("must be greater than or equal to zero");
    }
    if window.int().is_some_and(|seconds| seconds > 3600) {
        window.invalid("must be less than or equal to 3600");
    }
    if rules.at("selectPolicy").is_set() {
        rules.at("selectPolicy").one_of(&["Disabled", "Max", "Min"]);
    }
    let policies = rules.at("policies");
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.at("type").one_of(&["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            let number = policy.value.int(field).unwrap_or_default();
            if number <= 0 {
                policy.at(field).invalid_as(number, "must be greater than zero");
            }
        }
        if policy.at("periodSeconds").int().is_some_and(|seconds| seconds > 1800) {
            policy.at("periodSeconds").invalid("must be less than or equal to 1800");
        }
    }
}

/// A change of an autoscaler's status.
pub fn autoscaler_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        root.at("status.currentReplicas").non_negative();
        root.at("status.desiredReplicas").non_negative();
    });
}

/// A PodDisruptionBudget.
pub fn budget(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
        if least.is_set() && most.is_set() {
            spec.invalid("minAvailable and maxUnavailable cannot be both set");
        }
        for share in [&least, &most] {
            count_or_percent(share);
            at_most_all(share);
        }
        meta::selector(&spec.at("selector"));
        if spec.at("unhealthyPodEvictionPolicy").is_set() {
            spec.at("unhealthyPodEvictionPolicy").one_of(&["AlwaysAllow", "IfHealthyBudget"]);
        }
    });
}

/// A change of a budget's status.
pub fn budget_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let status = root.at("status");
        meta::conditions(&status.at("conditions"));
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.at(field).non_negative();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn autoscalers() {
        let mut hpa =
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        crate::defaults::autoscalers::v2(&mut hpa);
        assert_eq!(errors(autoscaler, &hpa), [""; 0]);
        hpa["spec"]["minReplicas"] = json!(5);
        hpa["spec"]["metrics"] = json!([{"type": "Pods"}]);
        assert_eq!(
            errors(autoscaler, &hpa),
            [
                "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
                "spec.metrics[0].pods: Required value: must populate information for the given metric source",
            ]
        );
    }

    #[test]
    fn budgets() {
        assert_eq!(errors(budget, &json!({"spec": {"minAvailable": "50%"}})), [""; 0]);
        let both = errors(budget, &json!({"spec": {"minAvailable": 1, "maxUnavailable": "x"}}));
        assert!(both[0].ends_with("minAvailable and maxUnavailable cannot be both set"));
        assert!(both[1].starts_with("spec.maxUnavailable: Invalid value: \"x\": a valid percent string"));
    }
}
