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

pub fn server() -> Server {
    Server::with(&["--disable-admission-plugins", "ServiceAccount"])
}

/// A role of the whole cluster for one user.
pub fn grant(admin: &Caller, user: &str, rules: &Value) {
    let name = user.replace(':', "-");
    admin.create(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}));
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    admin.create(&format!("{RBAC}/clusterrolebindings"), &binding);
}

/// With the headers of a client that wants to exec.
pub fn upgrading(caller: &Caller) -> Caller {
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

/// Server-side apply.
fn apply(caller: &Caller, path: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let caller = caller.with(&["-H", "Content-Type: application/apply-patch+yaml", "-d", body.as_str()]);
    caller.send("PATCH", &format!("{path}?fieldManager=test"), None)
}

#[test]
fn who_may_only_apply_cannot_create() {
    let server = server();
    let admin = Caller::admin(&server);
    let rules = json!([{"verbs": ["get", "patch"], "apiGroups": [""], "resources": ["pods", "configmaps"]}]);
    grant(&admin, "changer", &rules);
    let changer = Caller::certified(&server, "changer", &[]);
    let (pods, maps) = ("/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}});
    admin.create(maps, &json!({"metadata": {"name": "there"}}));
    let (code, answer) = apply(&changer, &format!("{maps}/there"), &map("there"));
    assert_eq!((code, &answer["data"]["k"]), (200, &json!("v")), "what exists is changed: {answer}");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"},
        "spec": {"containers": [{"name": "c", "image": "example.test/x"}]}});
    for (path, what, body) in [(pods, "pods", &pod), (maps, "configmaps", &map("new"))] {
        let path = format!("{path}/new");
        let (code, answer) = apply(&changer, &path, body);
        let said = answer["message"].as_str().unwrap_or_default();
        let wanted = format!("cannot create resource \"{what}\"");
        assert!(code == 403 && said.contains(&wanted), "{path}: {code} {answer}");
        assert_eq!(admin.get(&path).0, 404, "{path}");
    }
    assert_eq!(apply(&admin, &format!("{maps}/new"), &map("new")).0, 201, "who may create does so by apply");
}

#[test]
fn who_may_only_update_cannot_create() {
    let server = server();
    let admin = Caller::admin(&server);
    let rules = |verbs: Value| json!([{"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["mine"]}]);
    grant(&admin, "holder", &rules(json!(["update"])));
    grant(&admin, "maker", &rules(json!(["update", "create"])));
    let [holder, maker] = ["holder", "maker"].map(|user| Caller::certified(&server, user, &[]));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let put = |caller: &Caller, path: &str, name: &str| {
        let body = json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}});
        caller.send("PUT", &format!("{leases}/{path}"), Some(&body))
    };
    for caller in [&holder, &maker] {
        let (code, answer) = put(caller, "mine", "other");
        assert_eq!(code, 400, "another name in the body: {answer}");
        assert_eq!(put(caller, "other", "other").0, 403, "another name in the URL");
    }
    let (code, answer) = put(&holder, "mine", "mine");
    let said = answer["message"].as_str().unwrap_or_default();
    assert!(code == 403 && said.contains("cannot create resource \"leases\""), "{code} {answer}");
    for name in ["mine", "other"] {
        assert_eq!(admin.get(&format!("{leases}/{name}")).0, 404, "{name}");
    }
    let (code, mut lease) = put(&maker, "mine", "mine");
    assert_eq!(code, 201, "who may create does so by update: {lease}");
    lease["spec"]["holderIdentity"] = json!("y");
    let (code, answer) = holder.send("PUT", &format!("{leases}/mine"), Some(&lease));
    assert_eq!(code, 200, "what exists is changed: {answer}");
}

#[test]
fn a_writer_of_status_cannot_change_metadata() {
    let server = server();
    let admin = Caller::admin(&server);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let definition = json!({"metadata": {"name": "boats.example.test"}, "spec": {"group": "example.test",
        "scope": "Namespaced", "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema}]}});
    admin.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    let boats = "/apis/example.test/v1/namespaces/default/boats";
    let boat = json!({"apiVersion": "example.test/v1", "kind": "Boat", "metadata": {"name": "one"}});
    eventually("boats can be made", Duration::from_secs(20), || {
        admin.send("POST", boats, Some(&boat)).0 == 201
    });
    grant(
        &admin,
        "teller",
        &json!([{"verbs": ["patch"], "apiGroups": ["example.test"], "resources": ["boats/status"]}]),
    );
    let change = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.test/hold"]},
        "status": {"afloat": true}});
    let teller = Caller::certified(&server, "teller", &[]);
    let (code, answer) = teller.send("PATCH", &format!("{boats}/one/status"), Some(&change));
    assert_eq!((code, &answer["status"]["afloat"]), (200, &json!(true)), "{answer}");
    let stored = admin.get(&format!("{boats}/one")).1;
    for field in ["labels", "annotations", "finalizers"] {
        assert!(stored["metadata"][field].is_null(), "{field}: {stored}");
    }
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

#[test]
fn a_reader_of_nodes_cannot_run_anything_through_their_proxy() {
    let server = server();
    let admin = Caller::admin(&server);
    let agent = Agent::of_node(&server, "n1");
    node_at(&admin, "n1", "127.0.0.1", agent.port);
    let rule = |verbs: &[&str]| json!([{"verbs": verbs, "apiGroups": [""], "resources": ["nodes/proxy"]}]);
    grant(&admin, "observer", &rule(&["get"]));
    grant(&admin, "operator", &rule(&["get", "create"]));
    let observer = Caller::certified(&server, "observer", &[]);
    let operator = Caller::certified(&server, "operator", &[]);
    let path = |rest: &str| format!("/api/v1/nodes/n1/proxy/{rest}");
    for caller in [&observer, &operator] {
        eventually("the role is in force", Duration::from_secs(20), || caller.get(&path("pods")).0 == 200);
    }
    for caller in [&observer, &upgrading(&observer)] {
        for rest in [
            "exec/default/p/c?command=id&output=1",
            "%65xec/default/p/c?command=id&output=1",
            "attach/default/p/c?output=1",
            "portForward/default/p?port=80",
            "run/default/p/c?cmd=id",
        ] {
            let (code, answer) = caller.get(&path(rest));
            assert_eq!(code, 403, "{rest}: {answer}");
        }
    }
    // These are for the server alone, whatever somebody may do.
    for (method, rest) in [("GET", "dial/192.0.2.1:80"), ("DELETE", "volumes/v")] {
        let (code, answer) = admin.send(method, &path(rest), None);
        assert_eq!(code, 404, "{method} {rest}: {answer}");
    }
    let acted: Vec<String> = agent.seen().into_iter().filter(|line| !line.contains(" /pods ")).collect();
    assert_eq!(acted, Vec::<String>::new(), "requests that reached the node");
    upgrading(&operator).get(&path("exec/default/p/c?command=id&output=1"));
    assert!(agent.seen().iter().any(|line| line.starts_with("GET /exec/default/p/c")), "{:?}", agent.seen());
}
