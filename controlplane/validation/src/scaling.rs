//! Field rules of HorizontalPodAutoscalers (in their v2 form) and PodDisruptionBudgets.

use super::field_ref::{Field, walk_as};
use super::field_rules::{NumberRules as _, TextRules as _};
use super::meta;
use super::quantities::container_name;
use super::workloads::{at_most_all, count_or_percent};
use coracle_fields::autoscaling_v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscaler, MetricSpec, MetricTarget,
    ObjectMetricSource,
};
use coracle_fields::policy::v1::PodDisruptionBudget;
use coracle_fields::{List, Schema as _, Text};
use coracle_proto::names::{dns1123_label, path_segment};
use coracle_proto::quantity::Quantity;
use coracle_proto::status::FieldError;
use serde_json::Value;

/// An autoscaler.
pub fn autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<HorizontalPodAutoscaler>(object, errors, |root| {
        let spec = root.spec();
        let (min, max) = (spec.min_replicas(), spec.max_replicas());
        if min.int().is_some_and(|count| count < 1) {
            min.invalid("must be greater than or equal to 1");
        }
        let most = max.or(0);
        if most == 0 {
            max.required("must be set and greater than 0");
        } else if most < 0 {
            max.invalid_as(most, "must be greater than or equal to 1");
        }
        if min.int().is_some_and(|least| most < least) {
            max.invalid_as(most, "must be greater than or equal to `minReplicas`");
        }
        let target = spec.scale_target_ref();
        target.kind().named(path_segment);
        target.name().named(path_segment);
        let metrics = spec.metrics();
        metrics.items().for_each(|metric| metric_spec(&metric));
        let mut types = metrics.view().items().map(|metric| metric.type_().text());
        if min.int() == Some(0) && !types.any(|kind| matches!(kind, "External" | "Object")) {
            metrics.forbidden(
                "must specify at least one Object or External metric to support scaling to zero replicas",
            );
        }
        for rules in [spec.behavior().scale_up(), spec.behavior().scale_down()] {
            if rules.is_set() {
                scaling_rules(&rules);
            }
        }
    });
}

/// A new autoscaler.
pub fn new_autoscaler(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<HorizontalPodAutoscaler>(object, errors, |root| {
        let spec = root.spec();
        target_group(&spec.scale_target_ref());
        described_versions(&spec.metrics());
    });
}

/// The API group of a target is checked when the target changes, versions of described objects unless one was wrong before.
pub fn autoscaler_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = HorizontalPodAutoscaler::of(old).spec();
    walk_as::<HorizontalPodAutoscaler>(new, errors, |root| {
        let (target, before) = (root.spec().scale_target_ref(), old.scale_target_ref());
        let now = target.view();
        if now.api_version().text() != before.api_version().text()
            || now.kind().text() != before.kind().text()
        {
            target_group(&target);
        }
        let mut before = old.metrics().items().filter(|metric| metric.type_() == "Object");
        if before.all(|metric| !is_malformed(metric.object().described_object().api_version().text())) {
            described_versions(&root.spec().metrics());
        }
    });
}

/// Only ReplicationControllers can be scaled in the group without a name.
fn target_group(target: &Field<'_, CrossVersionObjectReference>) {
    let version = target.api_version();
    let has_group = version.text().split_once('/').is_some_and(|(group, _)| !group.is_empty());
    if is_malformed(version.text()) {
        version.invalid(malformed(version.text()));
    } else if !has_group && target.view().kind() != "ReplicationController" {
        version.invalid_as(version.text(), "apiVersion must specify API group");
    }
}

fn described_versions(metrics: &Field<'_, List<MetricSpec>>) {
    for metric in metrics.items().filter(|metric| metric.object().is_set()) {
        let version = metric.object().described_object().api_version();
        if is_malformed(version.text()) {
            version.invalid(malformed(version.text()));
        }
    }
}

/// Whether a text is neither `VERSION` nor `GROUP/VERSION`.
fn is_malformed(version: &str) -> bool {
    version.matches('/').count() > 1
}

fn malformed(version: &str) -> String {
    format!("unexpected GroupVersion string: {version}")
}

const SOURCES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

fn metric_spec(metric: &Field<'_, MetricSpec>) {
    let kind = metric.type_();
    kind.has_text("must specify a metric source type");
    kind.one_of(&SOURCES);
    first_source(metric);
    let sources = [
        ("ContainerResource", metric.container_resource().erased()),
        ("External", metric.external().erased()),
        ("Object", metric.object().erased()),
        ("Pods", metric.pods().erased()),
        ("Resource", metric.resource().erased()),
    ];
    match sources.iter().find(|(name, _)| *name == kind.text()) {
        Some((_, source)) if !source.is_set() => {
            source.required("must populate information for the given metric source");
        }
        Some(_) => {}
        // Upstream says it a second time.
        None => kind.one_of(&SOURCES),
    }
    let given: Vec<_> = sources.iter().filter(|(_, source)| source.is_set()).collect();
    if given.len() > 1 {
        for (_, source) in given.iter().filter(|(name, _)| *name != kind.text()) {
            source.forbidden("must populate the given metric source only");
        }
    }
}

