#![allow(clippy::unwrap_used)]
//! Claims of pods, on a cluster.

use super::create::{ANNOTATION, name_base};
use super::release::FINALIZER;
use crate::test_cluster::Cluster;
use coracle_informer::informer::Name;
use serde_json::{Value, json};

#[test]
fn long_names_keep_a_part_of_both() {
    assert_eq!(name_base("web-0", "gpu"), "web-0-gpu-");
    let base = name_base(&"p".repeat(63), &"c".repeat(63));
    assert!(base.len() <= 58, "{base}");
    assert!(base.starts_with("pppp") && base.contains("-cccc"), "{base}");
    assert!(
        name_base(&format!("{}.{}", "p".repeat(27), "q".repeat(60)), "gpu")
            .split('-')
            .all(|part| !part.ends_with('.'))
    );
}

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "metadata": {"labels": {"from": "template"}},
        "spec": {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu.example"}}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "small"}],
        "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]}})
}

fn claims(cluster: &Cluster) -> Vec<Value> {
    cluster.list("resource.k8s.io/resourceclaims", "default")
}

fn named(name: &str) -> Name {
    Name::new("default", name)
}

/// The name of the claim in the status of a pod.
fn generated(cluster: &Cluster, pod: &str) -> Option<String> {
    let pod = cluster.get("pods", &named(pod));
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"].as_str().map(str::to_owned)
}

/// Does what a scheduler does for a claim.
async fn allocate(cluster: &Cluster, claim: &str, pods: &[&str]) {
    let kind = cluster.client.kind("resource.k8s.io", "resourceclaims");
    let held = |value: &mut Value| value["metadata"]["finalizers"] = json!([FINALIZER]);
    cluster.client.modify(&kind, "default", claim, "", held).await.unwrap();
    let uid = |name: &&str| {
        let pod = cluster.get("pods", &named(name));
        json!({"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]})
    };
    let reserved: Vec<Value> = pods.iter().map(uid).collect();
    let allocated = |value: &mut Value| {
        let result = json!({"request": "one", "driver": "gpu.example", "pool": "node1", "device": "gpu-0"});
        let device = json!({"driver": "gpu.example", "pool": "node1", "device": "gpu-0"});
        value["status"] = json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved, "devices": [device]});
    };
    cluster.client.modify(&kind, "default", claim, "status", allocated).await.unwrap();
}

async fn end(cluster: &Cluster, pod: &str) {
    let kind = cluster.client.kind("", "pods");
    let ended = |value: &mut Value| value["status"]["phase"] = json!("Succeeded");
    cluster.client.modify(&kind, "default", pod, "status", ended).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_a_claim_of_its_own_from_a_template() {
    let cluster = Cluster::without_nodes().await;
    cluster.create("", "pods", "default", pod("early")).await;
    let events = |c: &Cluster| c.list("events", "default");
    cluster
        .until("an event names the template", |c| {
            events(c).iter().any(|event| {
                event["reason"] == "FailedResourceClaimCreation"
                    && event["message"].as_str().is_some_and(|text| text.contains("\"small\""))
            })
        })
        .await;
    cluster.create("resource.k8s.io", "resourceclaimtemplates", "default", template("small")).await;
    cluster.until("the claim's name is in the status", |c| generated(c, "early").is_some()).await;
    let name = generated(&cluster, "early").unwrap();
    assert!(name.starts_with("early-gpu-"), "{name}");
    let claim = cluster.get("resource.k8s.io/resourceclaims", &named(&name));
    assert_eq!(claim["metadata"]["annotations"][ANNOTATION], "gpu");
    assert_eq!(claim["metadata"]["labels"]["from"], "template");
    assert_eq!(claim["metadata"]["ownerReferences"][0]["name"], "early");
    assert_eq!(claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"], "gpu.example");
    // Deleted by mistake, it is made again.
    cluster.delete("resource.k8s.io/resourceclaims", &named(&name), "Background").await;
    cluster.until("another claim", |c| generated(c, "early").is_some_and(|other| other != name)).await;
    assert_eq!(claims(&cluster).len(), 1);
    cluster.delete("pods", &named("early"), "Background").await;
    cluster.until("the claim goes with the pod", |c| claims(c).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_released_when_their_last_pod_has_ended() {
    let cluster = Cluster::without_nodes().await;
    cluster.create("resource.k8s.io", "resourceclaimtemplates", "default", template("small")).await;
    let shared = json!({"metadata": {"name": "shared", "namespace": "default"}, "spec": template("x")["spec"]["spec"]});
    cluster.create("resource.k8s.io", "resourceclaims", "default", shared).await;
    for name in ["one", "two"] {
        let mut body = pod(name);
        body["spec"]["resourceClaims"][0] = json!({"name": "gpu", "resourceClaimName": "shared"});
        cluster.create("", "pods", "default", body).await;
    }
    allocate(&cluster, "shared", &["one", "two"]).await;
    let status = |c: &Cluster| c.get("resource.k8s.io/resourceclaims", &named("shared"))["status"].clone();
    end(&cluster, "one").await;
    cluster
        .until("one is gone from it", |c| {
            status(c)["reservedFor"].as_array().is_some_and(|all| all.len() == 1)
        })
        .await;
    assert!(status(&cluster)["allocation"].is_object(), "the other pod uses it");
    cluster.delete("pods", &named("two"), "Background").await;
    let is_clear = |status: &Value| {
        ["allocation", "reservedFor", "devices"].iter().all(|field| status[*field].is_null())
    };
    cluster.until("it is free", |c| is_clear(&status(c))).await;
    cluster
        .until("nothing holds it", |c| {
            let claim = c.get("resource.k8s.io/resourceclaims", &named("shared"));
            claim["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
        })
        .await;

    // A claim that was made for a pod goes when the pod has ended, even if the pod stays.
    cluster.create("", "pods", "default", pod("own")).await;
    cluster.until("it has a claim", |c| generated(c, "own").is_some()).await;
    let name = generated(&cluster, "own").unwrap();
    allocate(&cluster, &name, &["own"]).await;
    end(&cluster, "own").await;
    cluster
        .until("it is deleted", |c| c.get("resource.k8s.io/resourceclaims", &named(&name)).is_null())
        .await;
    assert!(!cluster.get("pods", &named("own")).is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admin_access_needs_a_labelled_namespace() {
    let cluster = Cluster::without_nodes().await;
    let mut template = template("admin");
    template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    let claim = json!({"metadata": {"name": "admin"}, "spec": template["spec"]["spec"]});
    let objects = [("resourceclaims", claim, "spec"), ("resourceclaimtemplates", template, "spec.spec")];
    for (plural, object, path) in &objects {
        let kind = cluster.client.kind("resource.k8s.io", plural);
        let refused = cluster.client.create(&kind, "default", object.clone()).await.unwrap_err();
        assert_eq!(refused.code, 422, "{refused}");
        let cause = &refused.details.causes[0];
        assert_eq!(cause.field, format!("{path}.devices.requests[0].exactly.adminAccess"));
        assert!(cause.message.contains("`resource.kubernetes.io/admin-access: true`"), "{refused}");
    }
    let labels = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    cluster.patch("namespaces", &Name::new("", "default"), labels).await;
    for (plural, object, _) in objects {
        cluster.create("resource.k8s.io", plural, "default", object).await;
    }
}
