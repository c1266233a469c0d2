#![allow(clippy::unwrap_used)]
use crate::PendingReasons;
use crate::config::Configuration;
use crate::run::start_with;
use crate::tests::{NO_TIMERS, cluster};
use coracle_client::options::DeleteOptions;
use coracle_client::patch::Patch;
use coracle_kinds::object::Name;
use coracle_testing::Cluster;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;

pub(super) struct Fixture {
    pub(super) cluster: Cluster,
    pending: PendingReasons,
    _tasks: JoinSet<()>,
}

pub(super) async fn fixture() -> Fixture {
    fixture_with(Configuration::default()).await
}

pub(super) async fn fixture_with(config: Configuration) -> Fixture {
    let cluster = cluster().await;
    let account = Name::new("default", "default");
    cluster.until("a service account", |c| !c.get("serviceaccounts", &account).is_null()).await;
    let pending = PendingReasons::default();
    let supervised = (&Default::default(), NO_TIMERS);
    let tasks = start_with(&cluster.client, config, Arc::default(), &pending, supervised);
    Fixture { cluster, pending, _tasks: tasks }
}

impl Fixture {
    pub(super) async fn node(&self, name: &str, cpu: &str) {
        let kind = self.cluster.client.kind("", "nodes");
        let body = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        self.cluster.create("", "nodes", "", body).await;
        let status = json!({"status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.cluster.client.patch(&kind, "", name, "status", Patch::Merge(status)).await.unwrap();
    }

    pub(super) async fn pod(&self, name: &str, cpu: &str, change: impl FnOnce(&mut Value)) {
        let mut body = json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}]},
        });
        change(&mut body);
        self.cluster.create("", "pods", "default", body).await;
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.cluster.get("pods", &Name::new("default", name))
    }

    pub(super) async fn bound(&self, name: &str) -> String {
        self.cluster
            .until(&format!("{name} bound"), |_| self.get(name)["spec"]["nodeName"].is_string())
            .await;
        self.get(name)["spec"]["nodeName"].as_str().unwrap().to_owned()
    }
}

