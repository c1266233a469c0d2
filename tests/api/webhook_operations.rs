//! Webhooks on what is no plain create or update: deletes, connections, actions, scales. Mutating ones are asked first, then
//! validating ones, and what a mutating one changes is what happens.

use base64::{Engine, engine::general_purpose::STANDARD, engine::general_purpose::URL_SAFE_NO_PAD};
use coracle_tests::caller::Caller;
use coracle_tests::https::{self, Https};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const SPACE: &str = "/api/v1/namespaces/guarded";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/guarded/deployments/d";

/// What the webhooks do, and what they were asked.
#[derive(Default)]
struct Hooks {
    /// `mutate` or `validate`, whichever denies everything.
    denies: Mutex<&'static str>,
    /// The patch of `mutate`, null for none.
    patch: Mutex<Value>,
    /// Who was asked what.
    seen: Mutex<Vec<(String, Value)>>,
}

impl Hooks {
    fn answer(&self, asked: &https::Asked) -> (u16, Value) {
        let request = &asked.body["request"];
        let who = asked.path.split('?').next().unwrap_or_default().trim_matches('/').to_owned();
        let mut response = json!({"uid": request["uid"], "allowed": *self.denies.lock().unwrap() != who});
        response["status"] = json!({"message": "not here"});
        let patch = self.patch.lock().unwrap().clone();
        if who == "mutate" && !patch.is_null() {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(STANDARD.encode(patch.to_string()));
        }
        self.seen.lock().unwrap().push((who, request.clone()));
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    }

    /// Forgets what was asked, and does something else from now on.
    fn set(&self, denies: &'static str, patch: Value) {
        *self.denies.lock().unwrap() = denies;
        *self.patch.lock().unwrap() = patch;
        self.seen.lock().unwrap().clear();
    }

    fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// A server with a pod, an account, a Deployment, and both kinds of webhooks on what can be done to them.
fn guarded() -> (Server, Caller, Arc<Hooks>) {
    let server = Server::with(&["--api-only", "--disable-admission-plugins", "ServiceAccount"]);
    let admin = Caller::admin(&server);
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (path, body) in [
        ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": "guarded"}})),
        (format!("{SPACE}/pods"), json!({"metadata": {"name": "p"}, "spec": template["spec"]})),
        (format!("{SPACE}/serviceaccounts"), json!({"metadata": {"name": "bot"}})),
        (
            "/apis/apps/v1/namespaces/guarded/deployments".to_owned(),
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 1,
                "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
        ),
    ] {
        admin.create(&path, &body);
    }
    let hooks = Arc::new(Hooks::default());
    let asked = hooks.clone();
    let https = Https::start(move |request| asked.answer(request));
    let rule = |group: &str, operations: &[&str], resources: &[&str]| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": resources});
    let rules = json!([
        rule("", &["DELETE"], &["pods"]),
        rule("", &["CONNECT"], &["pods/*", "services/proxy", "nodes/proxy"]),
        rule("", &["CREATE"], &["bindings", "pods/eviction", "serviceaccounts/token"]),
        rule("", &["CREATE", "UPDATE"], &["pods/binding"]),
        rule(
            "",
            &["UPDATE"],
            &["pods/status", "pods/resize", "pods/ephemeralcontainers", "namespaces/finalize"]
        ),
        rule("apps", &["UPDATE"], &["deployments/scale", "deployments/status"]),
        rule("authentication.k8s.io", &["CREATE"], &["*"]),
    ]);
    for (kind, plural, name) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutate"),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validate"),
    ] {
        let client =
            json!({"url": https.url(&format!("/{name}")), "caBundle": STANDARD.encode(https.authority())});
        let hook = json!({"name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "timeoutSeconds": 5, "clientConfig": client, "rules": rules});
        let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [hook]});
        admin.create(&format!("{HOOKS}/{plural}"), &body);
    }
    (server, admin, hooks)
}

/// A request and what a webhook must be told of it.
struct Case {
    method: &'static str,
    path: String,
    body: Option<Value>,
    operation: &'static str,
    kind: &'static str,
    resource: &'static str,
    /// Other parts of the review: pairs of a JSON pointer and what is there.
    parts: Value,
}

