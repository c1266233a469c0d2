//! What a user sees of the controllers, on the real pipeline.

#![allow(clippy::unwrap_used)]
use super::cluster::Cluster;
use super::informer::Name;
use serde_json::{Value, json};

fn web() -> Name {
    Name::new("default", "web")
}

fn deployment(replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": template(json!({"app": "web"}), "v1")},
    })
}

fn template(labels: Value, image: &str) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn ready(cluster: &Cluster, replicas: i64, image: &str) -> bool {
    let status = cluster.get("apps/deployments", &web())["status"].clone();
    let pods = cluster.list("pods", "default");
    let all = status["readyReplicas"] == replicas
        && status["updatedReplicas"] == replicas
        && status["replicas"] == replicas;
    all && pods.iter().all(|p| p["spec"]["containers"][0]["image"] == image) && pods.len() as i64 == replicas
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_scales_and_rolls_back() {
    let cluster = Cluster::start().await;
    cluster.create("apps", "deployments", "default", deployment(3)).await;
    cluster.until("3 ready pods", |c| ready(c, 3, "v1")).await;
    let pod = &cluster.list("pods", "default")[0];
    assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("web-"));
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");

    cluster.patch("apps/deployments", &web(), json!({"spec": {"template": template(json!({}), "v2")}})).await;
    cluster.until("the new image", |c| ready(c, 3, "v2")).await;
    assert_eq!(cluster.list("apps/replicasets", "default").len(), 2);
    let revision = |c: &Cluster| {
        c.get("apps/deployments", &web())["metadata"]["annotations"]["deployment.kubernetes.io/revision"]
            .clone()
    };
    cluster.until("revision 2", |c| revision(c) == "2").await;

    cluster.patch("apps/deployments", &web(), json!({"spec": {"replicas": 5}})).await;
    cluster.until("5 pods", |c| ready(c, 5, "v2")).await;

    cluster.patch("apps/deployments", &web(), json!({"spec": {"template": template(json!({}), "v1")}})).await;
    cluster.until("back to the first", |c| ready(c, 5, "v1")).await;
    cluster.until("revision 3", |c| revision(c) == "3").await;
    assert_eq!(cluster.list("apps/replicasets", "default").len(), 2);
    cluster
        .until("rollout status says done", |c| {
            let status = c.get("apps/deployments", &web())["status"].clone();
            let all = status["conditions"].as_array().cloned().unwrap_or_default();
            all.iter().any(|c| c["reason"] == "NewReplicaSetAvailable" && c["status"] == "True")
        })
        .await;
    cluster
        .until("events", |c| {
            let events = c.list("events", "default");
            ["ScalingReplicaSet", "SuccessfulCreate", "SuccessfulDelete"]
                .iter()
                .all(|reason| events.iter().any(|e| e["reason"] == *reason))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_follows_its_policy() {
    for policy in ["Background", "Foreground", "Orphan"] {
        let cluster = Cluster::start().await;
        cluster.create("apps", "deployments", "default", deployment(2)).await;
        cluster.until("2 ready pods", |c| ready(c, 2, "v1")).await;
        cluster.delete("apps/deployments", &web(), policy).await;
        cluster.until("no deployment", |c| c.get("apps/deployments", &web()).is_null()).await;
        let sets = |c: &Cluster| c.list("apps/replicasets", "default");
        if policy == "Orphan" {
            let left = sets(&cluster);
            assert_eq!(left.len(), 1);
            assert!(
                left[0]["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty),
                "{:?}",
                left[0]
            );
            assert_eq!(cluster.list("pods", "default").len(), 2);
            // A new deployment with the same selector adopts what was left.
            cluster.create("apps", "deployments", "default", deployment(2)).await;
            cluster.until("adopted", |c| ready(c, 2, "v1") && sets(c).len() == 1).await;
        } else {
            if policy == "Foreground" {
                assert!(sets(&cluster).is_empty(), "dependents go first");
            }
            cluster
                .until("nothing left", |c| sets(c).is_empty() && c.list("pods", "default").is_empty())
                .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_gets_its_basics_and_goes_with_its_content() {
    let cluster = Cluster::start().await;
    cluster.create("", "namespaces", "", json!({"metadata": {"name": "team"}})).await;
    let basics = |c: &Cluster| {
        !c.get("serviceaccounts", &Name::new("team", "default")).is_null()
            && c.get("configmaps", &Name::new("team", "kube-root-ca.crt"))["data"]["ca.crt"] == "PEM"
    };
    cluster.until("basics", basics).await;
    let pod =
        json!({"metadata": {"name": "a", "namespace": "team"}, "spec": template(json!({}), "v1")["spec"]});
    cluster.create("", "pods", "team", pod).await;
    let held = json!({"metadata": {"name": "held", "namespace": "team", "finalizers": ["example.com/hold"]}});
    cluster.create("", "configmaps", "team", held).await;
    cluster.until("pods", |c| c.list("pods", "team").len() == 1).await;
    cluster.delete("namespaces", &Name::new("", "team"), "Background").await;
    let remaining = |c: &Cluster| {
        let all = c.get("namespaces", &Name::new("", "team"))["status"]["conditions"].clone();
        let all = all.as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
    };
    cluster.until("it says what holds it", remaining).await;
    cluster.patch("configmaps", &Name::new("team", "held"), json!({"metadata": {"finalizers": null}})).await;
    cluster.until("gone", |c| c.get("namespaces", &Name::new("", "team")).is_null()).await;
    assert!(cluster.list("pods", "team").is_empty());
    assert!(cluster.list("configmaps", "team").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_have_the_endpoints_of_their_ready_pods() {
    let cluster = Cluster::start().await;
    cluster.create("apps", "deployments", "default", deployment(3)).await;
    let service = json!({"metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}});
    cluster.create("", "services", "default", service).await;
    let count = |c: &Cluster| -> (usize, usize) {
        let slices = c.list("discovery.k8s.io/endpointslices", "default");
        let ready = slices.iter().flat_map(|s| s["endpoints"].as_array().cloned().unwrap_or_default());
        let endpoints = c.get("endpoints", &web());
        let addresses = endpoints["subsets"][0]["addresses"].as_array().map_or(0, Vec::len);
        (ready.filter(|e| e["conditions"]["ready"] == true).count(), addresses)
    };
    cluster.until("3 endpoints", |c| count(c) == (3, 3)).await;
    cluster.patch("apps/deployments", &web(), json!({"spec": {"replicas": 1}})).await;
    cluster.until("1 endpoint", |c| count(c) == (1, 1)).await;
    cluster.delete("services", &web(), "Background").await;
    cluster
        .until("no endpoints", |c| {
            c.list("discovery.k8s.io/endpointslices", "default").is_empty()
                && c.get("endpoints", &web()).is_null()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_get_ranges_and_pods_of_lost_nodes_are_replaced() {
    let cluster = Cluster::start().await;
    for name in ["node-1", "node-2"] {
        cluster.create("", "nodes", "", json!({"metadata": {"name": name}})).await;
    }
    let range = |c: &Cluster, n: &str| c.get("nodes", &Name::new("", n))["spec"]["podCIDR"].clone();
    cluster
        .until("ranges", |c| range(c, "node-1") == "10.42.0.0/24" && range(c, "node-2") == "10.42.1.0/24")
        .await;
    cluster.create("apps", "deployments", "default", deployment(2)).await;
    cluster.until("2 ready pods", |c| ready(c, 2, "v1")).await;
    let before: Vec<Value> =
        cluster.list("pods", "default").iter().map(|p| p["metadata"]["uid"].clone()).collect();
    // A taint without toleration sends pods away at once.
    let taint = json!({"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}});
    cluster.patch("nodes", &Name::new("", "node-1"), taint).await;
    cluster
        .until("other pods", |c| {
            let pods = c.list("pods", "default");
            pods.iter().any(|p| !before.contains(&p["metadata"]["uid"]))
        })
        .await;
}
