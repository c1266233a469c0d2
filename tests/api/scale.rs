//! Server-side apply of `/scale`: who owns the number of replicas.

use coracle_tests::caller::Caller;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

struct Applier(Caller);

impl Applier {
    fn send(&self, query: &str, body: &Value) -> (u16, Value) {
        let text = body.to_string();
        let caller = self.0.with(&["-H", "Content-Type: application/apply-patch+yaml", "-d", &text]);
        caller.send("PATCH", &format!("{DEPLOYMENT}/scale?{query}"), None)
    }

    fn apply(&self, query: &str, replicas: u32) -> (u16, Value) {
        self.send(
            query,
            &json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"},
                "spec": {"replicas": replicas}}),
        )
    }

    /// Managers of the number of replicas, with operation, version and subresource.
    fn owners(&self) -> Vec<String> {
        let (_, object) = self.0.get(DEPLOYMENT);
        let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
        let owners = entries.filter(|entry| entry["fieldsV1"]["f:spec"]["f:replicas"].is_object());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let line = |entry: &Value| {
            ["manager", "operation", "apiVersion", "subresource"].map(|key| text(&entry[key])).join(" ")
        };
        let mut owners: Vec<String> = owners.map(|entry| line(entry).trim().to_owned()).collect();
        owners.sort();
        owners
    }
}

#[test]
fn an_applied_scale_conflicts_with_other_owners_of_the_replicas() {
    let server = Server::with(&["--api-only"]);
    let kubectl = newest(&server.kubeconfig());
    kubectl.run("create deployment web --image=i --replicas=2 --field-manager=creator");
    let scale = Applier(Caller::admin(&server));
    assert_eq!(scale.owners(), ["creator Update apps/v1"]);

    let (code, said) = scale.apply("fieldManager=me", 5);
    assert_eq!(code, 409, "{said}");
    let conflict = "conflict with \"creator\" using autoscaling/v1: .spec.replicas";
    assert_eq!(said["message"], format!("Apply failed with 1 conflict: {conflict}"));

    let (code, said) = scale.apply("fieldManager=me&force=true", 5);
    assert_eq!((code, &said["spec"]["replicas"]), (200, &json!(5)), "{said}");
    assert_eq!(scale.owners(), ["me Apply apps/v1 scale"]);

    // Its own field.
    assert_eq!(scale.apply("fieldManager=me", 6).0, 200);
    // The same value is no conflict: it is shared.
    assert_eq!(scale.apply("fieldManager=other", 6).0, 200);
    assert_eq!(scale.owners(), ["me Apply apps/v1 scale", "other Apply apps/v1 scale"]);
    let (code, said) = scale.apply("fieldManager=me", 7);
    assert_eq!(code, 409, "{said}");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains("conflict with \"other\" with subresource \"scale\""), "{message}");

    let (code, said) = scale.apply("", 6);
    assert_eq!(code, 422, "{said}");
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let (code, said) = scale.send("fieldManager=me", &body);
    assert_eq!((code, &said["message"]), (400, &json!("invalid object type: apps/v1, Kind=Deployment")));
    // What is applied of the rest is not touched.
    assert_eq!(kubectl.run("get deployment web -o jsonpath={.spec.replicas}"), "6");
}
