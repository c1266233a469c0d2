//! What users see: of objects that they may not get only that something happened, of other users' requests nothing.

use super::{MAPS, config_map, create_pod, eventually, question, span, trace};
use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Lets a user get some resources of the namespace default.
fn allow(admin: &Caller, user: &str, group: &str, resource: &str, verbs: &[&str]) {
    let name = format!("{user}-{resource}");
    let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": verbs}]);
    admin.create(&format!("{RBAC}/roles"), &json!({"metadata": {"name": name}, "rules": rules}));
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]});
    admin.create(&format!("{RBAC}/rolebindings"), &binding);
}

#[test]
fn objects_that_a_user_may_not_get_have_no_name() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    allow(&admin, "ann", "apps", "deployments", &["get", "create"]);
    let ann = Caller::certified(&server, "ann", &[]);
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    admin.create("/apis/apps/v1/namespaces/default/deployments", &deployment);
    let path = question("deployments.apps", "web");
    let has_pod = |answer: &Value| answer["objects"].to_string().contains("\"pods\"");
    let seen = eventually(&ann, &path, "the pod is in the tree", has_pod);
    for object in seen["objects"].as_array().unwrap() {
        if object["resource"] == "deployments.apps" {
            assert_eq!((&object["name"], &object["hidden"]), (&json!("web"), &json!(false)));
        } else {
            let blank = json!(["", "", "", "", true]);
            let parts = ["namespace", "name", "uid", "node", "hidden"].map(|part| object[part].clone());
            assert_eq!(Value::from(parts.to_vec()), blank, "{object}");
        }
    }
    let whole = eventually(&admin, &path, "the pod is in the tree", has_pod);
    let pod = whole["objects"].as_array().unwrap().iter().find(|o| o["resource"] == "pods").unwrap();
    for secret in [pod["name"].as_str().unwrap(), pod["uid"].as_str().unwrap()] {
        assert!(!seen.to_string().contains(secret), "{secret}: {seen:#}");
    }
    assert_eq!(seen["state"], whole["state"]);
    // By the pod itself, by its uid and by the trace nobody gets further.
    let never = |path: &str| {
        let (code, status) = ann.get(path);
        assert_eq!(
            (code, &status["details"]["causes"][0]["reason"]),
            (404, &json!("never")),
            "{path}: {status}"
        );
    };
    never(&question("pods", pod["name"].as_str().unwrap()));
    never(&question("pods", "missing"));
    never(&format!("/coracle/v1/trace?uid={}", pod["uid"].as_str().unwrap()));
    let nobody = Caller::certified(&server, "nobody", &[]);
    let (code, _) = nobody.get(&format!("/coracle/v1/trace?trace={}", whole["trace"].as_str().unwrap()));
    assert_eq!(code, 404);
    let (code, list) = nobody.get("/coracle/v1/traces");
    assert_eq!((code, &list["items"]), (200, &json!([])));
}

/// What an object waits for is told as far as the user may read that: nodes and classes are for others.
#[test]
fn what_an_object_waits_for_tells_nothing_of_what_a_user_may_not_get() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    for resource in ["pods", "persistentvolumeclaims"] {
        allow(&admin, "ann", "", resource, &["get"]);
    }
    let ann = Caller::certified(&server, "ann", &[]);
    let away = json!({"conditions": [{"type": "Ready", "status": "Unknown"}]});
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "lost-node"}}));
    let (code, answer) =
        admin.send("PATCH", "/api/v1/nodes/lost-node/status", Some(&json!({"status": away})));
    assert_eq!(code, 200, "{answer}");
    create_pod(&admin, "on-lost", "lost-node");
    create_pod(&admin, "on-ghost", "ghost-node");
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "gold",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    admin.create("/api/v1/namespaces/default/persistentvolumeclaims", &claim);
    let told = |caller: &Caller, resource: &str, name: &str| {
        let answer = trace(caller, resource, name);
        let waits = answer["objects"][0]["waits"].as_str().unwrap_or_default().to_owned();
        (waits, answer["state"].as_str().unwrap().to_owned(), answer.to_string())
    };
    for (resource, name, whole, part) in [
        ("pods", "on-lost", "waits for lost-node, which is away", "waits for lost-node"),
        ("pods", "on-ghost", "waits for ghost-node, which does not exist", "waits for ghost-node"),
        (
            "persistentvolumeclaims",
            "data",
            "waits for storage class gold, which does not exist",
            "waits for a volume of storage class gold",
        ),
    ] {
        let (waits, state, _) = told(&admin, resource, name);
        assert_eq!((waits.as_str(), state.as_str()), (whole, "stuck"), "{resource} {name}");
        let (waits, state, answer) = told(&ann, resource, name);
        assert_eq!((waits.as_str(), state.as_str()), (part, "running"), "{resource} {name}");
        assert!(!answer.contains("which is away") && !answer.contains("does not exist"), "{answer}");
    }
}

#[test]
fn users_see_their_own_names_and_agents_only() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    for user in ["ann", "bob"] {
        allow(&admin, user, "", "configmaps", &["get", "create"]);
    }
    let (ann, bob) = (Caller::certified(&server, "ann", &[]), Caller::certified(&server, "bob", &[]));
    ann.with(&["-A", "secret-agent/1"]).create(MAPS, &config_map("of-ann"));
    let request = |caller: &Caller| span(&trace(caller, "configmaps", "of-ann"), "request")["text"].clone();
    assert_eq!(request(&ann), "ann\nsecret-agent/1");
    assert_eq!(request(&admin), "ann\nsecret-agent/1");
    assert_eq!(request(&bob), "");
    // Who may read all spans sees all users.
    assert_eq!(bob.get("/coracle/v1/spans?uid=a").0, 403);
    let rules = json!([{"nonResourceURLs": ["/coracle/v1/spans"], "verbs": ["get"]}]);
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    admin.create(&format!("{roles}/clusterroles"), &json!({"metadata": {"name": "spans"}, "rules": rules}));
    let binding = json!({"metadata": {"name": "spans"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "spans"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]});
    admin.create(&format!("{roles}/clusterrolebindings"), &binding);
    eventually(&bob, &question("configmaps", "of-ann"), "bob sees users", |answer| {
        answer["spans"].to_string().contains("secret-agent")
    });
}

#[test]
fn nobody_without_a_name_sees_anything() {
    let server = Server::with(&["--api-only", "--anonymous-auth"]);
    let nobody = Caller::nobody(&server);
    for path in ["trace?uid=a", "traces", "usual", "spans?uid=a"] {
        assert_eq!(nobody.get(&format!("/coracle/v1/{path}")).0, 403, "{path}");
    }
    let user = Caller::certified(&server, "ann", &[]);
    assert_eq!(user.get("/coracle/v1/usual").0, 200);
}
