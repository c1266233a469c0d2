//! `autoscaling/v1` HorizontalPodAutoscalers are v2 ones that know only CPU. What v1 has no field for travels in
//! annotations, so that a v1 client which reads and writes back loses nothing.

use crate::registry::kinds::StoredAs;
use coracle_fields::autoscaling_v2::{HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget};
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::{Json, Schema, View, autoscaling_v1, make};
use serde::Deserialize;
use serde_json::{Value, json};

/// The view.
pub const STORED_AS: StoredAs = StoredAs { group: "autoscaling", version: "v2", encode, decode };

/// The annotation with the metrics that v1 has no field for.
pub const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// The CPU share that v1 means when it says nothing.
const DEFAULT_CPU: i64 = 80;

/// The CPU share that a metric aims at, if it is one.
fn cpu_percent(metric: &Value) -> Option<i64> {
    let metric = MetricSpec::of(metric);
    if metric.type_() != "Resource" || metric.resource().name() != "cpu" {
        return None;
    }
    metric.resource().target().average_utilization().int()
}

/// A metric that aims at a CPU share. The share is kept as it is, even if it is no number, so that validation sees it.
fn cpu_share(percent: Value) -> Value {
    let mut metric = make!(part MetricSpec {
        type_: "Resource",
        resource: { name: "cpu", target: { type_: "Utilization" } },
    });
    metric.edit().resource().target().average_utilization().put(percent);
    metric.into_value()
}

/// The same for the status.
fn current_cpu_share(percent: Value) -> Value {
    let mut metric = make!(part MetricStatus { type_: "Resource", resource: { name: "cpu" } });
    metric.edit().resource().current().average_utilization().put(percent);
    metric.into_value()
}

fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let mut object = PartialObjectMetadata::edit(object);
    let mut metadata = object.metadata();
    let mut annotations = metadata.annotations();
    let entries = annotations.map_mut()?;
    let text = entries.remove(key)?;
    if entries.is_empty() {
        annotations.clear();
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn put_annotation(object: &mut Value, key: &str, value: &Value) {
    PartialObjectMetadata::edit(object).metadata().annotations().insert(key, value.to_string());
}

/// v1 to v2.
fn encode(object: &mut Value) {
    HorizontalPodAutoscaler::edit(object).api_version().set("autoscaling/v2");
    let mut metrics: Vec<Value> = match take_annotation(object, METRICS) {
        Some(Value::Array(metrics)) => metrics.iter().map(metric_to_v2).collect(),
        _ => Vec::new(),
    };
    let behavior = take_annotation(object, BEHAVIOR);
    let current = take_annotation(object, CURRENT);
    let conditions = take_annotation(object, CONDITIONS);
    let v1 = autoscaling_v1::HorizontalPodAutoscaler::of(object);
    let wanted = v1.spec().target_cpu_utilization_percentage().to_value();
    let now = v1.status().current_cpu_utilization_percentage().to_value();
    let mut v1 = autoscaling_v1::HorizontalPodAutoscaler::edit(object);
    v1.spec().target_cpu_utilization_percentage().clear();
    v1.status().current_cpu_utilization_percentage().clear();
    let mut v2 = HorizontalPodAutoscaler::edit(object);
    if !wanted.is_null() {
        metrics.push(cpu_share(wanted));
    }
    if metrics.is_empty() {
        metrics.push(cpu_share(DEFAULT_CPU.into()));
    }
    v2.spec().metrics().put(Value::Array(metrics));
    if let Some(behavior) = behavior {
        v2.spec().behavior().put(behavior);
    }
    if !now.is_null() {
        v2.status().current_metrics().put(json!([current_cpu_share(now)]));
    }
    if let Some(current) = current {
        v2.status().current_metrics().put(current);
    }
    if let Some(conditions) = conditions {
        v2.status().conditions().put(conditions);
    }
}

/// v2 to v1.
fn decode(object: &mut Value) {
    let mut v2 = HorizontalPodAutoscaler::edit(object);
    v2.api_version().set("autoscaling/v1");
    let metrics = v2.spec().metrics().list_mut().map(std::mem::take).unwrap_or_default();
    let behavior = v2.spec().behavior().tree().map(Value::take);
    let current = v2.status().current_metrics().list_mut().map(std::mem::take).unwrap_or_default();
    let conditions = v2.status().conditions().list_mut().map(std::mem::take).unwrap_or_default();
    v2.spec().metrics().clear();
    v2.spec().behavior().clear();
    v2.status().current_metrics().clear();
    v2.status().conditions().clear();
    let now = current.iter().map(|metric| MetricStatus::of(metric).resource()).find_map(|resource| {
        if resource.name() == "cpu" { resource.current().average_utilization().int() } else { None }
    });
    let mut v1 = autoscaling_v1::HorizontalPodAutoscaler::edit(object);
    if let Some(percent) = metrics.iter().find_map(cpu_percent) {
        v1.spec().target_cpu_utilization_percentage().set(percent);
    }
    if let Some(percent) = now {
        v1.status().current_cpu_utilization_percentage().set(percent);
    }
    let others: Vec<Value> =
        metrics.iter().filter(|metric| cpu_percent(metric).is_none()).map(metric_to_v1).collect();
    let list = |items: Vec<Value>| Some(items).filter(|items| !items.is_empty()).map(Value::Array);
    let behavior = behavior.filter(|behavior| !behavior.is_null());
    for (key, value) in [
        (METRICS, list(others)),
        (BEHAVIOR, behavior),
        (CURRENT, list(current)),
        (CONDITIONS, list(conditions)),
    ] {
        if let Some(value) = value {
            put_annotation(object, key, &value);
        }
    }
}

/// A metric in the form of the v1 annotation: targets are flat.
fn metric_to_v1(metric: &Value) -> Value {
    let spec = MetricSpec::of(metric);
    let kind = spec.type_().text();
    let (key, mut source, target, selector) = match kind {
        "Resource" => {
            let source = spec.resource();
            ("resource", json!({"name": source.name()}), source.target(), None)
        }
        "ContainerResource" => {
            let source = spec.container_resource();
            let flat = json!({"name": source.name(), "container": source.container()});
            ("containerResource", flat, source.target(), None)
        }
        "Pods" => {
            let (target, metric) = (spec.pods().target(), spec.pods().metric());
            ("pods", json!({"metricName": metric.name()}), target, Some(("selector", metric.selector())))
        }
        "External" => {
            let (target, metric) = (spec.external().target(), spec.external().metric());
            let selector = Some(("metricSelector", metric.selector()));
            ("external", json!({"metricName": metric.name()}), target, selector)
        }
        "Object" => {
            let (source, metric) = (spec.object(), spec.object().metric());
            let flat = json!({"metricName": metric.name(), "target": source.described_object()});
            ("object", flat, source.target(), Some(("selector", metric.selector())))
        }
        _ => return metric.clone(),
    };
    for (name, value) in flat_target(key, target) {
        if value.is_set() {
            source[name] = value.to_value();
        }
    }
    if let Some((name, selector)) = selector
        && selector.is_set()
    {
        source[name] = selector.to_value();
    }
    json!({"type": kind, key: source})
}

/// The values of a target under the names that v1 has for them.
fn flat_target<'a>(key: &str, target: View<'a, MetricTarget>) -> [(&'static str, View<'a, Json>); 2] {
    let (value, average) = (target.value().erased(), target.average_value().erased());
    match key {
        "object" => [("targetValue", value), ("averageValue", average)],
        "external" => [("targetValue", value), ("targetAverageValue", average)],
        _ => {
            let share = target.average_utilization().erased();
            [("targetAverageUtilization", share), ("targetAverageValue", average)]
        }
    }
}

