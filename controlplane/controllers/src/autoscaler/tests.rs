//! An autoscaler in a cluster whose pods use what the test says.
#![allow(clippy::unwrap_used)]

use super::metrics::{MetricsError, PodUsage};
use super::*;
use crate::Options;
use crate::test_cluster::Cluster;
use coracle_trace::{Record, SpanId, Stage, Uid};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Every pod uses the same.
#[derive(Default)]
struct Said {
    client: OnceLock<Client>,
    milli: i64,
}

#[async_trait]
impl Metrics for Said {
    async fn pods(&self, namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        let client = self.client.get().ok_or(MetricsError::NotServed)?;
        let pods = client.cache(&client.kind("", "pods")).list(Some(namespace));
        let used = BTreeMap::from([("memory".to_owned(), self.milli)]);
        let usage = PodUsage {
            at: time::after(Timestamp::now(), 3600),
            window: 30,
            containers: BTreeMap::from([("c".into(), used)]),
        };
        Ok(pods.iter().map(|pod| (pod.meta.name.clone(), usage.clone())).collect())
    }
}

/// No pod is measured.
struct Silent;

#[async_trait]
impl Metrics for Silent {
    async fn pods(&self, _namespace: &str) -> Result<BTreeMap<String, PodUsage>, MetricsError> {
        Ok(BTreeMap::new())
    }
}

#[tokio::test]
async fn load_makes_replicas() {
    let said = Arc::new(Said { milli: 1_000_000, ..Said::default() });
    let cluster = Cluster::start_with(Options { metrics: Some(said.clone()), ..Options::default() }).await;
    let client = cluster.client.clone();
    said.client.set(client.clone()).ok();
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"memory": "1k"}}}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    cluster.create("apps", "deployments", "default", json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let kind = client.kind("apps", "deployments");
    let replicas =
        || client.cache(&kind).get("default", "a").unwrap().value()["status"]["readyReplicas"].as_i64();
    for _ in 0..600 {
        if replicas() == Some(1) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let hpa = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 2,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    // What was recorded so far takes room.
    cluster.records();
    let hpa = cluster.create("autoscaling", "horizontalpodautoscalers", "default", hpa).await;
    let autoscalers = client.kind("autoscaling", "horizontalpodautoscalers");
    let wanted = || client.cache(&kind).get("default", "a").unwrap().value()["spec"]["replicas"].as_i64();
    for _ in 0..600 {
        if wanted() == Some(2) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(wanted(), Some(2), "{}", client.cache(&autoscalers).get("default", "h").unwrap().value());
    let status = || client.cache(&autoscalers).get("default", "h").unwrap().value()["status"].clone();
    for _ in 0..200 {
        if status()["desiredReplicas"] == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let status = status();
    assert_eq!(status["desiredReplicas"], 2, "{status}");
    assert_eq!(status["currentMetrics"][0]["resource"]["current"]["averageUtilization"], 100, "{status}");
    let able =
        status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "AbleToScale").unwrap().clone();
    // The look after the rescale may have said its own word already.
    assert_eq!(able["status"], "True", "{status}");
    assert!(status["lastScaleTime"].is_string(), "{status}");
    // The scale is part of a turn, and that one follows from the autoscaler.
    let records = cluster.records();
    let cause = SpanId::of_write(Uid::of(&hpa.meta.uid), hpa.revision);
    let turns = records.iter().filter(|turn| {
        turn.record.stage == Stage::Reconcile
            && turn.text == format!("{NAME} default/h")
            && turn.record.parent == cause
    });
    let turns: Vec<SpanId> = turns.map(|turn| turn.record.span).collect();
    let is_scale = |write: &Record, text: &str| {
        write.stage == Stage::Write
            && text.contains(" deployments.apps default/a")
            && turns.contains(&write.parent)
    };
    assert!(records.iter().any(|write| is_scale(&write.record, &write.text)), "{records:#?}");
}

#[tokio::test]
async fn two_autoscalers_of_the_same_pods_both_stop() {
    let said = Arc::new(Said { milli: 1_000_000, ..Said::default() });
    let cluster = Cluster::start_with(Options { metrics: Some(said.clone()), ..Options::default() }).await;
    said.client.set(cluster.client.clone()).ok();
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    cluster.create("apps", "deployments", "default", json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let pod = |c: &Cluster| !c.client.cache(&c.client.kind("", "pods")).list(Some("default")).is_empty();
    cluster.until("a pod", pod).await;
    let hpas = cluster.client.kind("autoscaling", "horizontalpodautoscalers");
    let status = |c: &Cluster, name: &str| {
        c.client.cache(&hpas).get("default", name).unwrap().value()["status"].to_string()
    };
    for name in ["one", "two"] {
        let hpa = json!({"metadata": {"name": name}, "spec": {"maxReplicas": 2,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1k"}}}]}});
        cluster.create("autoscaling", "horizontalpodautoscalers", "default", hpa).await;
        cluster.until("it is looked at", |c| status(c, name).contains("ScalingActive")).await;
    }
    let told = status(&cluster, "two");
    let why = "pods by selector app=a are controlled by multiple HPAs: [{one default} {two default}]";
    assert!(told.contains(why) && told.contains("AmbiguousSelector"), "{told}");
}

#[tokio::test]
async fn pods_that_are_not_measured_are_no_metrics() {
    let cluster =
        Cluster::start_with(Options { metrics: Some(Arc::new(Silent)), ..Options::default() }).await;
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template});
    cluster.create("apps", "deployments", "default", json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let hpa = json!({"metadata": {"name": "h"}, "spec": {"maxReplicas": 2,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    cluster.create("autoscaling", "horizontalpodautoscalers", "default", hpa).await;
    let why = "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API";
    let is_told = |c: &Cluster| {
        let events = c.list("events", "default");
        events.iter().any(|event| event["reason"] == "FailedGetResourceMetric" && event["message"] == why)
    };
    cluster.until("told", is_told).await;
}
