//! Claims of devices, with the API and the controllers.
#![allow(clippy::unwrap_used)]
use crate::run_tests::{Fixture, condition, fixture};
use coracle_client::options::DeleteOptions;
use coracle_client::patch::Patch;
use coracle_kinds::object::Name;
use serde_json::{Value, json};
use std::collections::HashSet;

const GROUP: &str = "resource.k8s.io";
const CLAIMS: &str = "resource.k8s.io/resourceclaims";

impl Fixture {
    /// A class, and devices on nodes.
    async fn devices(&self, nodes: &[(&str, usize)]) {
        let class = json!({"metadata": {"name": "gpu"}, "spec": {
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
        self.cluster.create(GROUP, "deviceclasses", "", class).await;
        for (node, count) in nodes {
            self.node(node, "64").await;
            let devices: Vec<Value> = (0..*count).map(|n| json!({"name": format!("gpu-{n}")})).collect();
            let slice = json!({"metadata": {"name": format!("{node}-gpu")}, "spec": {
                "driver": "gpu.example.com", "nodeName": node, "devices": devices,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}});
            self.cluster.create(GROUP, "resourceslices", "", slice).await;
        }
    }

    async fn template(&self) {
        let template = json!({"metadata": {"name": "one-gpu"}, "spec": {"spec": spec()}});
        self.cluster.create(GROUP, "resourceclaimtemplates", "default", template).await;
    }

    async fn user(&self, name: &str, source: (&str, &str)) {
        self.pod(name, "10m", |pod| {
            pod["spec"]["resourceClaims"] = json!([{"name": "gpu", source.0: source.1}]);
            pod["spec"]["containers"][0]["resources"]["claims"] = json!([{"name": "gpu"}]);
        })
        .await;
    }

    fn claim(&self, name: &str) -> Value {
        self.cluster.get(CLAIMS, &Name::new("default", name))
    }

    /// The claim that was made for a pod.
    fn claim_of(&self, pod: &str) -> Value {
        let name = self.get(pod)["status"]["resourceClaimStatuses"][0]["resourceClaimName"].clone();
        self.claim(name.as_str().unwrap_or_default())
    }

    async fn remove(&self, pod: &str) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        self.cluster
            .client
            .delete(&self.cluster.client.kind("", "pods"), "default", pod, options)
            .await
            .unwrap();
    }

    async fn says(&self, pod: &str, message: &str) {
        self.cluster
            .until(&format!("{pod} waits: {message}"), |_| {
                let condition = condition(&self.get(pod), "PodScheduled");
                condition["message"].as_str().is_some_and(|text| text.contains(message))
            })
            .await;
    }
}

fn spec() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_a_device_and_gives_it_back() {
    let f = fixture().await;
    f.devices(&[("n", 1)]).await;
    f.template().await;
    f.user("first", ("resourceClaimTemplateName", "one-gpu")).await;
    assert_eq!(f.bound("first").await, "n");
    let claim = f.claim_of("first");
    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"});
    assert_eq!(claim["status"]["allocation"]["devices"]["results"], json!([result]));
    let consumer = json!({"resource": "pods", "name": "first", "uid": f.get("first")["metadata"]["uid"]});
    assert_eq!(claim["status"]["reservedFor"], json!([consumer]));
    assert_eq!(claim["metadata"]["finalizers"], json!(["resource.kubernetes.io/delete-protection"]));
    f.user("second", ("resourceClaimTemplateName", "one-gpu")).await;
    f.says("second", "0/1 nodes are available: 1 cannot allocate all claims.").await;
    f.remove("first").await;
    assert_eq!(f.bound("second").await, "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_device_is_given_twice() {
    let f = fixture().await;
    f.devices(&[("a", 4), ("b", 4)]).await;
    f.template().await;
    let names: Vec<String> = (0..12).map(|n| format!("p{n}")).collect();
    for name in &names {
        f.user(name, ("resourceClaimTemplateName", "one-gpu")).await;
    }
    let is_bound = |name: &&String| f.get(name)["spec"]["nodeName"].is_string();
    f.cluster.until("eight have devices", |_| names.iter().filter(is_bound).count() == 8).await;
    let mut given = HashSet::new();
    for name in names.iter().filter(is_bound) {
        let result = f.claim_of(name)["status"]["allocation"]["devices"]["results"][0].clone();
        assert_eq!(result["pool"], f.get(name)["spec"]["nodeName"], "{result}");
        assert!(given.insert(result.to_string()), "{result} was given twice");
    }
    for name in names.iter().filter(|name| !is_bound(name)) {
        f.says(name, "0/2 nodes are available: 2 cannot allocate all claims.").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_share_a_claim() {
    let f = fixture().await;
    f.devices(&[("a", 1), ("b", 1)]).await;
    let names: Vec<String> = (0..5).map(|n| format!("p{n}")).collect();
    for name in &names {
        f.user(name, ("resourceClaimName", "shared")).await;
    }
    f.says("p0", "resourceclaim.resource.k8s.io \"shared\" not found").await;
    let claim = json!({"metadata": {"name": "shared"}, "spec": spec()});
    f.cluster.create(GROUP, "resourceclaims", "default", claim).await;
    let mut nodes = HashSet::new();
    for name in &names {
        nodes.insert(f.bound(name).await);
    }
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    let status = f.claim("shared")["status"].clone();
    assert_eq!(status["reservedFor"].as_array().unwrap().len(), 5, "{status}");
    for name in &names {
        f.remove(name).await;
    }
    f.cluster.until("it is released", |_| f.claim("shared")["status"]["allocation"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_with_devices_of_a_lost_node_gets_others() {
    let f = fixture().await;
    f.devices(&[("n", 1)]).await;
    let claim = json!({"metadata": {"name": "moved"}, "spec": spec()});
    f.cluster.create(GROUP, "resourceclaims", "default", claim).await;
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["lost"]});
    let result = json!({"request": "gpu", "driver": "gpu.example.com", "pool": "lost", "device": "gpu-0"});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [name]}]}}}});
    let kind = f.cluster.client.kind(GROUP, "resourceclaims");
    f.cluster.client.patch(&kind, "default", "moved", "status", Patch::Merge(status)).await.unwrap();
    f.user("p", ("resourceClaimName", "moved")).await;
    assert_eq!(f.bound("p").await, "n");
    assert_eq!(f.claim("moved")["status"]["allocation"]["devices"]["results"][0]["pool"], "n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_bound_when_its_devices_are_ready() {
    let f = fixture().await;
    f.devices(&[("n", 0)]).await;
    let devices: Vec<Value> = ["gpu-0", "gpu-1"]
        .map(|name| json!({"name": name, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}))
        .into();
    let slice = json!({"spec": {"devices": devices}});
    f.cluster.patch("resource.k8s.io/resourceslices", &Name::new("", "n-gpu"), slice).await;
    f.template().await;
    f.user("p", ("resourceClaimTemplateName", "one-gpu")).await;
    let pending = |e: &Value| e["reason"] == "BindingConditionsPending" && e["involvedObject"]["name"] == "p";
    f.cluster.until("an event", |c| c.list("events", "default").iter().any(pending)).await;
    let device = |f: &Fixture| f.claim_of("p")["status"]["allocation"]["devices"]["results"][0].clone();
    let said = async |condition: &str, result: Value| {
        let time = "2026-01-01T00:00:00Z";
        let condition = json!({"type": condition, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time});
        let status = json!({"status": {"devices": [{"driver": result["driver"], "pool": result["pool"],
            "device": result["device"], "conditions": [condition]}]}});
        let name = f.claim_of("p")["metadata"]["name"].as_str().unwrap().to_owned();
        let kind = f.cluster.client.kind(GROUP, "resourceclaims");
        f.cluster.client.patch(&kind, "default", &name, "status", Patch::Merge(status)).await.unwrap();
    };
    f.cluster.until("it has a device", |_| device(&f).is_object()).await;
    assert!(f.get("p")["spec"]["nodeName"].is_null(), "its device is not ready");
    let first = device(&f);
    said("broken", first.clone()).await;
    // The device that failed is given back, and the pod gets one again: with its conditions open, as before.
    f.cluster
        .until("it gets a device again", |_| {
            let claim = f.claim_of("p");
            claim["status"]["allocation"].is_object() && claim["status"]["devices"].is_null()
        })
        .await;
    said("attached", device(&f)).await;
    assert_eq!(f.bound("p").await, "n");
}