fn case(request: (&'static str, String, Option<Value>), told: [&'static str; 3], parts: Value) -> Case {
    let (method, path, body) = request;
    let [operation, kind, resource] = told;
    Case { method, path, body, operation, kind, resource, parts }
}

fn binding() -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}})
}

fn eviction() -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "guarded"}})
}

fn token() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"]}})
}

fn cases(namespace: &Value) -> Vec<Case> {
    let pods = |rest: &str| format!("{SPACE}/pods{rest}");
    let post = |path: String, body: Value| ("POST", path, Some(body));
    let stream = |path: String| ("POST", path, None);
    let same = |path: String| ("PATCH", path, Some(json!({})));
    let gone = json!([
        ["/object", null],
        ["/oldObject/kind", "Pod"],
        ["/oldObject/metadata/name", "p"],
        ["/name", "p"],
        ["/options/kind", "DeleteOptions"]
    ]);
    let pod = json!([["/object/kind", "Pod"], ["/oldObject/kind", "Pod"], ["/object/metadata/name", "p"]]);
    let bound = json!([
        ["/object/kind", "Binding"],
        ["/object/target/name", "n1"],
        ["/oldObject", null],
        ["/name", "p"]
    ]);
    let path = |path: &str| json!([["/object/path", path], ["/oldObject", null], ["/options", null]]);
    vec![
        case(("DELETE", pods("/p"), None), ["DELETE", "v1 Pod", "v1 pods"], gone.clone()),
        case(("DELETE", pods(""), None), ["DELETE", "v1 Pod", "v1 pods"], gone),
        case(
            stream(pods("/p/exec?command=id&command=-u&stdout=true")),
            ["CONNECT", "v1 PodExecOptions", "v1 pods/exec"],
            json!([
                ["/object/command", ["id", "-u"]],
                ["/object/stdout", true],
                ["/object/kind", "PodExecOptions"],
                ["/oldObject", null],
                ["/name", "p"],
                ["/namespace", "guarded"]
            ]),
        ),
        case(
            stream(pods("/p/attach?stdin=true")),
            ["CONNECT", "v1 PodAttachOptions", "v1 pods/attach"],
            json!([["/object/stdin", true], ["/object/kind", "PodAttachOptions"]]),
        ),
        case(
            stream(pods("/p/portforward?ports=80")),
            ["CONNECT", "v1 PodPortForwardOptions", "v1 pods/portforward"],
            json!([["/object/ports", [80]], ["/object/kind", "PodPortForwardOptions"]]),
        ),
        case(
            ("GET", pods("/p/proxy/x/y"), None),
            ["CONNECT", "v1 PodProxyOptions", "v1 pods/proxy"],
            path("/x/y"),
        ),
        case(
            ("GET", format!("{SPACE}/services/s/proxy/x"), None),
            ["CONNECT", "v1 ServiceProxyOptions", "v1 services/proxy"],
            path("/x"),
        ),
        case(
            ("GET", "/api/v1/nodes/n1/proxy/metrics".to_owned(), None),
            ["CONNECT", "v1 NodeProxyOptions", "v1 nodes/proxy"],
            path("/metrics"),
        ),
        case(
            post(format!("{SPACE}/serviceaccounts/bot/token"), token()),
            ["CREATE", "authentication.k8s.io/v1 TokenRequest", "v1 serviceaccounts/token"],
            json!([
                ["/object/kind", "TokenRequest"],
                ["/object/spec/audiences", ["a"]],
                ["/object/spec/expirationSeconds", 3600],
                ["/oldObject", null],
                ["/name", "bot"]
            ]),
        ),
        case(
            post(pods("/p/eviction"), eviction()),
            ["CREATE", "policy/v1 Eviction", "v1 pods/eviction"],
            json!([["/object/kind", "Eviction"], ["/object/apiVersion", "policy/v1"], ["/oldObject", null]]),
        ),
        case(post(pods("/p/binding"), binding()), ["CREATE", "v1 Binding", "v1 pods/binding"], bound.clone()),
        case(post(format!("{SPACE}/bindings"), binding()), ["CREATE", "v1 Binding", "v1 bindings"], bound),
        case(
            ("PATCH", format!("{DEPLOYMENT}/scale"), Some(json!({"spec": {"replicas": 3}}))),
            ["UPDATE", "autoscaling/v1 Scale", "apps/v1 deployments/scale"],
            json!([
                ["/object/kind", "Scale"],
                ["/object/apiVersion", "autoscaling/v1"],
                ["/object/spec/replicas", 3],
                ["/oldObject/kind", "Scale"],
                ["/oldObject/spec/replicas", 1],
                ["/name", "d"]
            ]),
        ),
        case(
            same(format!("{DEPLOYMENT}/status")),
            ["UPDATE", "apps/v1 Deployment", "apps/v1 deployments/status"],
            json!([["/object/kind", "Deployment"], ["/oldObject/kind", "Deployment"]]),
        ),
        case(same(pods("/p/status")), ["UPDATE", "v1 Pod", "v1 pods/status"], pod.clone()),
        case(same(pods("/p/resize")), ["UPDATE", "v1 Pod", "v1 pods/resize"], pod.clone()),
        case(same(pods("/p/ephemeralcontainers")), ["UPDATE", "v1 Pod", "v1 pods/ephemeralcontainers"], pod),
        case(
            ("PUT", format!("{SPACE}/finalize"), Some(namespace.clone())),
            ["UPDATE", "v1 Namespace", "v1 namespaces/finalize"],
            json!([["/object/kind", "Namespace"], ["/oldObject/kind", "Namespace"]]),
        ),
    ]
}

