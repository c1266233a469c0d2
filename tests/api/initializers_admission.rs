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

#[test]
fn quotas_and_ranges_hold_for_what_initializers_change() {
    let world = World::start(json!({}), &[]);
    let hard = json!({"requests.cpu": "1", "pods": "5"});
    let quotas = format!("{NAMESPACE}/resourcequotas");
    world.admin.create(&quotas, &json!({"metadata": {"name": "q"}, "spec": {"hard": hard}}));
    let counted = json!({"status": {"hard": hard, "used": {"requests.cpu": "0", "pods": "0"}}});
    assert_eq!(world.admin.send("PATCH", &format!("{quotas}/q/status"), Some(&counted)).0, 200);
    let item = json!({"type": "Container", "max": {"memory": "1Gi"}, "default": {"memory": "256Mi"}});
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [item]}});
    world.admin.create(&format!("{NAMESPACE}/limitranges"), &range);

    let mut small = pod("p");
    container(&mut small)["resources"] = json!({"requests": {"cpu": "200m"}});
    let made = world.pending(&pods(), small);
    world.refused(&pods(), &made, "exceeded quota: q", |pod| {
        container(pod)["resources"]["requests"]["cpu"] = json!("2");
    });
    world.refused(&pods(), &made, "maximum memory usage per Container is 1Gi", |pod| {
        container(pod)["resources"]["limits"]["memory"] = json!("2Gi");
    });
    let (code, done) = world.initialize(&pods(), &made, |pod| {
        let added = json!({"name": "added", "image": "i", "resources": {"requests": {"cpu": "300m"}}});
        pod["spec"]["containers"].as_array_mut().unwrap().push(added);
    });
    let added = &done["spec"]["containers"][1];
    assert_eq!((code, &added["resources"]["limits"]["memory"]), (200, &json!("256Mi")), "{done}");
    let mounts = added["volumeMounts"].as_array().map(Vec::len);
    assert_eq!(mounts, Some(1), "the volume of the service account: {done}");
    let used = world.admin.get(&format!("{quotas}/q")).1["status"]["used"].clone();
    assert_eq!(
        (&used["requests.cpu"], &used["pods"]),
        (&json!("500m"), &json!("1")),
        "the difference is charged"
    );

    // A claim that nobody has seen has no volume that would have to grow.
    let claims = format!("{NAMESPACE}/persistentvolumeclaims");
    let resources = json!({"requests": {"storage": "1Gi"}});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "x"});
    let made = world.pending(&claims, json!({"metadata": {"name": "c"}, "spec": spec}));
    let (code, grown) = world.initialize(&claims, &made, |claim| {
        claim["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        claim["metadata"].as_object_mut().unwrap().remove("finalizers");
    });
    let finalizers = &grown["metadata"]["finalizers"];
    assert_eq!((code, finalizers), (200, &json!(["kubernetes.io/pvc-protection"])), "{grown}");
}

#[test]
fn what_plugins_compute_is_computed_for_every_change() {
    let world = World::start(json!({}), &["--enable-admission-plugins", "AlwaysPullImages"]);
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    world.admin.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    let overhead = json!({"podFixed": {"cpu": "100m"}});
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": overhead});
    world.admin.create("/apis/node.k8s.io/v1/runtimeclasses", &class);

    let made = world.pending(&pods(), pod("p"));
    world.refused(&pods(), &made, "the integer value of priority (2000000000) must not be provided", |pod| {
        pod["spec"]["priority"] = json!(2_000_000_000);
    });
    world.refused(&pods(), &made, "no PriorityClass with name missing", |pod| {
        pod["spec"]["priorityClassName"] = json!("missing");
    });
    world.refused(&pods(), &made, "Pod Overhead set without corresponding RuntimeClass", |pod| {
        pod["spec"]["overhead"] = json!({"cpu": "1m"});
    });
    world.refused(&pods(), &made, "service account shop/missing", |pod| {
        pod["spec"]["serviceAccountName"] = json!("missing");
    });
    let (code, done) = world.initialize(&pods(), &made, |pod| {
        pod["spec"]["priorityClassName"] = json!("high");
        pod["spec"]["runtimeClassName"] = json!("vm");
        container(pod)["imagePullPolicy"] = json!("Never");
    });
    assert_eq!(code, 200, "{done}");
    let spec = &done["spec"];
    assert_eq!((&spec["priority"], &spec["overhead"]["cpu"]), (&json!(1000), &json!("100m")));
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");

    let templates = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates";
    let request = json!({"name": "a", "exactly": {"deviceClassName": "d.example.com"}});
    let spec = json!({"spec": {"devices": {"requests": [request]}}});
    let made = world.pending(templates, json!({"metadata": {"name": "t"}, "spec": spec}));
    world.refused(templates, &made, "admin access to devices requires", |template| {
        template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    });
}
