//! Defaults of HorizontalPodAutoscalers.

use crate::tree::{Grow, Tree, is_empty};
use serde_json::{Value, json};

/// A v2 autoscaler.
pub fn v2(object: &mut Value) {
    v1(object);
    let spec = object.section("spec");
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 80}}});
    spec.default_empty("metrics", json!([cpu]));
    if let Some(behavior) = spec.existing("behavior") {
        rules(behavior.section("scaleUp"), scale_up());
        rules(behavior.section("scaleDown"), scale_down());
    }
}

/// A v1 autoscaler; its CPU share is settled when it becomes a v2 one.
pub fn v1(object: &mut Value) {
    object.section("spec").default("minReplicas", 1);
}

fn scale_up() -> Value {
    json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]})
}

fn scale_down() -> Value {
    json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
}

fn rules(section: &mut Value, defaults: Value) {
    for (key, value) in defaults.as_object().into_iter().flatten() {
        if is_empty(section.at(key)) && !section.has(key) {
            section.put(key, value.clone());
        }
    }
}