/// Checks the first source that is there, in the order of upstream, even if the type asks for another.
fn first_source(metric: &Field<'_, MetricSpec>) {
    let (object, external, pods) = (metric.object(), metric.external(), metric.pods());
    let (resource, container) = (metric.resource(), metric.container_resource());
    if object.is_set() {
        object_source(&object);
    } else if external.is_set() {
        metric_name(&external.metric().name());
        external_target(&external.target());
    } else if pods.is_set() {
        metric_name(&pods.metric().name());
        let target = pods.target();
        metric_target(&target);
        if !target.average_value().is_set() {
            target.average_value().required("must specify a positive target averageValue");
        }
    } else if resource.is_set() {
        resource.name().has_text("must specify a resource name");
        resource_target(&resource.target());
    } else if container.is_set() {
        let (resource, name) = (container.name(), container.container());
        if resource.has_text("must specify a resource name") {
            container_name(&resource, resource.text());
        }
        if name.has_text("must specify a container") {
            name.follows(dns1123_label);
        }
        resource_target(&container.target());
    }
}

fn object_source(source: &Field<'_, ObjectMetricSource>) {
    source.described_object().kind().named(path_segment);
    source.described_object().name().named(path_segment);
    metric_name(&source.metric().name());
    let target = source.target();
    metric_target(&target);
    if !target.value().is_set() && !target.average_value().is_set() {
        target.average_value().required("must set either a target value or averageValue");
    }
}

fn metric_name(name: &Field<'_, Text>) {
    if name.has_text("must specify a metric name") {
        name.follows(path_segment);
    }
}

fn metric_target(target: &Field<'_, MetricTarget>) {
    let kind = target.type_();
    kind.has_text("must specify a metric target type");
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        kind.invalid_as(kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for value in [target.value(), target.average_value()] {
        if value.text().parse::<Quantity>().is_ok_and(|quantity| quantity.signum() <= 0) {
            value.invalid("must be positive");
        }
    }
    let share = target.average_utilization();
    if share.int().is_some_and(|percent| percent < 1) {
        share.invalid("must be greater than 0");
    }
}

fn resource_target(target: &Field<'_, MetricTarget>) {
    metric_target(target);
    let (share, average) = (target.average_utilization(), target.average_value());
    match (share.is_set(), average.is_set()) {
        (false, false) => share.required("must set either a target raw value or a target utilization"),
        (true, true) => average.forbidden("may not set both a target raw value and a target utilization"),
        _ => {}
    }
}

fn external_target(target: &Field<'_, MetricTarget>) {
    metric_target(target);
    let (value, average) = (target.value(), target.average_value());
    match (value.is_set(), average.is_set()) {
        (false, false) => {
            average.required("must set either a target value for metric or a per-pod target");
        }
        (true, true) => {
            value.forbidden("may not set both a target value for metric and a per-pod target");
        }
        _ => {}
    }
}

fn scaling_rules(rules: &Field<'_, HPAScalingRules>) {
    let window = rules.stabilization_window_seconds();
    if window.int().is_some_and(|seconds| seconds < 0) {
        window.invalid("must be greater than or equal to zero");
    }
    if window.int().is_some_and(|seconds| seconds > 3600) {
        window.invalid("must be less than or equal to 3600");
    }
    if rules.select_policy().is_set() {
        rules.select_policy().one_of(&["Disabled", "Max", "Min"]);
    }
    let policies = rules.policies();
    if policies.is_empty() {
        policies.required("must specify at least one Policy");
    }
    for policy in policies.items() {
        policy.type_().one_of(&["Percent", "Pods"]);
        for field in [policy.value(), policy.period_seconds()] {
            let number = field.or(0);
            if number <= 0 {
                field.invalid_as(number, "must be greater than zero");
            }
        }
        if policy.period_seconds().int().is_some_and(|seconds| seconds > 1800) {
            policy.period_seconds().invalid("must be less than or equal to 1800");
        }
    }
    let tolerance = rules.tolerance();
    if tolerance.text().parse::<Quantity>().is_ok_and(|quantity| quantity.signum() < 0) {
        tolerance.invalid("must be greater than or equal to 0");
    }
}

/// A change of an autoscaler's status.
pub fn autoscaler_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<HorizontalPodAutoscaler>(new, errors, |root| {
        root.status().current_replicas().non_negative();
        root.status().desired_replicas().non_negative();
    });
}

