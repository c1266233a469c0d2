//! `autoscaling/v1` HorizontalPodAutoscalers are v2 ones that know only CPU. What v1 has no field for travels in
//! annotations, so that a v1 client which reads and writes back loses nothing.

use crate::registry::kinds::StoredAs;
use serde_json::{Map, Value, json};

/// The view.
pub const STORED_AS: StoredAs = StoredAs { group: "autoscaling", version: "v2", encode, decode };

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

/// The CPU share that v1 means when it says nothing.
const DEFAULT_CPU: i64 = 80;

fn is_cpu_share(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["averageUtilization"].is_i64()
}

fn cpu_share(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn take_annotation(object: &mut Value, key: &str) -> Option<Value> {
    let metadata = object["metadata"].as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn put_annotation(object: &mut Value, key: &str, value: &Value) {
    if let Some(annotations) = section(&mut object["metadata"], "annotations") {
        annotations.insert(key.into(), json!(value.to_string()));
    }
}

/// The object at `key`, made when it is missing.
fn section<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    parent.as_object_mut()?.entry(key).or_insert_with(|| json!({})).as_object_mut()
}

/// v1 to v2.
fn encode(object: &mut Value) {
    object["apiVersion"] = json!("autoscaling/v2");
    let mut metrics = match take_annotation(object, METRICS) {
        Some(Value::Array(metrics)) => metrics.iter().map(metric_to_v2).collect(),
        _ => Vec::new(),
    };
    let behavior = take_annotation(object, BEHAVIOR);
    let current = take_annotation(object, CURRENT);
    let conditions = take_annotation(object, CONDITIONS);
    if let Some(spec) = section(object, "spec") {
        if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.push(cpu_share(&percent));
        }
        if metrics.is_empty() {
            metrics.push(cpu_share(&json!(DEFAULT_CPU)));
        }
        spec.insert("metrics".into(), Value::Array(metrics));
        if let Some(behavior) = behavior {
            spec.insert("behavior".into(), behavior);
        }
    }
    if object.get("status").is_none() && current.is_none() && conditions.is_none() {
        return;
    }
    let Some(status) = section(object, "status") else { return };
    if let Some(percent) = status.remove("currentCPUUtilizationPercentage") {
        let one = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}});
        status.insert("currentMetrics".into(), json!([one]));
    }
    for (key, value) in [("currentMetrics", current), ("conditions", conditions)] {
        if let Some(value) = value {
            status.insert(key.into(), value);
        }
    }
}

/// v2 to v1.
fn decode(object: &mut Value) {
    object["apiVersion"] = json!("autoscaling/v1");
    let spec = object.get_mut("spec").and_then(Value::as_object_mut);
    let (mut metrics, mut behavior) = (None, None);
    if let Some(spec) = spec {
        metrics = spec.remove("metrics");
        behavior = spec.remove("behavior");
        let cpu =
            metrics.iter().flat_map(|list| list.as_array()).flatten().find(|metric| is_cpu_share(metric));
        if let Some(cpu) = cpu {
            let percent = cpu["resource"]["target"]["averageUtilization"].clone();
            spec.insert("targetCPUUtilizationPercentage".into(), percent);
        }
    }
    let others: Vec<Value> = metrics
        .iter()
        .flat_map(|list| list.as_array())
        .flatten()
        .filter(|metric| !is_cpu_share(metric))
        .map(metric_to_v1)
        .collect();
    if !others.is_empty() {
        put_annotation(object, METRICS, &Value::Array(others));
    }
    if let Some(behavior) = behavior {
        put_annotation(object, BEHAVIOR, &behavior);
    }
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else { return };
    let (current, conditions) = (status.remove("currentMetrics"), status.remove("conditions"));
    let cpu = current
        .iter()
        .flat_map(|list| list.as_array())
        .flatten()
        .filter(|metric| metric["resource"]["name"] == "cpu")
        .map(|metric| &metric["resource"]["current"]["averageUtilization"])
        .find(|percent| percent.is_i64());
    if let Some(percent) = cpu {
        status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
    }
    for (key, value) in [(CURRENT, current), (CONDITIONS, conditions)] {
        if let Some(value) = value.filter(|value| value.as_array().is_some_and(|list| !list.is_empty())) {
            put_annotation(object, key, &value);
        }
    }
}

/// A metric in the form of the v1 annotation: targets are flat.
fn metric_to_v1(metric: &Value) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let (key, mut source) = match kind {
        "Resource" => ("resource", json!({"name": metric["resource"]["name"]})),
        "ContainerResource" => {
            let source = &metric["containerResource"];
            ("containerResource", json!({"name": source["name"], "container": source["container"]}))
        }
        "Pods" => ("pods", json!({"metricName": metric["pods"]["metric"]["name"]})),
        "External" => ("external", json!({"metricName": metric["external"]["metric"]["name"]})),
        "Object" => {
            let source = &metric["object"];
            ("object", json!({"metricName": source["metric"]["name"], "target": source["describedObject"]}))
        }
        _ => return metric.clone(),
    };
    let target = &metric[key]["target"];
    let flat: &[(&str, &str)] = match key {
        "object" => &[("value", "targetValue"), ("averageValue", "averageValue")],
        "external" => &[("value", "targetValue"), ("averageValue", "targetAverageValue")],
        _ => &[("averageUtilization", "targetAverageUtilization"), ("averageValue", "targetAverageValue")],
    };
    for (from, to) in flat {
        if let Some(value) = target.get(*from) {
            source[*to] = value.clone();
        }
    }
    if let Some(selector) = metric[key]["metric"].get("selector") {
        source[if key == "external" { "metricSelector" } else { "selector" }] = selector.clone();
    }
    json!({"type": kind, key: source})
}

/// The reverse of [`metric_to_v1`].
fn metric_to_v2(metric: &Value) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let key = match kind {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "External" => "external",
        "Object" => "object",
        _ => return metric.clone(),
    };
    let source = &metric[key];
    let mut target = json!({});
    let fields = [
        ("targetAverageUtilization", "averageUtilization", "Utilization"),
        ("targetAverageValue", "averageValue", "AverageValue"),
        ("averageValue", "averageValue", "AverageValue"),
        ("targetValue", "value", "Value"),
    ];
    for (from, to, target_type) in fields {
        if let Some(value) = source.get(from) {
            target[to] = value.clone();
            if target.get("type").is_none() {
                target["type"] = json!(target_type);
            }
        }
    }
    let mut metric_id = json!({"name": source["metricName"]});
    if let Some(selector) = source.get("selector").or_else(|| source.get("metricSelector")) {
        metric_id["selector"] = selector.clone();
    }
    let body = match key {
        "resource" => json!({"name": source["name"], "target": target}),
        "containerResource" => {
            json!({"name": source["name"], "container": source["container"], "target": target})
        }
        "object" => json!({"describedObject": source["target"], "metric": metric_id, "target": target}),
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
