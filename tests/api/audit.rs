//! The audit log has what controllers and the scheduler do.

use crate::rollout::Hollow;
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:serviceaccount:kube-system:replicaset-controller]
  resources: [{resources: [pods]}]
- level: RequestResponse
  resources: [{group: apps, resources: [replicasets]}, {resources: [pods/binding]}]
- level: Metadata
";

/// The first event of a create in the namespace `default`.
fn created<'a>(events: &'a [Value], resource: &str, subresource: &str) -> Option<&'a Value> {
    events.iter().find(|event| {
        let object = &event["objectRef"];
        event["verb"] == "create"
            && object["namespace"] == "default"
            && object["resource"] == resource
            && object["subresource"].as_str().unwrap_or_default() == subresource
    })
}

#[test]
fn controllers_and_the_scheduler_are_audited_with_their_users() {
    let files = tempfile::tempdir().unwrap();
    let (log, policy) = (files.path().join("audit.log"), files.path().join("policy.yaml"));
    std::fs::write(&policy, POLICY).unwrap();
    let server = Server::with(&[
        "--audit-log-path",
        &log.display().to_string(),
        "--audit-policy-file",
        &policy.display().to_string(),
    ]);
    let _hollow = Hollow::start(&server, 1, 20);
    let admin = Caller::admin(&server);
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("the default account is there", MINUTE, || admin.get(account).0 == 200);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    admin.create("/apis/apps/v1/namespaces/default/deployments", &deployment);
    let mut events: Vec<Value> = Vec::new();
    eventually("the pod was bound", MINUTE, || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        created(&events, "pods", "binding").is_some()
    });

    let set = created(&events, "replicasets", "").unwrap();
    assert_eq!(set["user"]["username"], "system:serviceaccount:kube-system:deployment-controller");
    assert_eq!(set["requestURI"], "/apis/apps/v1/namespaces/default/replicasets");
    assert_eq!(set["responseStatus"]["code"], 201);
    assert_eq!(set["responseObject"]["metadata"]["ownerReferences"][0]["name"], "web");
    assert!(set["userAgent"].as_str().unwrap().starts_with("kube-controller-manager/"), "{set}");
    assert!(set["annotations"]["authorization.k8s.io/decision"].is_null(), "nobody was asked: {set}");

    let binding = created(&events, "pods", "binding").unwrap();
    assert_eq!(binding["user"]["username"], "system:kube-scheduler");
    assert_eq!(
        (&binding["level"], &binding["stage"]),
        (&json!("RequestResponse"), &json!("ResponseComplete"))
    );
    let object = &binding["objectRef"];
    assert!(object["name"].as_str().unwrap().starts_with("web-") && object["uid"].is_string(), "{binding}");
    assert_eq!(binding["requestObject"]["target"]["kind"], "Node");
    assert_eq!(binding["responseObject"]["status"], "Success");
    assert!(binding["userAgent"].as_str().unwrap().starts_with("kube-scheduler/"), "{binding}");

    assert!(created(&events, "pods", "").is_none(), "the policy excludes it");
}