/// The source of a metric in the form of the v1 annotation, with the fields of every type.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FlatSource {
    name: Value,
    container: Value,
    metric_name: Value,
    target: Value,
    selector: Option<Value>,
    metric_selector: Option<Value>,
    target_average_utilization: Option<Value>,
    target_average_value: Option<Value>,
    average_value: Option<Value>,
    target_value: Option<Value>,
}

/// The reverse of [`metric_to_v1`].
fn metric_to_v2(metric: &Value) -> Value {
    let spec = MetricSpec::of(metric);
    let kind = spec.type_().text();
    let (key, source) = match kind {
        "Resource" => ("resource", spec.resource().erased()),
        "ContainerResource" => ("containerResource", spec.container_resource().erased()),
        "Pods" => ("pods", spec.pods().erased()),
        "External" => ("external", spec.external().erased()),
        "Object" => ("object", spec.object().erased()),
        _ => return metric.clone(),
    };
    let source: FlatSource = source.read().unwrap_or_default();
    let average = source.average_value.or(source.target_average_value);
    let target_type = match (&source.target_average_utilization, &average, &source.target_value) {
        (Some(_), _, _) => Some("Utilization"),
        (None, Some(_), _) => Some("AverageValue"),
        (None, None, Some(_)) => Some("Value"),
        (None, None, None) => None,
    };
    // The values are kept as they are, so that validation sees them.
    let mut target = make!(part MetricTarget { type_: target_type });
    target.edit().average_utilization().put(source.target_average_utilization.unwrap_or_default());
    target.edit().average_value().put(average.unwrap_or_default());
    target.edit().value().put(source.target_value.unwrap_or_default());
    let metric_id = match source.selector.or(source.metric_selector) {
        Some(selector) => json!({"name": source.metric_name, "selector": selector}),
        None => json!({"name": source.metric_name}),
    };
    let body = match key {
        "resource" => json!({"name": source.name, "target": target}),
        "containerResource" => json!({"name": source.name, "container": source.container, "target": target}),
        "object" => json!({"describedObject": source.target, "metric": metric_id, "target": target}),
        _ => json!({"metric": metric_id, "target": target}),
    };
    json!({"type": kind, key: body})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v1_cpu_becomes_a_metric() {
        let mut hpa = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}});
        encode(&mut hpa);
        assert_eq!(hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50);
        assert!(hpa["spec"].get("targetCPUUtilizationPercentage").is_none());
        decode(&mut hpa);
        assert_eq!(hpa["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}));
        assert!(hpa["metadata"].get("annotations").is_none());
    }

    #[test]
    fn a_share_of_another_type_is_not_replaced() {
        let mut hpa = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50.5}});
        encode(&mut hpa);
        assert_eq!(hpa["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 50.5);
        let mut unset = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3}});
        encode(&mut unset);
        assert_eq!(unset["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], DEFAULT_CPU);
    }

    #[test]
    fn a_v1_client_loses_no_metric() {
        let selector = json!({"matchLabels": {"a": "b"}});
        let v2 = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "a"},
            "spec": {"maxReplicas": 3, "behavior": {"scaleUp": {"stabilizationWindowSeconds": 3}}, "metrics": [
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                {"type": "Pods", "pods": {"metric": {"name": "rps", "selector": selector}, "target": {"type": "AverageValue", "averageValue": "5"}}},
                {"type": "External", "external": {"metric": {"name": "q", "selector": selector}, "target": {"type": "Value", "value": "30"}}},
                {"type": "Object", "object": {"metric": {"name": "hits"}, "describedObject": {"kind": "Ingress", "name": "i"}, "target": {"type": "Value", "value": "2k"}}},
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
            ]},
            "status": {"currentReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True"}]}});
        let mut hpa = v2.clone();
        decode(&mut hpa);
        assert_eq!(hpa["spec"]["targetCPUUtilizationPercentage"], 60);
        assert!(
            hpa["metadata"]["annotations"][METRICS]
                .as_str()
                .is_some_and(|text| text.contains("metricSelector"))
        );
        encode(&mut hpa);
        assert_eq!(hpa, v2);
    }
}
