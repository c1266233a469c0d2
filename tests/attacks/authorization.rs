//! Requests that mean something else than they look like.

use crate::nodes::{Agent, bound_pod, node_at};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const METHODS: [&str; 6] = ["POST", "GET", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// What can be done to single objects besides reading and writing them.
const SUBRESOURCES: [&str; 12] = [
    "pods/p/exec",
    "pods/p/attach",
    "pods/p/portforward",
    "pods/p/proxy",
    "pods/p/log",
    "pods/p/status",
    "pods/p/eviction",
    "pods/p/binding",
    "services/s/proxy",
    "serviceaccounts/a/token",
    "replicationcontrollers/r/scale",
    "replicationcontrollers/r/status",
];

fn server() -> Server {
    Server::with(&["--disable-admission-plugins", "ServiceAccount"])
}

/// A role of the whole cluster for one user.
fn grant(admin: &Caller, user: &str, rules: &Value) {
    let name = user.replace(':', "-");
    admin.create(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}));
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    admin.create(&format!("{RBAC}/clusterrolebindings"), &binding);
}

/// With the headers of a client that wants to exec.
fn upgrading(caller: &Caller) -> Caller {
    caller.with(&["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: SPDY/3.1"]).with(&[
        "-H",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "--max-time",
        "5",
    ])
}

#[test]
fn a_reader_cannot_act_through_the_prefix_of_watches() {
    let server = server();
    let admin = Caller::admin(&server);
    let agent = Agent::of_node(&server, "n1");
    node_at(&admin, "n1", "127.0.0.1", agent.port);
    bound_pod(&admin, "p", "n1");
    grant(
        &admin,
        "reader",
        &json!([{"verbs": ["get", "list", "watch"], "apiGroups": ["*"], "resources": ["*"]}]),
    );
    let reader = upgrading(&Caller::certified(&server, "reader", &[]));
    let query = "?command=id&stdout=true&container=c&ports=80";
    for method in METHODS {
        for sub in SUBRESOURCES {
            let path = format!("/api/v1/watch/namespaces/default/{sub}{query}");
            let (code, answer) = reader.send(method, &path, None);
            assert!(matches!(code, 404 | 405), "{method} {path}: {code} {answer}");
            if method != "GET" {
                let path = format!("/api/v1/namespaces/default/{sub}{query}");
                let (code, answer) = reader.send(method, &path, None);
                assert!(matches!(code, 403 | 405), "{method} {path}: {code} {answer}");
            }
        }
        let (code, answer) = reader.send(method, "/api/v1/watch/nodes/n1/proxy/pods", None);
        assert!(matches!(code, 404 | 405), "{method} nodes/proxy: {code} {answer}");
    }
    for sub in ["exec", "attach", "portforward"] {
        let (code, answer) = reader.get(&format!("/api/v1/namespaces/default/pods/p/{sub}{query}"));
        assert_eq!(code, 403, "{sub} by a reader's GET: {answer}");
    }
    let acted: Vec<String> =
        agent.seen().into_iter().filter(|line| !line.contains("/containerLogs/")).collect();
    assert_eq!(acted, Vec::<String>::new(), "requests that reached the node");
    // Watches of the old form are still watches, and whoever may exec does.
    let watch = "/api/v1/watch/namespaces/default/pods/p?timeoutSeconds=1&resourceVersion=0";
    let plain = Caller::certified(&server, "reader", &[]);
    let (code, answer) = plain.get(watch);
    assert!(code == 200 && answer.to_string().contains("ADDED"), "{code} {answer}");
    assert_eq!(plain.get("/api/v1/watch/namespaces/default?timeoutSeconds=1&resourceVersion=0").0, 200);
    assert_eq!(plain.get("/api/v1/watch/pods/p?timeoutSeconds=1").0, 404, "no name without its namespace");
    upgrading(&admin).send("POST", &format!("/api/v1/namespaces/default/pods/p/exec{query}"), None);
    assert!(agent.seen().iter().any(|line| line.starts_with("POST /exec/default/p/")), "{:?}", agent.seen());
}

