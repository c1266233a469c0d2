//! Behaviour that conformance does not look at, and that users of Kubernetes rely on.

use coracle_tests::eventually;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

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
fn a_disruption_budget_covers_pods_of_any_owner_with_scale() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    kubectl.run_with("create -f -", &definition("example.com").to_string());
    kubectl.run("wait --for=condition=Established crd/fleets.example.com --timeout=60s");
    let fleet = json!({"apiVersion": "example.com/v1", "kind": "Fleet", "metadata": {"name": "f"}, "spec": {"replicas": 5}});
    eventually("the kind is served", PATIENCE, || kubectl.try_with("create -f -", &fleet.to_string()).ok);
    let uid = kubectl.run("get fleet f -o jsonpath={.metadata.uid}");
    let owner =
        json!({"apiVersion": "example.com/v1", "kind": "Fleet", "name": "f", "uid": uid, "controller": true});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "f"}, "ownerReferences": [owner]},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    eventually("the pod is accepted", PATIENCE, || kubectl.try_with("create -f -", &pod.to_string()).ok);
    kubectl.run("create poddisruptionbudget f --selector=app=f --max-unavailable=2");
    eventually("the budget counts what the owner wants", PATIENCE, || {
        kubectl.run("get pdb f -o jsonpath={.status.expectedPods}/{.status.desiredHealthy}") == "5/3"
    });
    // An owner without a size is named.
    kubectl.run("create configmap own");
    let uid = kubectl.run("get configmap own -o jsonpath={.metadata.uid}");
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": uid, "controller": true});
    let mut stray = pod;
    stray["metadata"]["name"] = json!("q");
    stray["metadata"]["ownerReferences"] = json!([owner]);
    kubectl.run_with("create -f -", &stray.to_string());
    eventually("the budget says what is in the way", PATIENCE, || {
        let told = kubectl
            .run("get pdb f -o jsonpath={.status.conditions[0].reason}:{.status.conditions[0].message}");
        told == "SyncFailed:configmaps does not implement the scale subresource"
    });
}

#[test]
fn definitions_of_the_community_need_an_approval() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    let mut fleets = definition("fleets.k8s.io");
    let refused = kubectl.try_with("create -f -", &fleets.to_string());
    assert!(
        !refused.ok && refused.err.contains("protected groups must have approval annotation"),
        "{}",
        refused.err
    );
    fleets["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    kubectl.run_with("create -f -", &fleets.to_string());
    eventually("the condition says so", PATIENCE, || {
        let path = "{.status.conditions[?(@.type==\"KubernetesAPIApprovalPolicyConformant\")].reason}";
        kubectl.run(&format!("get crd fleets.fleets.k8s.io -o jsonpath={path}")) == "UnapprovedAnnotation"
    });
}

#[test]
fn a_page_at_a_resource_version_is_read_at_that_version() {
    let server = Server::start();
    let kubectl = newest(&server.kubeconfig());
    for name in ["a", "b"] {
        kubectl.run(&format!("create configmap {name}"));
    }
    let list = |query: &str| -> Value {
        let path = format!("/api/v1/namespaces/default/configmaps?{query}");
        serde_json::from_str(&kubectl.run(&format!("get --raw {path}"))).unwrap()
    };
    let before = list("");
    let version = before["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    kubectl.run("delete configmap a b");
    let names = |list: &Value| -> Vec<String> {
        let names = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.len() == 1).collect()
    };
    let page = list(&format!("limit=500&resourceVersion={version}"));
    assert_eq!((names(&page), &page["metadata"]["resourceVersion"]), (names(&before), &json!(version)));
    let newer = list(&format!("resourceVersion={version}"));
    assert_eq!(names(&newer), Vec::<String>::new(), "without a limit it is not older than that");
}
