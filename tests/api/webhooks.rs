//! Admission webhooks: a real HTTPS server has a say.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::https::{self, Https};
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// When the slow webhook allows the request after all. A server that waits for it lets the object through, and the test fails.
const SLOW: Duration = Duration::from_secs(60);

/// How often each path was asked.
#[derive(Default)]
struct Asked {
    mutate: AtomicUsize,
    validate: AtomicUsize,
    /// The slow webhook need not wait any more.
    given_up: AtomicBool,
}

fn answer(asked: &https::Asked, counts: &Asked) -> (u16, Value) {
    let asked_for = &asked.body["request"];
    let mut response = json!({"uid": asked_for["uid"], "allowed": true});
    // How long they may take is said with the path.
    match asked.path.strip_suffix("?timeout=5s").unwrap_or_default() {
        "/mutate" => {
            counts.mutate.fetch_add(1, Ordering::SeqCst);
            // There is nothing to change about an object that goes.
            if asked_for["operation"] != "DELETE" {
                response["patchType"] = json!("JSONPatch");
                response["patch"] =
                    json!(STANDARD.encode(r#"[{"op": "add", "path": "/data/mutated", "value": "yes"}]"#));
            }
            response["auditAnnotations"] = json!({"changed": "data"});
        }
        "/validate" => {
            counts.validate.fetch_add(1, Ordering::SeqCst);
            let gone = asked_for["operation"] == "DELETE";
            let object = &asked_for[if gone { "oldObject" } else { "object" }];
            response["warnings"] = json!(["somebody looked at it"]);
            if object["data"]["forbidden"] == "yes" || object["data"]["mutated"] != "yes" {
                response["allowed"] = json!(false);
                response["status"] = json!({"message": "it says that it is forbidden"});
                response["auditAnnotations"] = json!({"why": "it says so"});
            }
        }
        _ => {
            let begun = Instant::now();
            while !counts.given_up.load(Ordering::SeqCst) && begun.elapsed() < SLOW {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// A configuration with one webhook; without an authority it has no `caBundle`.
pub fn configuration(kind: &str, name: &str, url: &str, ca: Option<&str>, more: Value) -> String {
    let mut hook = json!({"name": format!("{name}.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "timeoutSeconds": 5, "clientConfig": {"url": url},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE", "DELETE"]}]});
    if let Some(ca) = ca {
        hook["clientConfig"]["caBundle"] = json!(STANDARD.encode(ca));
    }
    for (key, value) in more.as_object().unwrap() {
        hook[key] = value.clone();
    }
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}).to_string()
}

#[test]
fn webhooks_have_a_say() {
    let asked = Arc::new(Asked::default());
    let counts = asked.clone();
    let https = Https::start(move |request| answer(request, &counts));
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("audit.log");
    let server = Server::with(&["--api-only", "--audit-log-path", &log.display().to_string()]);
    let kubectl = newest(&server.kubeconfig());
    let url = |path: &str| https.url(path);
    let apply = |kind: &str, name: &str, url: &str, more: Value| {
        kubectl.run_with("apply -f -", &configuration(kind, name, url, Some(https.authority()), more));
    };
    apply("MutatingWebhookConfiguration", "mutate", &url("/mutate"), json!({}));
    let condition = json!({"matchConditions": [{"name": "not-exempt", "expression": "object == null || !(has(object.data.exempt))"}]});
    apply("ValidatingWebhookConfiguration", "validate", &url("/validate"), condition);

    let made = kubectl.try_with("create configmap one --from-literal=a=1", "");
    assert!(made.ok && made.err.contains("Warning: somebody looked at it"), "{made:?}");
    assert_eq!(kubectl.run("get configmap one -o jsonpath={.data.mutated}"), "yes");
    let refused = kubectl.try_with("create configmap two --from-literal=forbidden=yes", "");
    let said = "admission webhook \"validate.example.com\" denied the request: it says that it is forbidden";
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
    assert!(!kubectl.try_with("get configmap two", "").ok);
    let before = asked.validate.load(Ordering::SeqCst);
    kubectl.run("create configmap three --from-literal=forbidden=yes --from-literal=exempt=yes");
    assert_eq!(asked.validate.load(Ordering::SeqCst), before, "a condition kept it out");
    let dry = kubectl.try_with("create configmap four --from-literal=a=1 --dry-run=server", "");
    assert!(dry.ok, "{dry:?}");
    kubectl.run("create configmap other --from-literal=forbidden=yes -n kube-public");
    let kept = kubectl.try_with("delete configmap three", "");
    assert!(!kept.ok && kept.err.contains(said), "{kept:?}");

    // Webhooks that fail: ignored or not, and never for long.
    apply(
        "ValidatingWebhookConfiguration",
        "dead",
        "https://127.0.0.1:1/",
        json!({"failurePolicy": "Ignore"}),
    );
    kubectl.run("create configmap five --from-literal=a=1");
    apply("ValidatingWebhookConfiguration", "dead", "https://127.0.0.1:1/", json!({"failurePolicy": "Fail"}));
    let failed = kubectl.try_with("create configmap six --from-literal=a=1", "");
    assert!(!failed.ok && failed.err.contains("failed calling webhook \"dead.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/?timeout=5s\": dial tcp 127.0.0.1:1: "), "{failed:?}");
    kubectl.run("delete validatingwebhookconfiguration dead");
    apply("ValidatingWebhookConfiguration", "slow", &url("/slow"), json!({"timeoutSeconds": 1}));
    let failed = kubectl.try_with("create configmap seven --from-literal=a=1", "");
    let said = format!(
        "failed calling webhook \"slow.example.com\": failed to call webhook: Post \"{}?timeout=1s\": context deadline exceeded",
        url("/slow")
    );
    assert!(!failed.ok && failed.err.contains(&said), "{failed:?}");
    asked.given_up.store(true, Ordering::SeqCst);
    assert!(asked.mutate.load(Ordering::SeqCst) > 4);
    // What webhooks note is in the audit log, for what went through and for what did not.
    let noted = |key: &str, text: &str| {
        let events = std::fs::read_to_string(&log).unwrap_or_default();
        let mut events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.any(|event| event["annotations"][key] == text)
    };
    coracle_tests::eventually("notes of webhooks are written", Duration::from_secs(20), || {
        noted("mutate.example.com/changed", "data") && noted("validate.example.com/why", "it says so")
    });
}

#[test]
fn a_webhook_without_an_authority_is_known_by_the_systems() {
    let https = Https::start(|request| answer(request, &Asked::default()));
    let dir = tempfile::tempdir().unwrap();
    let roots = dir.path().join("roots.pem");
    std::fs::write(&roots, https.authority()).unwrap();
    let hook = |ca: Option<&str>| {
        configuration("MutatingWebhookConfiguration", "mutate", &https.url("/mutate"), ca, json!({}))
    };
    let roots = [("SSL_CERT_FILE", roots.to_str().unwrap()), ("SSL_CERT_DIR", "")];
    let server = Server::with_environment(&["--api-only"], &roots);
    let kubectl = newest(&server.kubeconfig());
    for (name, ca) in [("absent", None), ("empty", Some(""))] {
        kubectl.run_with("apply -f -", &hook(ca));
        kubectl.run(&format!("create configmap {name} --from-literal=a=1"));
        assert_eq!(
            kubectl.run(&format!("get configmap {name} -o jsonpath={{.data.mutated}}")),
            "yes",
            "{name}"
        );
    }
    drop(server);
    // One whose authority the system does not know is refused, in words that say so.
    let nobody = dir.path().join("nobody.pem");
    let stranger = coracle_pki::authority::Authority::ensure(dir.path(), "stranger", "stranger").unwrap();
    std::fs::write(&nobody, &stranger.certificate).unwrap();
    let roots = [("SSL_CERT_FILE", nobody.to_str().unwrap()), ("SSL_CERT_DIR", "")];
    let server = Server::with_environment(&["--api-only"], &roots);
    let kubectl = newest(&server.kubeconfig());
    kubectl.run_with("apply -f -", &hook(None));
    let refused = kubectl.try_with("create configmap one --from-literal=a=1", "");
    let said = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
    kubectl.run_with("apply -f -", &hook(Some("no certificate")));
    let broken = kubectl.try_with("create configmap one --from-literal=a=1", "");
    let said = "failed calling webhook \"mutate.example.com\": could not get REST client: unable to load root certificates";
    assert!(!broken.ok && broken.err.contains(said), "{broken:?}");
}

/// Lets nobody have what is 9 long; turns 5 into 6. Keeps what it was asked.
fn watchman(asked: &https::Asked, seen: &Mutex<Vec<Value>>) -> (u16, Value) {
    let request = &asked.body["request"];
    let mut response = json!({"uid": request["uid"], "allowed": request["object"]["length"] != "9"});
    if !asked.path.starts_with("/mutate") {
        seen.lock().unwrap().push(request.clone());
    } else if request["object"]["length"] == "5" {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(r#"[{"op": "replace", "path": "/length", "value": "6"}]"#));
    }
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Rules on one version are not evaded through another, unless they say that they are exact.
#[test]
fn rules_are_for_equivalent_versions() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let https = Https::start(move |request| watchman(request, &kept));
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    let version = |name: &str, fields: Value| {
        json!({"name": name, "served": true, "storage": name == "v1",
            "schema": {"openAPIV3Schema": {"type": "object", "properties": fields}}})
    };
    let text = json!({"type": "string"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "skiffs.fleet.example.com"},
        "spec": {"group": "fleet.example.com", "scope": "Namespaced",
            "names": {"plural": "skiffs", "singular": "skiff", "kind": "Skiff"}, "versions": [
                version("v1", json!({"length": text})), version("v2", json!({"length": text, "sail": text}))]}});
    kubectl.run_with("apply -f -", &definition.to_string());
    kubectl.run("wait --for=condition=Established --timeout=60s crd/skiffs.fleet.example.com");
    let rules = json!([
        {"apiGroups": ["fleet.example.com"], "apiVersions": ["v1"], "resources": ["skiffs"], "operations": ["*"]},
        {"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"], "operations": ["*"]},
    ]);
    let apply = |kind: &str, path: &str, policy: &str| {
        let more = json!({"rules": rules, "matchPolicy": policy});
        let one = configuration(kind, "watchman", &https.url(path), Some(https.authority()), more);
        kubectl.run_with("apply -f -", &one);
    };
    let skiff = |version: &str, name: &str, length: &str| {
        let mut skiff = json!({"apiVersion": format!("fleet.example.com/{version}"), "kind": "Skiff",
            "metadata": {"name": name}, "length": length});
        if version == "v2" {
            skiff["sail"] = json!("red");
        }
        skiff.to_string()
    };
    let create = |name: &str, length: &str| kubectl.try_with("create -f -", &skiff("v2", name, length));
    let last = || seen.lock().unwrap().last().cloned().unwrap_or_default();

    apply("ValidatingWebhookConfiguration", "/validate", "Equivalent");
    let refused = create("one", "9");
    let said = "admission webhook \"watchman.example.com\" denied the request";
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
    let asked = last();
    for (field, version) in
        [("kind", "v1"), ("resource", "v1"), ("requestKind", "v2"), ("requestResource", "v2")]
    {
        assert_eq!(asked[field]["version"], version, "{field}: {asked}");
    }
    assert_eq!(asked["object"]["apiVersion"], "fleet.example.com/v1", "{asked}");
    assert!(create("two", "7").ok);
    kubectl.run("delete skiffs.v2.fleet.example.com two");
    let asked = last();
    assert_eq!(
        (&asked["operation"], &asked["object"], &asked["oldObject"]["apiVersion"]),
        (&json!("DELETE"), &Value::Null, &json!("fleet.example.com/v1")),
        "{asked}"
    );
    // Built-in kinds have their conversions.
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "metrics": [cpu], "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    kubectl.run_with("create -f -", &hpa.to_string());
    let asked = last();
    assert_eq!(
        (&asked["object"]["apiVersion"], &asked["object"]["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &json!(50)),
        "{asked}"
    );

    // What is changed in one version is changed in the one that was asked for, which keeps what only it has.
    apply("MutatingWebhookConfiguration", "/mutate", "Equivalent");
    let changed = kubectl
        .try_with("create -o jsonpath={.apiVersion}:{.length}:{.sail} -f -", &skiff("v2", "three", "5"));
    assert!(changed.ok && last()["object"]["length"] == "6", "{changed:?} {}", last());
    assert_eq!(last()["object"]["sail"], "red", "{}", last());
    assert!(changed.out.starts_with("fleet.example.com/v2:6:"), "{changed:?}");
    apply("MutatingWebhookConfiguration", "/mutate", "Exact");
    apply("ValidatingWebhookConfiguration", "/validate", "Exact");
    let before = seen.lock().unwrap().len();
    assert!(create("four", "5").ok && create("five", "9").ok, "exact rules are for their version");
    assert_eq!(kubectl.run("get skiff four -o jsonpath={.length}"), "5");
    assert_eq!(seen.lock().unwrap().len(), before);
    let refused = kubectl.try_with("create -f -", &skiff("v1", "six", "9"));
    assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
    kubectl.run("delete validatingwebhookconfiguration,mutatingwebhookconfiguration watchman");

    // The same of policies and their bindings.
    let policy = |policy: &str| {
        let wanted = json!({"matchPolicy": policy, "resourceRules": [rules[0]]});
        let expression = "!(object.length == '13' && object.apiVersion == 'fleet.example.com/v1' && request.kind.version == 'v1' && request.resource.version == 'v1' && request.requestResource.version == 'v2')";
        json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "luck"},
                "spec": {"matchConstraints": wanted, "validations": [{"expression": expression, "message": "no luck"}]}},
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "luck"},
                "spec": {"policyName": "luck", "validationActions": ["Deny"], "matchResources": wanted}}]})
        .to_string()
    };
    kubectl.run_with("apply -f -", &policy("Equivalent"));
    let refused = create("seven", "13");
    assert!(!refused.ok && refused.err.contains("denied request: no luck"), "{refused:?}");
    assert!(create("eight", "12").ok);
    kubectl.run_with("apply -f -", &policy("Exact"));
    let passed = create("nine", "13");
    assert!(passed.ok, "{passed:?}");
}