pub(super) fn condition(pod: &Value, kind: &str) -> Value {
    let list = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.into_iter().find(|c| c["type"] == kind).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_nodes_and_say_so() {
    let f = fixture().await;
    for i in 0..3 {
        f.node(&format!("n{i}"), "4").await;
    }
    for i in 0..12 {
        f.pod(&format!("p{i}"), "100m", |_| {}).await;
    }
    f.pod("foreign", "100m", |p| p["spec"]["schedulerName"] = json!("other")).await;
    let mut count: HashMap<String, u32> = HashMap::new();
    for i in 0..12 {
        *count.entry(f.bound(&format!("p{i}")).await).or_default() += 1;
    }
    assert_eq!(count.len(), 3, "{count:?}");
    assert_eq!(condition(&f.get("p0"), "PodScheduled")["status"], "True");
    let said = |c: &Cluster| {
        c.list("events", "default").iter().any(|e| {
            e["reason"] == "Scheduled"
                && e["message"]
                    .as_str()
                    .is_some_and(|m| m.starts_with("Successfully assigned default/p0 to n"))
        })
    };
    f.cluster.until("an event", said).await;
    assert!(f.get("foreign")["spec"]["nodeName"].is_null(), "another scheduler's pod is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_waits_says_why_and_goes_when_the_cause_is_gone() {
    let f = fixture().await;
    f.node("small", "1").await;
    f.pod("big", "2", |_| {}).await;
    let told = |c: &Cluster| {
        let pod = c.get("pods", &Name::new("default", "big"));
        condition(&pod, "PodScheduled")["message"]
            == "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    };
    f.cluster.until("a condition", told).await;
    let condition = condition(&f.get("big"), "PodScheduled");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Unschedulable")));
    f.cluster
        .until("an event", |c| c.list("events", "default").iter().any(|e| e["reason"] == "FailedScheduling"))
        .await;
    let (why, _) = f.pending.of("default", "big").unwrap();
    assert_eq!(why.rejections[0].0, "small");
    // The new node wakes the scheduler, and no timer: it has none that `bound` would see the end of.
    f.node("large", "4").await;
    assert_eq!(f.bound("big").await, "large");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gated_pod_waits_for_its_gates() {
    let f = fixture().await;
    f.node("n", "4").await;
    f.pod("gated", "1", |p| p["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}])).await;
    f.pod("free", "1", |_| {}).await;
    f.bound("free").await;
    assert!(f.get("gated")["spec"]["nodeName"].is_null());
    f.cluster.patch("pods", &Name::new("default", "gated"), json!({"spec": {"schedulingGates": null}})).await;
    f.bound("gated").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_important_pod_pushes_out_a_less_important_one() {
    let f = fixture().await;
    f.node("n", "2").await;
    let class = |name: &str, value: i32| json!({"metadata": {"name": name}, "value": value});
    f.cluster.create("scheduling.k8s.io", "priorityclasses", "", class("high", 1000)).await;
    f.pod("low", "1500m", |_| {}).await;
    f.bound("low").await;
    f.pod("high", "1", |p| p["spec"]["priorityClassName"] = json!("high")).await;
    let gone = |c: &Cluster| {
        let low = c.get("pods", &Name::new("default", "low"));
        low.is_null() || low["metadata"]["deletionTimestamp"].is_string()
    };
    f.cluster.until("the less important one to go", gone).await;
    let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let _ = f.cluster.client.delete(&f.cluster.client.kind("", "pods"), "default", "low", options).await;
    assert_eq!(f.bound("high").await, "n");
    f.cluster
        .until("an event", |c| c.list("events", "default").iter().any(|e| e["reason"] == "Preempted"))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_its_volume_before_its_pod_gets_its_node() {
    let f = fixture().await;
    f.node("n", "4").await;
    let class = json!({"metadata": {"name": "late"}, "provisioner": "x.io/p", "volumeBindingMode": "WaitForFirstConsumer"});
    f.cluster.create("storage.k8s.io", "storageclasses", "", class).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    f.cluster.create("", "persistentvolumeclaims", "default", claim).await;
    f.pod("p", "1", |p| {
        p["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    })
    .await;
    let data = Name::new("default", "data");
    let selected = |c: &Cluster| {
        c.get("persistentvolumeclaims", &data)["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
            == "n"
    };
    f.cluster.until("a node selected", selected).await;
    assert!(f.get("p")["spec"]["nodeName"].is_null());
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late", "hostPath": {"path": "/data"}}});
    f.cluster.create("", "persistentvolumes", "", volume).await;
    f.cluster.patch("persistentvolumeclaims", &data, json!({"spec": {"volumeName": "pv"}})).await;
    let kind = f.cluster.client.kind("", "persistentvolumeclaims");
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    f.cluster.client.patch(&kind, "default", "data", "status", bound).await.unwrap();
    assert_eq!(f.bound("p").await, "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn bindings_are_answered_one_by_one() {
    let cluster = cluster().await;
    let f = Fixture { cluster, pending: PendingReasons::default(), _tasks: JoinSet::new() };
    for name in ["a", "b", "c", "gated"] {
        f.pod(name, "1", |p| {
            if name == "gated" {
                p["spec"]["schedulingGates"] = json!([{"name": "x.io/wait"}]);
            }
        })
        .await;
    }
    let uids = ["a", "b", "c", "gated"].map(|n| f.get(n)["metadata"]["uid"].as_str().unwrap().to_owned());
    let scope = coracle_trace::Scope::NONE;
    let place = |name, uid| coracle_client::pipeline::Placement {
        namespace: "default",
        name,
        uid,
        node: "node-1",
        scope,
    };
    let first = f.cluster.client.bind(&[place("b", uids[1].as_str())]).await;
    assert!(first[0].is_ok());
    let placements = [
        place("a", uids[0].as_str()),
        place("b", uids[1].as_str()),
        place("c", "another"),
        place("gone", "x"),
        place("gated", uids[3].as_str()),
    ];
    let answers = f.cluster.client.bind(&placements).await;
    let told: Vec<String> =
        answers.into_iter().map(|a| a.err().map(|e| e.message).unwrap_or_default()).collect();
    for (at, part) in
        ["", "already assigned", "Precondition failed", "not found", "schedulingGates"].iter().enumerate()
    {
        assert!(told[at].contains(part) && (at > 0) != told[at].is_empty(), "{told:?}");
    }
    for name in ["a", "b"] {
        let pod = f.get(name);
        assert_eq!(pod["spec"]["nodeName"], "node-1");
        assert_eq!(condition(&pod, "PodScheduled")["status"], "True");
        let managers = pod["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(managers.len(), 1, "a binding is nobody's: {managers:?}");
    }
}