/// `apps/v1 deployments/scale` of a review.
fn named(review: &Value, field: &str, last: &str, subresource: &str) -> String {
    let text = |key: &str| review[field][key].as_str().unwrap_or_default();
    let group = if text("group").is_empty() { String::new() } else { format!("{}/", text("group")) };
    let behind = review[subresource].as_str().map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{group}{} {}{behind}", text("version"), text(last))
}

#[test]
fn every_operation_asks_mutating_then_validating_webhooks() {
    let (_server, admin, hooks) = guarded();
    let namespace = admin.get(SPACE).1;
    for (denies, asked) in [("mutate", &["mutate"][..]), ("validate", &["mutate", "validate"])] {
        hooks.set(denies, Value::Null);
        for case in cases(&namespace) {
            let what = format!("{} {} when {denies} denies", case.method, case.path);
            let (code, answer) = admin.send(case.method, &case.path, case.body.as_ref());
            let said = format!("admission webhook \"{denies}.example.com\" denied the request: not here");
            assert_eq!((code, answer["message"].as_str()), (403, Some(said.as_str())), "{what}: {answer}");
            let seen = hooks.take();
            let who: Vec<&str> = seen.iter().map(|(who, _)| who.as_str()).collect();
            assert_eq!(who, asked, "{what}");
            for (_, review) in &seen {
                assert_eq!(review["operation"], case.operation, "{what}: {review}");
                for field in ["kind", "requestKind"] {
                    assert_eq!(named(review, field, "kind", ""), case.kind, "{what}: {review}");
                }
                for (field, sub) in [("resource", "subResource"), ("requestResource", "requestSubResource")] {
                    assert_eq!(named(review, field, "resource", sub), case.resource, "{what}: {review}");
                }
                for part in case.parts.as_array().unwrap() {
                    let found = review.pointer(part[0].as_str().unwrap()).unwrap_or(&Value::Null);
                    assert_eq!(*found, part[1], "{what}: {} of {review}", part[0]);
                }
            }
        }
        // A review changes nothing: nobody is asked.
        assert!(admin.whoami().is_ok());
        assert!(hooks.take().is_empty());
    }
    let pod = admin.get(&format!("{SPACE}/pods/p")).1;
    assert_eq!(
        (&pod["spec"]["nodeName"], &pod["metadata"]["deletionTimestamp"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(admin.get(DEPLOYMENT).1["spec"]["replicas"], 1);
}

#[test]
fn what_a_mutating_webhook_changes_is_what_happens() {
    let (_server, admin, hooks) = guarded();
    let replace = |path: &str, value: Value| json!([{"op": "replace", "path": path, "value": value}]);
    let request = format!("{SPACE}/serviceaccounts/bot/token");

    hooks.set("", replace("/spec/expirationSeconds", json!(1200)));
    let answer = admin.create(&request, &token());
    let signed = answer["status"]["token"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 1200, "{claims}");
    // One that is no TokenRequest any more is refused, not acted on.
    hooks.set("", replace("/spec", json!("x")));
    let (code, answer) = admin.send("POST", &request, Some(&token()));
    let said = answer["message"].as_str().unwrap_or_default();
    assert!(code == 500 && said.contains("TokenRequest changed by a webhook"), "{code} {answer}");

    hooks.set("", replace("/spec/replicas", json!(2)));
    let five = json!({"spec": {"replicas": 5}});
    let (code, answer) = admin.send("PATCH", &format!("{DEPLOYMENT}/scale"), Some(&five));
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(2)), "{answer}");
    assert_eq!(admin.get(DEPLOYMENT).1["spec"]["replicas"], 2);

    hooks.set("", replace("/target/name", json!("n2")));
    admin.create(&format!("{SPACE}/pods/p/binding"), &binding());
    assert_eq!(admin.get(&format!("{SPACE}/pods/p")).1["spec"]["nodeName"], "n2");
    assert_eq!(hooks.take().len(), 2, "the pod that is bound is not asked about once more");

    // A delete has no object that could be changed.
    hooks.set("", replace("/metadata/labels", json!({"a": "b"})));
    let (code, answer) = admin.send("DELETE", &format!("{SPACE}/pods/p"), None);
    let said = "Internal error occurred: admission webhook \"mutate.example.com\" attempted to modify the object, \
                which is not supported for this operation";
    assert_eq!((code, answer["message"].as_str()), (500, Some(said)), "{answer}");
    assert!(admin.get(&format!("{SPACE}/pods/p")).1["metadata"]["deletionTimestamp"].is_null());
    hooks.set("", json!([]));
    let (code, answer) = admin.send("DELETE", &format!("{SPACE}/pods/p"), None);
    assert_eq!(code, 200, "an empty patch changes nothing: {answer}");
}

/// Who scales without a resource version does not hear of writes in between.
#[test]
fn a_scale_is_patched_again_when_somebody_else_was_faster() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let path = "/apis/apps/v1/namespaces/default/deployments";
    admin.create(
        path,
        &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    );
    // Whoever asks finds that somebody has changed the Deployment meanwhile, twice.
    let (writer, asked) = (Caller::admin(&server), Arc::new(Mutex::new(0)));
    let counted = asked.clone();
    let https = Https::start(move |request| {
        let mut asked = counted.lock().unwrap();
        *asked += 1;
        if *asked <= 2 {
            let change = json!({"metadata": {"annotations": {"asked": asked.to_string()}}});
            let (code, _) =
                writer.send("PATCH", "/apis/apps/v1/namespaces/default/deployments/d", Some(&change));
            assert_eq!(code, 200);
        }
        let response = json!({"uid": request.body["request"]["uid"], "allowed": true});
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    let rules = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}]);
    let hook = json!({"name": "slow.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "rules": rules,
        "clientConfig": {"url": https.url("/"), "caBundle": STANDARD.encode(https.authority())}});
    admin.create(
        &format!("{HOOKS}/validatingwebhookconfigurations"),
        &json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "slow"}, "webhooks": [hook]}),
    );
    let scale = format!("{path}/d/scale");
    let (code, answer) = admin.send("PATCH", &scale, Some(&json!({"spec": {"replicas": 3}})));
    assert!(code == 200 && answer["spec"]["replicas"] == 3, "{code} {answer}");
    assert_eq!(*asked.lock().unwrap(), 3);
    // A version that the client names is a condition.
    let stale = json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 4}});
    let (code, answer) = admin.send("PATCH", &scale, Some(&stale));
    assert!(code == 409 && answer["reason"] == "Conflict", "{code} {answer}");
}
