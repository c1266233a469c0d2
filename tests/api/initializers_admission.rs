//! Initializers: the changes of objects that nobody has seen are admitted as creates are.

use coracle_tests::caller::Caller;
use coracle_tests::server::Server;
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/shop";
const WHOLE: &str = "includeUninitialized=true";

/// A server with the namespace `shop`.
struct World {
    _server: Server,
    admin: Caller,
}

impl World {
    fn start(labels: Value, flags: &[&str]) -> Self {
        let gate = ["--api-only", "--feature-gates", "Initializers=true"];
        let server = Server::with(&[&gate[..], flags].concat());
        let admin = Caller::admin(&server);
        admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop", "labels": labels}}));
        // A controller makes it otherwise.
        let account = json!({"metadata": {"name": "default"}});
        admin.create(&format!("{NAMESPACE}/serviceaccounts"), &account);
        Self { _server: server, admin }
    }

    /// A new object that is pending, as it is stored.
    fn pending(&self, path: &str, mut object: Value) -> Value {
        object["metadata"]["initializers"] = json!({"pending": [{"name": "a.example.com"}]});
        let (code, made) = self.admin.send("POST", &format!("{path}?{WHOLE}"), Some(&object));
        assert_eq!(code, 202, "{made}");
        made
    }

    /// Changes a pending object and ends its initialization: code and answer.
    fn initialize(&self, path: &str, made: &Value, change: impl FnOnce(&mut Value)) -> (u16, Value) {
        let mut object = made.clone();
        object["metadata"].as_object_mut().unwrap().remove("initializers");
        change(&mut object);
        let name = made["metadata"]["name"].as_str().unwrap();
        self.admin.send("PUT", &format!("{path}/{name}"), Some(&object))
    }

    /// The same, which is to be refused with these words.
    fn refused(&self, path: &str, made: &Value, words: &str, change: impl FnOnce(&mut Value)) {
        let (code, answer) = self.initialize(path, made, change);
        let why = answer["message"].as_str().unwrap_or_default();
        assert!((code == 403 || code == 422) && why.contains(words), "{words}: {code} {answer}");
    }
}

fn pods() -> String {
    format!("{NAMESPACE}/pods")
}

/// A pod that the restricted level accepts.
fn pod(name: &str) -> Value {
    let security = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let container = json!({"name": "c", "image": "i", "securityContext": security});
    let whole = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    json!({"metadata": {"name": name}, "spec": {"containers": [container], "securityContext": whole}})
}

fn container(pod: &mut Value) -> &mut Value {
    &mut pod["spec"]["containers"][0]
}

#[test]
fn pod_security_checks_every_change() {
    let world = World::start(json!({"pod-security.kubernetes.io/enforce": "restricted"}), &[]);
    let made = world.pending(&pods(), pod("p"));
    world.refused(&pods(), &made, "violates PodSecurity", |pod| {
        container(pod)["securityContext"] = json!({"privileged": true});
    });
    world.refused(&pods(), &made, "violates PodSecurity", |pod| {
        pod["spec"]["hostNetwork"] = json!(true);
    });
    assert_eq!(world.initialize(&pods(), &made, |_| ()).0, 200);
}
