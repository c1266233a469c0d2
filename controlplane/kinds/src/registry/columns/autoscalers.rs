//! Columns of HorizontalPodAutoscalers, in either form.

use super::{age, count, name, text};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// HorizontalPodAutoscalers.
pub fn autoscaler() -> Vec<Column> {
    vec![
        name(),
        text("Reference", |object| {
            let target = object.at("spec.scaleTargetRef");
            json!(format!("{}/{}", target.text("kind"), target.text("name")))
        }),
        text("Targets", |object| json!(targets(object))),
        text("MinPods", |object| {
            json!(object.int("spec.minReplicas").map_or_else(|| "<unset>".into(), |count| count.to_string()))
        }),
        text("MaxPods", |object| count(object, "spec.maxReplicas")),
        text("Replicas", |object| count(object, "status.currentReplicas")),
        age(),
    ]
}

/// The first two metrics and how many more there are.
fn targets(object: &Value) -> String {
    let statuses = object.items("status.currentMetrics");
    let metrics = object.items("spec.metrics");
    if let (true, Some(goal)) = (metrics.is_empty(), object.int("spec.targetCPUUtilizationPercentage")) {
        let now = object.int("status.currentCPUUtilizationPercentage");
        return format!("cpu: {}/{goal}%", now.map_or("<unknown>".into(), |percent| format!("{percent}%")));
    }
    if metrics.is_empty() {
        return "<none>".into();
    }
    let shown: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(2)
        .map(|(index, metric)| target(metric, statuses.get(index).unwrap_or(&Value::Null)))
        .collect();
    let more = metrics.len().saturating_sub(2);
    if more == 0 { shown.join(", ") } else { format!("{} + {more} more...", shown.join(", ")) }
}

fn target(metric: &Value, status: &Value) -> String {
    let source = match metric.text("type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let (wanted, current) = (metric.at(source).at("target"), status.at(source).at("current"));
    let quantity = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "<unknown>".into(),
        other => other.to_string(),
    };
    let average = wanted.has("averageValue");
    let value = if average { "averageValue" } else { "value" };
    let pair = format!("{}/{}", quantity(current.at(value)), quantity(wanted.at(value)));
    match source {
        "pods" => pair,
        "external" | "object" => format!("{pair}{}", if average { " (avg)" } else { "" }),
        _ if average => format!("{}: {pair}", metric.at(source).text("name")),
        _ => {
            let percent =
                |value: Option<i64>, absent: &str| value.map_or(absent.to_owned(), |v| format!("{v}%"));
            let now = percent(current.int("averageUtilization"), "<unknown>");
            let goal = percent(wanted.int("averageUtilization"), "<auto>");
            format!("{}: {now}/{goal}", metric.at(source).text("name"))
        }
    }
}
