//! Indexed Jobs whose indexes fail, StatefulSets that delete claims, budgets of any owner.

use crate::both::{PATIENCE, Place, on_both};
use coracle_tests::eventually;
use serde_json::{Value, json};

/// A pod that no scheduler takes: it is deleted at once, without a node.
fn gated() -> Value {
    json!({"automountServiceAccountToken": false, "schedulingGates": [{"name": "example.com/wait"}], "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]})
}

/// The pods of an index, oldest first: name, failures of the index before it, phase.
fn pods_of_index(place: &Place, index: &str) -> Vec<(String, String, String)> {
    let list = place.get(&format!(
        "pods -l batch.kubernetes.io/job-completion-index={index} --sort-by=.metadata.creationTimestamp"
    ));
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    pods.iter()
        .map(|pod| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let failures = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"];
            (text(&pod["metadata"]["name"]), text(failures), text(&pod["status"]["phase"]))
        })
        .collect()
}

#[test]
fn an_index_of_a_job_fails_by_itself_and_its_last_pod_stays_until_replaced() {
    on_both("jobindex", |place| {
        place.create(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
            "completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2,
            "template": {"spec": gated()}}}));
        eventually("both indexes have a pod", PATIENCE, || {
            ["0", "1"].iter().all(|index| pods_of_index(place, index).len() == 1)
        });
        let fail = |pod: &str| place.set_status(&format!("pod/{pod}"), &json!({"phase": "Failed"}));
        let first = pods_of_index(place, "0").remove(0);
        place.saw("failures before the first pod", &first.1);
        fail(&first.0);
        place.saw(
            "job",
            place.until("job/j", "{.status.failedIndexes}/{.status.active}", |said| said == "/1"),
        );
        // The controller has seen the failure. Until the next pod is there, the failed one says how often its index has failed: its
        // finalizer holds it.
        let finalizer = place.value(&format!("pod/{}", first.0), "{.metadata.finalizers}");
        place.saw("the failed pod is held", finalizer);
        eventually("the index has another pod", PATIENCE, || {
            pods_of_index(place, "0").iter().any(|pod| pod.1 == "1")
        });
        eventually("the failed pod is released", PATIENCE, || {
            place.value(&format!("pod/{}", first.0), "{.metadata.finalizers}").is_empty()
        });
        let second = pods_of_index(place, "0").into_iter().find(|pod| pod.1 == "1").unwrap();
        fail(&second.0);
        place.saw("failed index", place.until("job/j", "{.status.failedIndexes}", |said| !said.is_empty()));
        let other = pods_of_index(place, "1").remove(0);
        place.set_status(&format!("pod/{}", other.0), &json!({"phase": "Succeeded"}));
        let path = "{.status.conditions[*].type}|{.status.conditions[*].reason}|{.status.conditions[*].message}|{.status.failed}|{.status.succeeded}|{.status.completedIndexes}";
        place.saw(
            "end",
            place.until("job/j", path, |said| said.contains("Failed|") || said.contains(" Failed")),
        );
    });
}

fn definition(group: &str) -> Value {
    let integer = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("fleets.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "fleets", "kind": "Fleet"}, "versions": [
            {"name": "v1", "served": true, "storage": true,
             "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": integer, "status": integer}}},
             "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}})
}

#[test]
fn a_budget_counts_pods_of_any_owner_with_a_scale() {
    on_both("budget", |place| {
        let group = format!("{}.example.com", place.name);
        place.create_cluster("crd", &definition(&group));
        place.run(&format!("wait --for=condition=Established crd/fleets.{group} --timeout=60s"));
        let fleet = json!({"apiVersion": format!("{group}/v1"), "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"replicas": 5}});
        eventually("the kind is served", PATIENCE, || place.try_run("create -f -", &fleet.to_string()).ok);
        let pod = |name: &str, kind: &str, version: &str, owner: &str| {
            let resource = if kind == "Fleet" { format!("fleets.{group}") } else { kind.to_owned() };
            let uid = place.value(&format!("{resource}/{owner}"), "{.metadata.uid}");
            let owner =
                json!({"apiVersion": version, "kind": kind, "name": owner, "uid": uid, "controller": true});
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"app": "f"}, "ownerReferences": [owner]}, "spec": gated()})
        };
        place.create(&pod("p", "Fleet", &format!("{group}/v1"), "f"));
        place.run("create poddisruptionbudget f --selector=app=f --max-unavailable=2");
        let counts = "{.status.expectedPods}/{.status.desiredHealthy}/{.status.disruptionsAllowed}";
        // Kinds that controllers do not know yet are asked for again after ever longer pauses, or when the budget changes.
        let mut turn = 0;
        eventually("the budget is counted", PATIENCE, || {
            turn += 1;
            place.run(&format!("annotate pdb f turn={turn} --overwrite"));
            place.value("pdb/f", counts).starts_with("5/")
        });
        place.saw("counts", place.value("pdb/f", counts));
        place.run("create configmap own");
        place.create(&pod("q", "ConfigMap", "v1", "own"));
        let path =
            "{.status.conditions[0].status}/{.status.conditions[0].reason}/{.status.conditions[0].message}";
        place.saw("an owner without a scale", place.until("pdb/f", path, |said| said.contains("SyncFailed")));
    });
}

#[test]
fn a_claim_that_is_being_deleted_is_not_used_by_the_next_pod() {
    on_both("whenscaled", |place| {
        let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
            "replicas": 2, "serviceName": "s", "podManagementPolicy": "Parallel", "selector": {"matchLabels": {"app": "s"}},
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"schedulingGates": [{"name": "example.com/wait"}],
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}}}}]}});
        place.create(&set);
        place.saw(
            "maxUnavailable without its feature",
            place.value("statefulset/s", "{.spec.updateStrategy}"),
        );
        let claim = "pvc/data-s-1";
        let first = place.until(claim, "{.metadata.uid}", |uid| !uid.is_empty());
        place.until("pod/s-1", "{.metadata.uid}", |uid| !uid.is_empty());
        // Without a pod nothing but this holds it.
        let held = place.value(claim, "{.metadata.finalizers}");
        place.saw("finalizers", held);
        place.patch(
            claim,
            &json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "example.com/hold"]}}),
        );
        place.run("scale statefulset s --replicas=1");
        place.until(claim, "{.metadata.deletionTimestamp}", |time| !time.is_empty());
        place.run("scale statefulset s --replicas=2");
        // Long enough for a pod that would use it.
        std::thread::sleep(std::time::Duration::from_secs(5));
        place.saw("pods", place.value("pods", "{.items[*].metadata.name}"));
        place.patch(claim, &json!({"metadata": {"finalizers": null}}));
        // Kubernetes tries again later and later, and at once when the set changes.
        place.run("annotate statefulset s again=now");
        let second = place.until(claim, "{.metadata.uid}", |uid| !uid.is_empty() && uid != first);
        place.until("pod/s-1", "{.metadata.uid}", |uid| !uid.is_empty());
        place.saw("another claim", second != first);
    });
}
