//! Values have the types of their fields, whatever way an object comes: by server-side apply, or changed by a webhook.

use crate::on_both_stores;
use crate::webhooks::configuration;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_tests::https::{self, Https};
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};

#[test]
fn applied_objects_are_read_by_their_type() {
    on_both_stores(applied);
}

/// A Deployment, changed by `more` (merged into the spec).
fn deployment(more: Value) -> String {
    let container =
        json!({"name": "c", "image": "i", "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}});
    let mut spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}});
    spec.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        .to_string()
}

fn applied(server: &Server) {
    let kubectl = newest(&server.kubeconfig());
    let float = deployment(json!({"replicas": 1.5}));
    let unknown = deployment(json!({"nope": 1}));
    // The first round is about an object that would be made, the second about one that is there.
    for exists in [false, true] {
        let refused = kubectl.try_with("apply --server-side -f -", &float);
        let said = "to proper version: unable to convert unstructured object to apps/v1, Kind=Deployment: json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32";
        assert!(!refused.ok && refused.err.contains(said), "{refused:?}");
        // An apply knows no fields that would be dropped: they are errors, whatever the validation is.
        for validation in ["strict", "warn", "ignore"] {
            let line = format!("apply --server-side --validate={validation} -f -");
            let refused = kubectl.try_with(&line, &unknown);
            assert!(!refused.ok && refused.err.contains("nope"), "{validation}: {refused:?}");
            let said = ".spec.nope: field not declared in schema";
            assert!(validation == "strict" || refused.err.contains(said), "{validation}: {refused:?}");
        }
        assert_eq!(kubectl.try_with("get deployment web", "").ok, exists);
        kubectl.run_with("apply --server-side -f -", &deployment(json!({})));
    }
    let get = |path: &str| kubectl.run(&format!("get deployment web -o jsonpath={{{path}}}"));
    assert_eq!(get(".spec.replicas"), "2");
    let limits = ".spec.template.spec.containers[0].resources.limits";
    assert_eq!(
        (get(&format!("{limits}.cpu")), get(&format!("{limits}.memory"))),
        ("500m".into(), "1Gi".into())
    );
    // The same in another form is no change.
    let version = get(".metadata.resourceVersion");
    kubectl.run_with("apply --server-side -f -", &deployment(json!({})));
    assert_eq!(get(".metadata.resourceVersion"), version);
    let refused = kubectl.try_with(
        "patch deployment web --subresource=scale --type=merge -p {\"spec\":{\"replicas\":1.5}}",
        "",
    );
    assert!(!refused.ok && refused.err.contains("cannot unmarshal number 1.5"), "{refused:?}");
    assert_eq!(get(".spec.replicas"), "2");
}

/// Changes ConfigMaps in the way that the path says.
fn answer(asked: &https::Asked) -> (u16, Value) {
    let patch = match asked.path.split('?').next().unwrap_or_default() {
        "/number" => json!([{"op": "add", "path": "/data/a", "value": 1}]),
        "/kind" => json!([{"op": "replace", "path": "/kind", "value": "Secret"}]),
        _ => {
            json!([{"op": "add", "path": "/nope", "value": {"a": 1}}, {"op": "add", "path": "/metadata/nope", "value": 1},
            {"op": "add", "path": "/data/added", "value": "yes"}])
        }
    };
    let response = json!({"uid": asked.body["request"]["uid"], "allowed": true, "patchType": "JSONPatch",
        "patch": STANDARD.encode(patch.to_string())});
    (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

#[test]
fn what_a_webhook_returns_is_read_by_its_type() {
    let https = Https::start(answer);
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    let hook = |path: &str, policy: &str| {
        let (url, ca, more) = (https.url(path), Some(https.authority()), json!({"failurePolicy": policy}));
        kubectl
            .run_with("apply -f -", &configuration("MutatingWebhookConfiguration", "mutate", &url, ca, more));
    };
    // The webhook has answered: its failure policy does not matter.
    for policy in ["Fail", "Ignore"] {
        for (path, why) in [
            ("/number", "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
            ("/kind", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        ] {
            hook(path, policy);
            let refused = kubectl.try_with("create configmap one --from-literal=a=1", "");
            let said = format!("Internal error occurred: ConfigMap changed by a webhook: {why}");
            assert!(!refused.ok && refused.err.contains(&said), "{policy}: {refused:?}");
            assert!(!kubectl.try_with("get configmap one", "").ok);
        }
    }
    hook("/unknown", "Fail");
    kubectl.run("create configmap one --from-literal=a=1");
    let made: Value = serde_json::from_str(&kubectl.run("get configmap one -o json")).unwrap();
    assert_eq!(made["data"], json!({"a": "1", "added": "yes"}));
    assert!(made.get("nope").is_none() && made["metadata"].get("nope").is_none(), "{made}");
    hook("/number", "Fail");
    let refused = kubectl.try_with("label configmap one x=y", "");
    assert!(!refused.ok && refused.err.contains("ConfigMap changed by a webhook"), "{refused:?}");
    assert_eq!(kubectl.run("get configmap one -o jsonpath={.metadata.labels}"), "");
}