/// A webhook may run in the cluster, and be away until the server serves. What the server publishes passes webhooks, too.
#[test]
fn a_server_starts_while_a_webhook_for_what_it_publishes_is_away() {
    const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let mut server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]});
    let hook = json!({"name": "away.example.com", "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:9/"}, "rules": [rule]});
    let away = json!({"metadata": {"name": "away"}, "webhooks": [hook]});
    admin.create(HOOKS, &away);
    server.stop();
    server.restart();
    assert!(!server.log().contains("cannot publish"), "nothing has changed: {}", server.log());
    // What is published has to be written, and cannot be.
    let admin = Caller::admin(&server);
    assert_eq!(admin.send("DELETE", &format!("{HOOKS}/away"), None).0, 200);
    let other = r#"["other"]"#;
    let names = json!({"data": {"requestheader-allowed-names": other}});
    eventually("the webhook is not called any more", SLOW, || {
        admin.send("PATCH", MAP, Some(&names)).0 == 200
    });
    admin.create(HOOKS, &away);
    server.stop();
    server.restart();
    let told = || server.log().contains("cannot publish the certificate authorities");
    eventually("it is said that it is not published", SLOW, told);
    let admin = Caller::admin(&server);
    let published = || admin.get(MAP).1["data"]["requestheader-allowed-names"].clone();
    assert_eq!(published(), other);
    assert_eq!(admin.send("DELETE", &format!("{HOOKS}/away"), None).0, 200);
    eventually("it is published", SLOW, || published() == "[]");
}
