//! What a user sees of the controllers, on the real pipeline.

#![allow(clippy::unwrap_used)]
use super::test_cluster::Cluster;
use coracle_client::patch::Patch;
use coracle_informer::identity::Account;
use coracle_informer::informer::Name;
use coracle_kinds::registry::bootstrap;
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

/// A policy that refuses updates of a resource of the group `apps`.
async fn refuse_updates(cluster: &Cluster, resource: &str) {
    let group = "admissionregistration.k8s.io";
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource]});
    let policy = json!({"metadata": {"name": "fixed"}, "spec": {"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "deployments are fixed"}]}});
    cluster.create(group, "validatingadmissionpolicies", "", policy).await;
    let binding = json!({"metadata": {"name": "fixed"}, "spec": {"policyName": "fixed", "validationActions": ["Deny"]}});
    cluster.create(group, "validatingadmissionpolicybindings", "", binding).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_set_that_is_scaled_has_its_event_although_the_status_is_refused() {
    let cluster = Cluster::start().await;
    refuse_updates(&cluster, "deployments/status").await;
    cluster.create("apps", "deployments", "default", deployment(2)).await;
    let is_scaled = |event: &Value| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "ScalingReplicaSet" && message.starts_with("Scaled up replica set web-")
    };
    cluster.until("the event", |c| c.list("events", "default").iter().any(is_scaled)).await;
    let status = cluster.get("apps/deployments", &web())["status"].clone();
    assert!(status["replicas"].is_null(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_for_updates_of_deployments_do_not_see_their_revisions() {
    let cluster = Cluster::start().await;
    refuse_updates(&cluster, "deployments").await;
    cluster.create("apps", "deployments", "default", deployment(2)).await;
    cluster.until("2 ready pods", |c| ready(c, 2, "v1")).await;

    let metadata = cluster.get("apps/deployments", &web())["metadata"].clone();
    assert_eq!(metadata["annotations"]["deployment.kubernetes.io/revision"], "1");
    let entries = metadata["managedFields"].as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| (&entry["manager"], &entry["subresource"])).collect();
    let wanted = json!([["kube-apiserver", null], ["kube-controller-manager", "status"]]);
    assert_eq!(json!(managers), wanted);
    let annotations = &entries[1]["fieldsV1"]["f:metadata"]["f:annotations"];
    assert!(annotations["f:deployment.kubernetes.io/revision"].is_object(), "{annotations}");

    let change = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let kind = cluster.client.kind("apps", "deployments");
    let refused = cluster.client.patch(&kind, "default", "web", "", change).await.unwrap_err();
    assert!(refused.message.contains("deployments are fixed"), "{refused}");
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
    let waits = Name::new("team", "waits");
    let owner = cluster.create("", "configmaps", "team", json!({"metadata": {"name": "waits"}})).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "waits", "uid": owner.meta.uid,
        "blockOwnerDeletion": true});
    let held = json!({"metadata": {"name": "held", "namespace": "team", "finalizers": ["example.com/hold"],
        "ownerReferences": [owner]}});
    cluster.create("", "configmaps", "team", held).await;
    cluster.delete("configmaps", &waits, "Foreground").await;
    cluster.until("pods", |c| c.list("pods", "team").len() == 1).await;
    cluster.delete("namespaces", &Name::new("", "team"), "Background").await;
    let remaining = |c: &Cluster| {
        let all = c.get("namespaces", &Name::new("", "team"))["status"]["conditions"].clone();
        let all = all.as_array().cloned().unwrap_or_default();
        all.iter().any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
    };
    cluster.until("it says what holds it", remaining).await;
    cluster.until("nobody waits for dependents", |c| c.get("configmaps", &waits).is_null()).await;
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
        cluster.node(name, json!({})).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_has_ordinals_and_claims_and_updates_from_the_top() {
    let cluster = Cluster::start().await;
    let set = json!({"metadata": {"name": "db", "namespace": "default"}, "spec": {
        "replicas": 3, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
        "template": template(json!({"app": "db"}), "v1"),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
    }});
    cluster.create("apps", "statefulsets", "default", set).await;
    let db = Name::new("default", "db");
    let names = |c: &Cluster| -> Vec<String> {
        let pods = c.list("pods", "default");
        pods.iter().map(|p| p["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let done = |c: &Cluster, n: i64| {
        let status = c.get("apps/statefulsets", &db)["status"].clone();
        status["readyReplicas"] == n
            && status["updatedReplicas"] == n
            && status["currentRevision"] == status["updateRevision"]
    };
    cluster.until("three pods", |c| names(c) == ["db-0", "db-1", "db-2"] && done(c, 3)).await;
    assert_eq!(cluster.list("persistentvolumeclaims", "default").len(), 3);
    cluster.patch("apps/statefulsets", &db, json!({"spec": {"template": template(json!({}), "v2")}})).await;
    let images =
        |c: &Cluster| c.list("pods", "default").iter().all(|p| p["spec"]["containers"][0]["image"] == "v2");
    cluster.until("updated", |c| images(c) && done(c, 3)).await;
    assert_eq!(cluster.list("apps/controllerrevisions", "default").len(), 2);
    cluster.patch("apps/statefulsets", &db, json!({"spec": {"replicas": 1}})).await;
    cluster.until("one pod", |c| names(c) == ["db-0"]).await;
    assert_eq!(cluster.list("persistentvolumeclaims", "default").len(), 3, "claims stay");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_runs_on_every_node_that_fits() {
    let cluster = Cluster::start().await;
    for (name, labels) in [("node-1", json!({"disk": "ssd"})), ("node-2", json!({}))] {
        cluster.node(name, labels).await;
    }
    let set = json!({"metadata": {"name": "agent", "namespace": "default"}, "spec": {
        "selector": {"matchLabels": {"app": "agent"}}, "template": template(json!({"app": "agent"}), "v1")}});
    cluster.create("apps", "daemonsets", "default", set).await;
    let agent = Name::new("default", "agent");
    let status = |c: &Cluster| c.get("apps/daemonsets", &agent)["status"].clone();
    cluster.until("two pods", |c| status(c)["numberReady"] == 2).await;
    let selector = json!({"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}});
    cluster.patch("apps/daemonsets", &agent, selector).await;
    cluster
        .until("only where it fits", |c| {
            let s = status(c);
            s["desiredNumberScheduled"] == 1
                && s["numberReady"] == 1
                && s["updatedNumberScheduled"] == 1
                && c.list("pods", "default").len() == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_made_anew_go_on_with_pods_and_revisions_that_were_let_go() {
    let cluster = Cluster::start().await;
    cluster.node("node-1", json!({})).await;
    for kind in ["daemonsets", "statefulsets"] {
        let resource = format!("apps/{kind}");
        let mut set = json!({"metadata": {"name": kind, "namespace": "default"}, "spec": {
            "selector": {"matchLabels": {"app": kind}}, "template": template(json!({"app": kind}), "v1")}});
        if kind == "statefulsets" {
            set["spec"]["serviceName"] = json!("before");
        }
        let name = Name::new("default", kind);
        let status = |c: &Cluster| c.get(&resource, &name)["status"].clone();
        let updated = |c: &Cluster| {
            let seen = status(c);
            [&seen["updatedNumberScheduled"], &seen["updatedReplicas"]].into_iter().any(|n| *n == 1)
        };
        cluster.create("apps", kind, "default", set.clone()).await;
        cluster.until("a pod", updated).await;
        let change = json!({"spec": {"template": template(json!({"app": kind}), "v2")}});
        cluster.patch(&resource, &name, change).await;
        let pods = |c: &Cluster| -> Vec<Value> {
            let all = c.list("pods", "default").into_iter();
            all.filter(|p| p["metadata"]["labels"]["app"] == kind).collect()
        };
        let image = |c: &Cluster| pods(c).iter().all(|p| p["spec"]["containers"][0]["image"] == "v2");
        cluster.until("the second template", |c| updated(c) && image(c) && pods(c).len() == 1).await;
        let uid = pods(&cluster)[0]["metadata"]["uid"].clone();

        cluster.delete(&resource, &name, "Orphan").await;
        cluster.until("the set is gone", |c| c.get(&resource, &name).is_null()).await;
        set["spec"]["template"] = template(json!({"app": kind}), "v2");
        if kind == "statefulsets" {
            set["spec"]["serviceName"] = json!("after");
        }
        let made = cluster.create("apps", kind, "default", set).await;
        cluster.until("the new set has a pod", updated).await;
        let left = pods(&cluster);
        assert_eq!((left.len(), &left[0]["metadata"]["uid"]), (1, &uid), "{kind}: the pod is the same");
        let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"] == made.meta.uid;
        let revisions = cluster.list("apps/controllerrevisions", "default").into_iter();
        let mine = revisions.filter(|r| r["metadata"]["labels"]["app"] == kind);
        let mine: Vec<(Value, bool)> = mine.map(|r| (r["revision"].clone(), owner(&r))).collect();
        assert_eq!(mine.len(), 2, "{kind}: {mine:?}");
        assert!(mine.iter().all(|(_, adopted)| *adopted), "{kind}: {mine:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_completes() {
    let cluster = Cluster::start().await;
    let mut template = template(json!({}), "v1");
    template["spec"]["restartPolicy"] = json!("Never");
    template["metadata"]["annotations"] = json!({"test/ends": "Succeeded"});
    let job = json!({"metadata": {"name": "sum", "namespace": "default"},
        "spec": {"completions": 4, "parallelism": 2, "completionMode": "Indexed", "template": template}});
    cluster.create("batch", "jobs", "default", job).await;
    let status = |c: &Cluster| c.get("batch/jobs", &Name::new("default", "sum"))["status"].clone();
    cluster
        .until("complete", |c| {
            let all = status(c)["conditions"].as_array().cloned().unwrap_or_default();
            all.iter().any(|c| c["type"] == "Complete" && c["status"] == "True")
        })
        .await;
    let told = status(&cluster);
    assert_eq!((&told["succeeded"], &told["completedIndexes"]), (&json!(4), &json!("0-3")), "{told}");
    let pods = cluster.list("pods", "default");
    assert_eq!(pods.len(), 4);
    assert!(pods.iter().all(|p| p["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)));
    cluster.delete("batch/jobs", &Name::new("default", "sum"), "Background").await;
    cluster.until("no pods", |c| c.list("pods", "default").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_counts_the_pods_that_it_adopts() {
    let cluster = Cluster::start().await;
    let mut template = template(json!({"app": "sum"}), "v1");
    template["spec"]["restartPolicy"] = json!("Never");
    let mut orphan = template.clone();
    orphan["metadata"]["name"] = json!("orphan");
    orphan["metadata"]["annotations"] = json!({"test/ends": "Succeeded", "test/hold": "yes"});
    cluster.create("", "pods", "default", orphan).await;
    let job = json!({"metadata": {"name": "sum", "namespace": "default"}, "spec": {"manualSelector": true,
        "selector": {"matchLabels": {"app": "sum"}}, "template": template}});
    cluster.create("batch", "jobs", "default", job).await;
    let (sum, orphan) = (Name::new("default", "sum"), Name::new("default", "orphan"));
    cluster
        .until("it is adopted", |c| {
            let metadata = c.get("pods", &orphan)["metadata"].clone();
            metadata["ownerReferences"][0]["kind"] == "Job"
                && metadata["finalizers"] == json!(["batch.kubernetes.io/job-tracking"])
        })
        .await;
    cluster.patch("pods", &orphan, json!({"metadata": {"annotations": {"test/hold": null}}})).await;
    cluster.until("it is counted", |c| c.get("batch/jobs", &sum)["status"]["succeeded"] == 1).await;
    assert_eq!(cluster.list("pods", "default").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_past_its_deadline_fails_and_lets_its_pods_go() {
    let cluster = Cluster::start().await;
    let mut template = template(json!({}), "v1");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "late", "namespace": "default"},
        "spec": {"activeDeadlineSeconds": 2, "template": template}});
    cluster.create("batch", "jobs", "default", job).await;
    let status = |c: &Cluster| c.get("batch/jobs", &Name::new("default", "late"))["status"].clone();
    cluster
        .until("it has failed", |c| {
            let all = status(c)["conditions"].as_array().cloned().unwrap_or_default();
            all.iter().any(|c| c["type"] == "Failed" && c["reason"] == "DeadlineExceeded")
        })
        .await;
    cluster.until("no pods", |c| c.list("pods", "default").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_deleted_at_work_takes_its_pods_along() {
    let cluster = Cluster::start().await;
    let mut template = template(json!({}), "v1");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "long", "namespace": "default"}, "spec": {"template": template}});
    cluster.create("batch", "jobs", "default", job).await;
    cluster.until("a pod", |c| c.list("pods", "default").len() == 1).await;
    cluster.delete("batch/jobs", &Name::new("default", "long"), "Background").await;
    cluster.until("no pods", |c| c.list("pods", "default").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_gets_a_claim_of_its_own_and_a_token_secret_lives_with_its_account() {
    let cluster = Cluster::without_nodes().await;
    let mut pod = json!({"metadata": {"name": "user", "namespace": "default"}, "spec": template(json!({}), "v1")["spec"]});
    pod["spec"]["volumes"] = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]);
    cluster.create("", "pods", "default", pod).await;
    let claim = Name::new("default", "user-v");
    cluster.until("a claim", |c| !c.get("persistentvolumeclaims", &claim).is_null()).await;
    let owner = &cluster.get("persistentvolumeclaims", &claim)["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Pod"), &json!("user")));

    let (bot, secret) = (Name::new("default", "bot"), Name::new("default", "token"));
    let account = json!({"metadata": {"name": "bot", "namespace": "default"}});
    let account = cluster.create("", "serviceaccounts", "default", account).await;
    let body = json!({"metadata": {"name": "token", "namespace": "default",
        "annotations": {"kubernetes.io/service-account.name": "bot"}}, "type": "kubernetes.io/service-account-token"});
    cluster.create("", "secrets", "default", body).await;
    cluster.until("a token", |c| c.get("secrets", &secret)["data"]["token"].is_string()).await;
    let annotations = &cluster.get("secrets", &secret)["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/service-account.uid"], account.meta.uid);
    cluster.delete("serviceaccounts", &bot, "Background").await;
    cluster.until("gone with it", |c| c.get("secrets", &secret).is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_of_a_service_is_held_to_what_is_taken_and_takes_nothing() {
    use coracle_client::options::WriteOptions;
    use coracle_client::pipeline::Target;
    use coracle_client::user::User;
    let cluster = Cluster::without_nodes().await;
    let service = |name: &str, spec: serde_json::Value| {
        let mut body = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        body["spec"]["ports"] = json!([{"port": 80, "nodePort": spec["nodePort"]}]);
        if let Some(spec) = body["spec"].as_object_mut() {
            spec.remove("nodePort");
        }
        body
    };
    let real = json!({"type": "NodePort", "clusterIP": "10.43.0.9", "nodePort": 30009});
    cluster.create("", "services", "default", service("real", real)).await;
    let (api, kind, user) = (&cluster.api, cluster.client.kind("", "services"), User::server());
    let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
    let target = Target {
        user: &user,
        kind: &kind,
        namespace: "default",
        name: "",
        subresource: "",
        options: &options,
        applied: false,
    };
    for (spec, why) in [
        (json!({"clusterIP": "11.43.0.1"}), "the provided network does not match the current range"),
        (json!({"clusterIP": "10.43.0.9"}), "provided IP is already allocated"),
        (json!({"type": "NodePort", "nodePort": 80}), "provided port is not in the valid range"),
        (json!({"type": "NodePort", "nodePort": 30009}), "provided port is already allocated"),
        (json!({"ipFamilies": ["IPv6"]}), "not configured on this cluster"),
    ] {
        let error = api.create(&target, service("dry", spec.clone())).await.err().expect("refused");
        assert!(error.code == 422 && error.message.contains(why), "{spec}: {error}");
    }
    let free = json!({"type": "NodePort", "clusterIP": "10.43.0.10", "nodePort": 30010});
    for _ in 0..2 {
        let made = api.create(&target, service("dry", free.clone())).await.unwrap_or_else(|e| panic!("{e}"));
        let spec = &made.object.value()["spec"];
        assert_eq!((&spec["clusterIPs"], &spec["ipFamilies"]), (&json!(["10.43.0.10"]), &json!(["IPv4"])));
    }
    let drawn = api.create(&target, service("dry", json!({"type": "NodePort"}))).await;
    let drawn = drawn.unwrap_or_else(|e| panic!("{e}")).object.value();
    assert!(
        drawn["spec"]["clusterIP"].is_string() && drawn["spec"]["ports"][0]["nodePort"].is_u64(),
        "{drawn}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controllers_act_as_accounts_that_have_their_roles() {
    let ranges = ["10.43.0.0/16".to_owned()];
    let made = bootstrap::Cluster { service_ranges: &ranges, service_address: "10.43.0.1", port: 6443 };
    let objects = bootstrap::objects(&made);
    let has_role = |account: &str| {
        let subjects = json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": account}]);
        let name = format!("system:controller:{account}");
        objects.iter().any(|object| object["metadata"]["name"] == name && object["subjects"] == subjects)
    };
    let accounts = Cluster::accounts().await;
    for name in ["daemon-set-controller", "node-controller", "persistent-volume-binder"] {
        assert!(accounts.contains(&Account::Service(name)), "{name}: {accounts:?}");
    }
    for account in accounts {
        let Account::Service(name) = account else { continue };
        assert!(has_role(name), "{name} has no role");
    }
}
