//! Defaults of HorizontalPodAutoscalers.

use coracle_fields::autoscaling_v2::{HPAScalingRules, HorizontalPodAutoscaler, MetricSpec};
use coracle_fields::{Edit, Made, Schema, autoscaling_v1, make};
use serde_json::Value;

/// A v2 autoscaler.
pub fn v2(object: &mut Value) {
    let mut autoscaler = HorizontalPodAutoscaler::edit(object);
    let mut spec = autoscaler.spec().section();
    spec.min_replicas().default(1);
    let cpu = make!(part MetricSpec {
        type_: "Resource",
        resource: { name: "cpu", target: { type_: "Utilization", average_utilization: 80 } },
    });
    spec.metrics().default_empty([cpu]);
    if let Some(mut behavior) = spec.behavior().existing() {
        rules(behavior.scale_up().section(), &scale_up());
        rules(behavior.scale_down().section(), &scale_down());
    }
}

/// A v1 autoscaler; its CPU share is settled when it becomes a v2 one.
pub fn v1(object: &mut Value) {
    autoscaling_v1::HorizontalPodAutoscaler::edit(object).spec().min_replicas().default(1);
}

fn scale_up() -> Made<HPAScalingRules> {
    make!(part HPAScalingRules {
        stabilization_window_seconds: 0,
        select_policy: "Max",
        policies: [
            { type_: "Pods", value: 4, period_seconds: 15 },
            { type_: "Percent", value: 100, period_seconds: 15 },
        ],
    })
}

fn scale_down() -> Made<HPAScalingRules> {
    make!(part HPAScalingRules {
        select_policy: "Max",
        policies: [{ type_: "Percent", value: 100, period_seconds: 15 }],
    })
}

fn rules(mut section: Edit<'_, HPAScalingRules>, defaults: &Made<HPAScalingRules>) {
    let defaults = defaults.view();
    if !section.view().stabilization_window_seconds().is_set() {
        section.stabilization_window_seconds().set(defaults.stabilization_window_seconds());
    }
    if !section.view().select_policy().is_set() {
        section.select_policy().set(defaults.select_policy());
    }
    if !section.view().policies().is_set() {
        section.policies().set(defaults.policies());
    }
}
