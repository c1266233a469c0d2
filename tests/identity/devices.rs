//! Who may say how allocated devices are.

use crate::caller::{Caller, account_token};
use coracle_tests::server::Server;
use serde_json::{Value, json};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

/// A claim that is allocated to a device of each driver, for a pod.
fn allocated(admin: &Caller, name: &str, node: &str, pod: &Value) {
    let request = json!({"name": "one", "exactly": {"deviceClassName": "card"}});
    admin.create(CLAIMS, &json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}));
    let results = ["a.example", "b.example"]
        .map(|driver| json!({"request": "one", "driver": driver, "pool": "p", "device": "d"}));
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    let status = json!({"status": {
        "allocation": {"devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}},
        "reservedFor": [{"resource": "pods", "name": pod["name"], "uid": pod["uid"]}]}});
    let (code, answer) = admin.send("PATCH", &format!("{CLAIMS}/{name}/status"), Some(&status));
    assert_eq!(code, 200, "{answer}");
}

#[test]
fn a_driver_changes_the_status_of_its_own_devices() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n1"}}));
    admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "driver"}}));
    let pod = json!({"metadata": {"name": "driver"}, "spec": {"nodeName": "n1", "serviceAccountName": "driver",
        "containers": [{"name": "c", "image": "none"}]}});
    let pod = admin.create("/api/v1/namespaces/default/pods", &pod)["metadata"].clone();
    allocated(&admin, "here", "n1", &pod);
    allocated(&admin, "there", "n2", &pod);

    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = |name: &str, resource: &str, verb: &str, driver: &str| {
        let names = if driver.is_empty() { json!([]) } else { json!([driver]) };
        let rule = json!({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": [verb], "resourceNames": names});
        admin.create(&format!("{rbac}/roles"), &json!({"metadata": {"name": name}, "rules": [rule]}));
        let account = json!({"kind": "ServiceAccount", "namespace": "default", "name": "driver"});
        let binding = json!({"metadata": {"name": name}, "subjects": [account],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
        admin.create(&format!("{rbac}/rolebindings"), &binding);
    };
    role("status", "resourceclaims/status", "patch", "");
    let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": pod["uid"]});
    let token = account_token(&server, "default", "driver", json!({"boundObjectRef": bound}));
    let driver = Caller::bearer(&server, &token);
    let say = |claim: &str, name: &str| {
        let device = json!({"driver": name, "pool": "p", "device": "d", "data": {"claim": claim}});
        let path = format!("{CLAIMS}/{claim}/status?dryRun=All");
        driver.send("PATCH", &path, Some(&json!({"status": {"devices": [device]}})))
    };
    let (code, answer) = say("here", "a.example");
    assert_eq!(code, 422, "{answer}");
    let sentence =
        "status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\"";
    assert!(answer["message"].as_str().unwrap().contains(sentence), "{answer}");

    role("near", "resourceclaims/driver", "associated-node:patch", "a.example");
    let codes = [("here", "a.example"), ("there", "a.example"), ("here", "b.example")];
    assert_eq!(codes.map(|(claim, name)| say(claim, name).0), [200, 422, 422], "only on its node");
    role("far", "resourceclaims/driver", "arbitrary-node:patch", "b.example");
    let codes = [("here", "b.example"), ("there", "b.example"), ("there", "a.example")];
    assert_eq!(codes.map(|(claim, name)| say(claim, name).0), [200, 200, 422], "on all nodes");
}
