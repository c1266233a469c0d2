//! Autoscalers whose metrics nobody serves, and whose selector comes from the scale.

use crate::both::on_both;
use serde_json::{Value, json};

fn boats(group: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("boats.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}}}},
             "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector"}}}]}})
}

/// The metrics APIs of both servers are absent: the autoscaler says which one it asked, and about what.
#[test]
fn hpa_asks_the_custom_and_external_metrics_apis_and_takes_the_selector_of_the_scale() {
    on_both("hpa", |place| {
        let group = format!("{}.example.com", place.name);
        place.create_cluster("crd", &boats(&group));
        place.run(&format!("wait --for=condition=Established crd/boats.{group} --timeout=60s"));
        let boat = json!({"apiVersion": format!("{group}/v1"), "kind": "Boat", "metadata": {"name": "b"}, "spec": {"replicas": 2}});
        coracle_tests::eventually("the kind is served", crate::both::PATIENCE, || {
            place.try_run("create -f -", &boat.to_string()).ok
        });
        let hpa = |name: &str, metric: Value| {
            json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
                "spec": {"maxReplicas": 5, "metrics": [metric],
                    "scaleTargetRef": {"apiVersion": format!("{group}/v1"), "kind": "Boat", "name": "b"}}})
        };
        let target = json!({"type": "AverageValue", "averageValue": "10"});
        let metrics = [
            ("pods", json!({"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": target}})),
            (
                "object",
                json!({"type": "Object", "object": {"metric": {"name": "hits"}, "target": target,
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"}}}),
            ),
            (
                "external",
                json!({"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"of": "mail"}}}, "target": target}}),
            ),
        ];
        place.create(&hpa("nothing", metrics[0].1.clone()));
        let condition = ".status.conditions[?(@.type==\"ScalingActive\")]";
        let active = format!("{{{condition}.reason}}: {{{condition}.message}}");
        let told = place.until("hpa/nothing", &active, |said| said.len() > 3);
        place.saw("without a selector", told);
        place.run("delete hpa nothing");
        place.set_status(&format!("boats.{group}/b"), &json!({"replicas": 2, "selector": "app=b"}));
        for (name, metric) in metrics {
            place.create(&hpa(name, metric));
            // Two autoscalers of one target say so; each is alone here.
            let told = place.until(&format!("hpa/{name}"), &active, |said| said.len() > 3);
            place.saw(name, told);
            place.run(&format!("delete hpa {name}"));
        }
    });
}
