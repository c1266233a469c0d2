//! Users against mutating webhooks that guard connections to nodes.

use crate::authorization::{grant, server, upgrading};
use crate::nodes::{Agent, bound_pod, node_at};
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::https::{self, Https};
use serde_json::{Value, json};
use std::time::Duration;

const EXEC: &str = "/api/v1/namespaces/default/pods/p/exec?container=c&stdout=true&command=";

/// Denies `secret`, lets everything else run `true`, and leads proxies of nodes to their exec.
fn answer(asked: &https::Asked) -> (u16, Value) {
    let request = &asked.body["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true, "patchType": "JSONPatch"});
    let patch = match request["subResource"].as_str() {
        Some("exec") if request["object"]["command"] == json!(["secret"]) => {
            response["allowed"] = json!(false);
            response["status"] = json!({"message": "no secrets"});
            json!([])
        }
        Some("exec") => json!([{"op": "replace", "path": "/command", "value": ["true"]}]),
        _ => json!([{"op": "replace", "path": "/path", "value": "/exec/default/p/c"}]),
    };
    response["patch"] = json!(STANDARD.encode(patch.to_string()));
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[test]
fn an_editor_cannot_run_what_a_mutating_webhook_forbids_or_replaces() {
    let server = server();
    let admin = Caller::admin(&server);
    let agent = Agent::of_node(&server, "n1");
    node_at(&admin, "n1", "127.0.0.1", agent.port);
    bound_pod(&admin, "p", "n1");
    let verbs = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes/proxy"]}]);
    grant(&admin, "observer", &verbs);
    let observer = Caller::certified(&server, "observer", &[]);
    let metrics = "/api/v1/nodes/n1/proxy/metrics";
    eventually("the role is in force", Duration::from_secs(20), || observer.get(metrics).0 == 200);

    let https = Https::start(answer);
    let client = json!({"url": https.url("/"), "caBundle": STANDARD.encode(https.authority())});
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
        "resources": ["pods/exec", "nodes/proxy"]}]);
    let hook = json!({"name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": client, "rules": rules});
    let guard = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "guard"}, "webhooks": [hook]});
    admin.create("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &guard);

    let before = agent.seen().len();
    let (code, answer) = upgrading(&admin).send("POST", &format!("{EXEC}secret"), None);
    let said = "admission webhook \"guard.example.com\" denied the request: no secrets";
    assert_eq!((code, answer["message"].as_str()), (403, Some(said)), "{answer}");
    // Who may only read does not run anything because a webhook leads there.
    let (code, answer) = observer.get(metrics);
    assert_eq!(code, 403, "{answer}");
    assert_eq!(agent.seen().len(), before, "nothing reached the node");

    upgrading(&admin).send("POST", &format!("{EXEC}id"), None);
    let seen = agent.seen();
    let run = seen[before..].iter().find(|line| line.starts_with("POST /exec/default/p/")).unwrap();
    assert!(run.contains("command=true") && !run.contains("command=id"), "{run}");
}
