//! Autoscalers ask the custom and the external metrics API of aggregated servers.

use super::aggregation::Extension;
use coracle_tests::eventually;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const CUSTOM: &str = "/apis/custom.metrics.k8s.io/v1beta2";
const EXTERNAL: &str = "/apis/external.metrics.k8s.io/v1beta1";
const PATIENCE: Duration = Duration::from_secs(60);

/// What the metrics server answers: the queue is 30 long, the Service has 40 hits, and the one pod of the crew has caught 30 fish.
pub(super) fn answer(path: &str, query: &str) -> Option<Value> {
    let time = "2026-01-01T00:00:00Z";
    match path {
        CUSTOM | EXTERNAL => {
            let version = path.trim_start_matches("/apis/");
            Some(
                json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []}),
            )
        }
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue"
            if query == "labelSelector=of%3Dmail" =>
        {
            let value = |value: &str| json!({"metricName": "queue", "timestamp": time, "value": value});
            Some(json!({"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1",
                "items": [value("29500m"), value("500m")]}))
        }
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/services/boats/hits" => {
            let object = json!({"kind": "Service", "name": "boats", "namespace": "default"});
            Some(json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "items": [
                {"describedObject": object, "metric": {"name": "hits"}, "timestamp": time, "value": "40"}]}))
        }
        // The path of all pods, escaped as client-go does.
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/%2A/catch"
            if query == "labelSelector=app%3Dcrew&metricLabelSelector=kind%3Dfish" =>
        {
            let object = json!({"kind": "Pod", "name": "crew-0", "namespace": "default"});
            Some(json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2", "items": [
                {"describedObject": object, "metric": {"name": "catch"}, "timestamp": time, "value": "30"}]}))
        }
        _ => None,
    }
}

#[test]
fn hpa_scales_by_a_metric_of_the_pods_that_the_scale_selects() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let extension = Extension::start(server.data_dir(), 0);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "boats"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    kubectl.run_with("create -f -", &service.to_string());
    kubectl.run_with("create -f -", &extension.registration_of("custom.metrics.k8s.io", "v1beta2"));
    // Its pods have names that the metrics server knows.
    let labels = json!({"app": "crew"});
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "crew"}, "spec": {
        "replicas": 1, "serviceName": "crew", "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    kubectl.run_with("create -f -", &set.to_string());
    eventually("the pod is there", PATIENCE, || {
        kubectl.try_with("get pod crew-0 -o name", "").out.trim() == "pod/crew-0"
    });
    let ready = json!({"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    kubectl.run_with(
        "patch pod crew-0 --subresource=status --type=merge --patch-file=/dev/stdin",
        &ready.to_string(),
    );
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "catch", "selector": {"matchLabels": {"kind": "fish"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "crew"},
        "spec": {"maxReplicas": 9, "metrics": [pods],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "crew"}}});
    kubectl.run_with("create -f -", &hpa.to_string());
    eventually("the StatefulSet is scaled", PATIENCE, || {
        kubectl.run("get statefulset crew -o jsonpath={.spec.replicas}") == "3"
    });
}

#[test]
fn hpa_scales_by_object_and_external_metrics_of_aggregated_apis() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let extension = Extension::start(server.data_dir(), 0);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "boats"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    kubectl.run_with("create -f -", &service.to_string());
    kubectl.run("create deployment web --image=i");
    let external = json!({"type": "External", "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"of": "mail"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let object = json!({"type": "Object", "object": {"metric": {"name": "hits"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "boats"},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"maxReplicas": 9, "metrics": [external, object],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    kubectl.run_with("create -f -", &hpa.to_string());
    eventually("nobody serves the metrics", PATIENCE, || {
        let told =
            kubectl.run("get hpa web -o jsonpath={.status.conditions[?(@.type==\"ScalingActive\")].message}");
        told.contains("the server could not find the requested resource (get queue.external.metrics.k8s.io)")
    });
    for (group, version) in [("custom.metrics.k8s.io", "v1beta2"), ("external.metrics.k8s.io", "v1beta1")] {
        kubectl.run_with("create -f -", &extension.registration_of(group, version));
        eventually("the API is available", PATIENCE, || {
            kubectl.run(&format!("get apiservice {version}.{group} --no-headers")).contains("True")
        });
    }
    eventually("the Deployment is scaled", PATIENCE, || {
        kubectl.run("get deployment web -o jsonpath={.spec.replicas}") == "4"
    });
    eventually("the metrics are in the status", PATIENCE, || {
        let status: Value =
            serde_json::from_str(&kubectl.run("get hpa web -o jsonpath={.status.currentMetrics}"))
                .unwrap_or_default();
        status[0]["external"]["current"]["averageValue"].is_string()
            && status[1]["object"]["current"]["averageValue"].is_string()
    });
}
