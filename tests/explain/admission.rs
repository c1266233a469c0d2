//! Webhooks and policies that look at the Deployments of one namespace, and let all pass.

use crate::clients::within;
use crate::stages::NAMESPACE;
use crate::world::World;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_tests::https::Https;
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io/v1";
const NAME: &str = "stages";

/// What is asked about Deployments until it is removed.
pub struct Hooks {
    /// Serves the webhooks.
    _https: Https,
}

fn rules() -> Value {
    json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}])
}

fn selector() -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}})
}

pub fn install(world: &World) -> Hooks {
    // The server calls them from its own network.
    let https = within(world.cluster.hub(), || {
        Https::start(|asked| {
            let response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
            (
                200,
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}),
            )
        })
    });
    let client = json!({"url": https.url("/"), "caBundle": STANDARD.encode(https.authority())});
    let hook = json!({"name": "stages.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": client, "namespaceSelector": selector(), "rules": rules()});
    let constraints = json!({"namespaceSelector": selector(), "resourceRules": rules()});
    let change = "Object{metadata: Object.metadata{annotations: {'looked': 'at'}}}";
    let mutating = json!({"matchConstraints": constraints, "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}]});
    let validating = json!({"matchConstraints": constraints, "validations": [{"expression": "true"}]});
    let binding = json!({"policyName": NAME, "validationActions": ["Deny"]});
    for (kind, field, content) in [
        ("MutatingWebhookConfiguration", "webhooks", json!([hook])),
        ("ValidatingWebhookConfiguration", "webhooks", json!([hook])),
        ("MutatingAdmissionPolicy", "spec", mutating),
        ("MutatingAdmissionPolicyBinding", "spec", json!({"policyName": NAME})),
        ("ValidatingAdmissionPolicy", "spec", validating),
        ("ValidatingAdmissionPolicyBinding", "spec", binding),
    ] {
        let mut object = json!({"apiVersion": GROUP, "kind": kind, "metadata": {"name": NAME}});
        object[field] = content;
        world.k.run_with("create --validate=false -f -", &object.to_string());
    }
    Hooks { _https: https }
}

impl Hooks {
    pub fn remove(self, world: &World) {
        let kinds = "mutatingwebhookconfiguration,validatingwebhookconfiguration,mutatingadmissionpolicy,\
                     mutatingadmissionpolicybinding,validatingadmissionpolicy,validatingadmissionpolicybinding";
        world.k.run(&format!("delete {kinds} {NAME}"));
    }
}