#[test]
fn a_tenant_cannot_leave_its_namespace_by_odd_paths() {
    let server = server();
    let admin = Caller::admin(&server);
    let secret = |name: &str| json!({"metadata": {"name": name}, "stringData": {"key": "value"}});
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "own"}}));
    admin.create("/api/v1/namespaces/own/secrets", &secret("mine"));
    admin.create("/api/v1/namespaces/default/secrets", &secret("hidden"));
    let binding = json!({"metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]});
    admin.create(&format!("{RBAC}/namespaces/own/rolebindings"), &binding);
    let tenant = Caller::certified(&server, "tenant", &[]);
    for path in [
        "/api/v1/namespaces/own/secrets/mine",
        "/api/v1/namespaces/%6fwn/%73ecrets/%6dine",
        "/api/v1/namespaces/own/secrets/mine/",
    ] {
        let (code, answer) = tenant.get(path);
        assert_eq!((code, &answer["metadata"]["name"]), (200, &json!("mine")), "{path}: {answer}");
    }
    for path in [
        "/api/v1/namespaces/own/secrets/..%2f..%2fdefault%2fsecrets%2fhidden",
        "/api/v1/namespaces/own/secrets/../../default/secrets/hidden",
        "/api/v1/namespaces/own/%2e%2e/default/secrets/hidden",
        "/api/v1/namespaces/own%2f..%2fdefault/secrets/hidden",
        "/api/v1/namespaces/own//secrets/mine",
        "/api/v1/namespaces/own/secrets//mine",
        "/api/v1/namespaces//own/secrets/mine",
        "//api/v1/namespaces/own/secrets/mine",
        "/api//v1/namespaces/own/secrets/mine",
        "/apis//v1/namespaces/own/secrets/mine",
        "/api/v1/namespaces/own/secrets/mine%00",
        "/api/v1/namespaces/own/secrets/mine%2f",
        "/api/v1/namespaces/own/namespaces/default",
        "/api/v1/namespaces/own/status/x",
        "/api/v1/namespaces/own/nodes/n1",
        "/api/v1/watch/namespaces/own/secrets/mine/status",
    ] {
        for method in ["GET", "DELETE"] {
            let (code, answer) = tenant.send(method, path, None);
            assert!(matches!(code, 400 | 403 | 404 | 405), "{method} {path}: {code} {answer}");
        }
        let (code, answer) = admin.get(path);
        assert!(matches!(code, 400 | 404), "{path} for the administrator: {code} {answer}");
    }
    assert_eq!(admin.get("/api/v1/namespaces/own/secrets/mine").0, 200);
    assert_eq!(admin.get("/api/v1/namespaces/default/secrets/hidden").0, 200);
}

#[test]
fn an_editor_cannot_pass_a_policy_on_connections_through_a_proxy() {
    let server = server();
    let admin = Caller::admin(&server);
    let agent = Agent::of_node(&server, "n1");
    node_at(&admin, "n1", "127.0.0.1", agent.port);
    bound_pod(&admin, "p", "n1");
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
        "resources": ["pods/proxy", "services/proxy", "nodes/proxy", "pods/exec"]}]);
    let policy = json!({"metadata": {"name": "closed"}, "spec": {"failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "object.kind == 'nothing'", "message": "no connections"}]}});
    admin.create(&format!("{POLICIES}/validatingadmissionpolicies"), &policy);
    let binding = json!({"metadata": {"name": "closed"},
        "spec": {"policyName": "closed", "validationActions": ["Deny"]}});
    admin.create(&format!("{POLICIES}/validatingadmissionpolicybindings"), &binding);
    let denied = |method: &str, path: &str| {
        let (code, answer) = upgrading(&admin).send(method, path, None);
        (code == 422 || code == 403) && answer.to_string().contains("no connections")
    };
    eventually("the policy is in force", Duration::from_secs(20), || {
        denied("POST", "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=true")
    });
    let before = agent.seen().len();
    for path in
        ["namespaces/default/pods/p/proxy/x", "namespaces/default/services/s/proxy/x", "nodes/n1/proxy/pods"]
    {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            assert!(denied(method, &format!("/api/v1/{path}")), "{method} {path}");
        }
    }
    assert_eq!(agent.seen().len(), before, "nothing reached the node");
}