/// A PodDisruptionBudget.
pub fn budget(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PodDisruptionBudget>(object, errors, |root| {
        let spec = root.spec();
        let (least, most) = (spec.min_available(), spec.max_unavailable());
        if least.is_set() && most.is_set() {
            spec.invalid("minAvailable and maxUnavailable cannot be both set");
        }
        for share in [&least, &most] {
            count_or_percent(share);
            at_most_all(share);
        }
        meta::selector(&spec.selector());
        if spec.unhealthy_pod_eviction_policy().is_set() {
            spec.unhealthy_pod_eviction_policy().one_of(&["AlwaysAllow", "IfHealthyBudget"]);
        }
    });
}

/// A change of a budget's status.
pub fn budget_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<PodDisruptionBudget>(new, errors, |root| {
        let status = root.status();
        meta::conditions(&status.conditions());
        status.disruptions_allowed().non_negative();
        status.current_healthy().non_negative();
        status.desired_healthy().non_negative();
        status.expected_pods().non_negative();
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;
    use serde_json::json;

    #[test]
    fn autoscalers() {
        let mut hpa =
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
        crate::defaults::autoscalers::v2(&mut hpa);
        assert_eq!(errors(autoscaler, &hpa), [""; 0]);
        hpa["spec"]["minReplicas"] = json!(0);
        assert_eq!(
            errors(autoscaler, &hpa),
            [
                "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
                "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas",
            ]
        );
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
    fn metrics_have_the_source_of_their_type() {
        let target = json!({"type": "AverageValue", "averageValue": "1"});
        let pods = json!({"metric": {"name": "m"}, "target": target});
        let resource = |target: Value| json!({"name": "cpu", "target": target});
        let cpu = |target: Value| json!({"type": "Resource", "resource": resource(target)});
        let supported = r#"supported values: "ContainerResource", "External", "Object", "Pods", "Resource""#;
        let unknown = |kind: &str| format!("type: Unsupported value: {kind:?}: {supported}");
        let only = "Forbidden: must populate the given metric source only";
        let missing = "Required value: must populate information for the given metric source";
        let of = "resource.target";
        for (metric, wrong) in [
            (cpu(target.clone()), vec![]),
            (json!({"type": "Pods", "pods": pods}), vec![]),
            (json!({"type": "X"}), vec![unknown("X"), unknown("X")]),
            (
                json!({"pods": pods}),
                vec![
                    "type: Required value: must specify a metric source type".into(),
                    unknown(""),
                    unknown(""),
                ],
            ),
            // One source of another type is missing, not forbidden, and it is checked.
            (
                json!({"type": "Pods", "resource": resource(json!({"type": "Value", "value": "1"}))}),
                vec![
                    format!(
                        "{of}.averageUtilization: Required value: must set either a target raw value or a target utilization"
                    ),
                    format!("pods: {missing}"),
                ],
            ),
            (
                json!({"type": "Resource", "resource": resource(target.clone()), "pods": pods}),
                vec![format!("pods: {only}")],
            ),
            (
                json!({"type": "Object", "resource": resource(json!({})), "pods": pods}),
                vec![format!("object: {missing}"), format!("pods: {only}"), format!("resource: {only}")],
            ),
            (
                cpu(json!({"type": "Utilization", "averageUtilization": 0})),
                vec![format!("{of}.averageUtilization: Invalid value: 0: must be greater than 0")],
            ),
            (
                cpu(json!({"type": "AverageValue", "averageValue": "0", "value": "-1"})),
                vec![
                    format!("{of}.value: Invalid value: \"-1\": must be positive"),
                    format!("{of}.averageValue: Invalid value: \"0\": must be positive"),
                ],
            ),
            (
                cpu(json!({"averageValue": "1"})),
                vec![
                    format!("{of}.type: Required value: must specify a metric target type"),
                    format!(
                        "{of}.type: Invalid value: \"\": must be either Utilization, Value, or AverageValue"
                    ),
                ],
            ),
        ] {
            let hpa = json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric],
                "scaleTargetRef": {"kind": "Deployment", "name": "d"}}});
            let wrong: Vec<String> = wrong.iter().map(|error| format!("spec.metrics[0].{error}")).collect();
            assert_eq!(errors(autoscaler, &hpa), wrong, "{metric}");
        }
    }

    #[test]
    fn containers_of_metrics_have_names() {
        let source =
            json!({"name": "x", "container": "A b", "target": {"type": "AverageValue", "averageValue": "1"}});
        let hpa = json!({"spec": {"maxReplicas": -1, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "metrics": [{"type": "ContainerResource", "containerResource": source}]}});
        let said = errors(autoscaler, &hpa);
        let fields: Vec<&str> = said.iter().filter_map(|error| error.split(": ").next()).collect();
        let at = "spec.metrics[0].containerResource";
        let (name, container) = (format!("{at}.name"), format!("{at}.container"));
        assert_eq!(fields, ["spec.maxReplicas", name.as_str(), name.as_str(), container.as_str()]);
        assert!(said[0].ends_with("Invalid value: -1: must be greater than or equal to 1"));
    }

    #[test]
    fn rules_have_policies_within_bounds() {
        let policy = |kind: &str, value: i64, period: i64| json!({"type": kind, "value": value, "periodSeconds": period});
        let at = "spec.behavior.scaleDown";
        for (rules, wrong) in [
            (json!({"policies": [policy("Pods", 1, 1800)], "stabilizationWindowSeconds": 3600}), vec![]),
            (json!({"policies": []}), vec!["policies: Required value: must specify at least one Policy"]),
            (
                json!({"policies": [policy("X", 0, 0), policy("Pods", 1, 1801)]}),
                vec![
                    "policies[0].type: Unsupported value: \"X\": supported values: \"Percent\", \"Pods\"",
                    "policies[0].value: Invalid value: 0: must be greater than zero",
                    "policies[0].periodSeconds: Invalid value: 0: must be greater than zero",
                    "policies[1].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
                ],
            ),
            (
                json!({"stabilizationWindowSeconds": -1, "selectPolicy": "Most"}),
                vec![
                    "stabilizationWindowSeconds: Invalid value: -1: must be greater than or equal to zero",
                    "selectPolicy: Unsupported value: \"Most\": supported values: \"Disabled\", \"Max\", \"Min\"",
                ],
            ),
            (
                json!({"stabilizationWindowSeconds": 3601}),
                vec!["stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600"],
            ),
        ] {
            let mut hpa = json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "behavior": {"scaleDown": rules}}});
            crate::defaults::autoscalers::v2(&mut hpa);
            let wrong: Vec<String> = wrong.iter().map(|error| format!("{at}.{error}")).collect();
            assert_eq!(errors(autoscaler, &hpa), wrong, "{rules}");
        }
    }

    #[test]
    fn tolerances() {
        for (tolerance, wrong) in [("0", false), ("100m", false), ("-1", true), ("-1m", true)] {
            let mut hpa = json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d"},
                "behavior": {"scaleUp": {"tolerance": tolerance}}}});
            crate::defaults::autoscalers::v2(&mut hpa);
            let wanted = format!(
                "spec.behavior.scaleUp.tolerance: Invalid value: {tolerance:?}: must be greater than or equal to 0"
            );
            let wanted = if wrong { vec![wanted] } else { Vec::new() };
            assert_eq!(errors(autoscaler, &hpa), wanted, "{tolerance}");
        }
    }

    #[test]
    fn new_targets_have_a_group() {
        let hpa = |version: &str, kind: &str, described: &str| {
            json!({"spec": {"scaleTargetRef": {"apiVersion": version, "kind": kind, "name": "d"}, "metrics": [
                {"type": "Object", "object": {"describedObject": {"apiVersion": described, "kind": "Service", "name": "s"}}}]}})
        };
        let good = hpa("apps/v1", "Deployment", "v1");
        let bare = hpa("", "Deployment", "v1");
        let wrong = hpa("apps/v1", "Deployment", "a/b/c");
        let no_group =
            "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group";
        assert_eq!(errors(new_autoscaler, &good), [""; 0]);
        assert_eq!(errors(new_autoscaler, &hpa("v1", "Deployment", "")), [no_group]);
        assert_eq!(errors(new_autoscaler, &hpa("", "ReplicationController", "")), [""; 0]);
        let malformed =
            "spec.scaleTargetRef.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c";
        assert_eq!(errors(new_autoscaler, &hpa("a/b/c", "ReplicationController", "")), [malformed]);
        assert_eq!(changes(autoscaler_update, &bare, &bare), [""; 0], "stored ones stay");
        assert_eq!(changes(autoscaler_update, &bare, &good).len(), 1);
        assert_eq!(changes(autoscaler_update, &wrong, &wrong), [""; 0]);
        assert_eq!(changes(autoscaler_update, &wrong, &good).len(), 1);
    }

    #[test]
    fn budgets() {
        assert_eq!(errors(budget, &json!({"spec": {"minAvailable": "50%"}})), [""; 0]);
        let both = errors(budget, &json!({"spec": {"minAvailable": 1, "maxUnavailable": "x"}}));
        assert!(both[0].ends_with("minAvailable and maxUnavailable cannot be both set"));
        assert!(both[1].starts_with("spec.maxUnavailable: Invalid value: \"x\": a valid percent string"));
    }
}
