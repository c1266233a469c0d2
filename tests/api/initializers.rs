//! Initializers: objects are hidden until each of them has removed its name.

use coracle_tests::caller::Caller;
use coracle_tests::eventually;
use coracle_tests::kubectl::{found, newest};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WHOLE: &str = "includeUninitialized=true";
const GATE: [&str; 2] = ["--feature-gates", "Initializers=true"];
const SOON: Duration = Duration::from_secs(60);

fn server(flags: &[&str]) -> Server {
    Server::with(&[&GATE[..], flags].concat())
}

fn configuration(name: &str, (group, resource): (&str, &str), initializers: &[&str]) -> Value {
    let rule = json!({"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource]});
    let all: Vec<Value> = initializers.iter().map(|name| json!({"name": name, "rules": [rule]})).collect();
    json!({"metadata": {"name": name}, "initializers": all})
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"key": "value"}})
}

fn pending(names: &[&str]) -> Value {
    let names: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json!({"metadata": {"initializers": {"pending": names}}})
}

/// The ConfigMaps that a list shows.
fn listed(caller: &Caller, query: &str) -> Vec<String> {
    let list = caller.get(&format!("{MAPS}?{query}")).1;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// Somebody who may do these things with ConfigMaps.
fn user(server: &Server, admin: &Caller, name: &str, verbs: &[&str]) -> Caller {
    let group = "rbac.authorization.k8s.io";
    let at = |resource: &str| format!("/apis/{group}/v1/{resource}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]);
    admin.create(&at("clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}));
    let reference = json!({"apiGroup": group, "kind": "ClusterRole", "name": name});
    let subjects = json!([{"apiGroup": group, "kind": "User", "name": name}]);
    let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": subjects});
    admin.create(&at("clusterrolebindings"), &binding);
    Caller::certified(server, name, &[])
}

#[test]
fn objects_are_hidden_until_their_initializers_have_finished() {
    let server = server(&["--api-only"]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    let manifest = "{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, \
        metadata: {name: b}, initializers: [{name: second.example.com, \
        rules: [{apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]}]}";
    kubectl.run_with("create -f -", manifest);
    admin.create(CONFIGURATIONS, &configuration("a", ("", "configmaps"), &["first.example.com"]));
    let verbs = ["get", "list", "create", "update", "patch", "initialize"];
    let editor = user(&server, &admin, "editor", &verbs[..5]);
    let initializer = user(&server, &admin, "initializer", &verbs);

    let log = server.data_dir().join("watched");
    let mut watch = admin.watch_into(&format!("{MAPS}?watch=1&resourceVersion=0"), &log);
    let (code, made) = editor.send("POST", &format!("{MAPS}?{WHOLE}"), Some(&map("m")));
    assert_eq!(code, 202, "{made}");
    let both = ["first.example.com", "second.example.com"];
    assert_eq!(made["metadata"]["initializers"], pending(&both)["metadata"]["initializers"]);
    assert!(!listed(&admin, "").contains(&"m".to_owned()));
    assert!(listed(&admin, WHOLE).contains(&"m".to_owned()));
    assert_eq!(admin.send("POST", MAPS, Some(&map("m"))).0, 409, "the name is taken");

    // In turn, by those who may.
    let at = format!("{MAPS}/m");
    let (code, answer) = editor.send("PATCH", &at, Some(&pending(&["second.example.com"])));
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 403 && why.contains("update to uninitialized resource denied"), "{code} {why}");
    let (code, answer) = initializer.send("PATCH", &at, Some(&pending(&["first.example.com"])));
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && why.contains("only the first pending initializer"), "{code} {why}");
    let mut first = pending(&["second.example.com"]);
    first["data"] = json!({"added": "by the first"});
    assert_eq!(initializer.send("PATCH", &at, Some(&first)).0, 200);
    assert!(!listed(&admin, "").contains(&"m".to_owned()), "the second has not finished");
    let (code, done) = initializer.send("PATCH", &at, Some(&pending(&[])));
    assert_eq!((code, &done["metadata"]["initializers"]), (200, &Value::Null), "{done}");
    assert!(listed(&editor, "").contains(&"m".to_owned()));
    // Once initialized, always so.
    assert_eq!(initializer.send("PATCH", &at, Some(&pending(&["first.example.com"]))).0, 422);
    eventually("the watch shows it", SOON, || {
        std::fs::read_to_string(&log).unwrap().contains(r#""name":"m""#)
    });
    let watched = std::fs::read_to_string(&log).unwrap();
    let own: Vec<&str> = watched.lines().filter(|line| line.contains(r#""name":"m""#)).collect();
    assert!(own.len() == 1 && own[0].contains("ADDED") && own[0].contains("by the first"), "{own:?}");
    assert!(!watch.over());

    // Only who may initialize chooses initializers, or none.
    let mut free = map("free");
    free["metadata"]["initializers"] = json!({"pending": []});
    assert_eq!(editor.send("POST", MAPS, Some(&free)).0, 403);
    assert_eq!(initializer.send("POST", MAPS, Some(&free)).0, 201);
    assert!(listed(&admin, "").contains(&"free".to_owned()));
}

#[test]
fn a_create_waits_for_its_initializers() {
    let server = server(&["--api-only"]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    admin.create(CONFIGURATIONS, &configuration("a", ("", "configmaps"), &["a.example.com"]));
    let is_pending = |name: &str| listed(&admin, WHOLE).contains(&name.to_owned());
    std::thread::scope(|scope| {
        let created = scope.spawn(|| kubectl.try_with("create configmap good --from-literal=a=b", ""));
        eventually("it is stored", SOON, || is_pending("good"));
        assert!(!created.is_finished());
        assert_eq!(admin.send("PATCH", &format!("{MAPS}/good"), Some(&pending(&[]))).0, 200);
        let created = created.join().unwrap();
        assert!(created.ok, "{created:?}");

        let refused = scope.spawn(|| kubectl.try_with("create configmap bad --from-literal=a=b", ""));
        eventually("it is stored", SOON, || is_pending("bad"));
        let result = json!({"status": "Failure", "reason": "Forbidden", "message": "the value is too short"});
        let failed = json!({"metadata": {"initializers": {"result": result}}});
        assert_eq!(admin.send("PATCH", &format!("{MAPS}/bad"), Some(&failed)).0, 200);
        let refused = refused.join().unwrap();
        assert!(!refused.ok && refused.err.contains("the value is too short"), "{refused:?}");
    });
    assert_eq!(admin.get(&format!("{MAPS}/bad")).0, 404);
    assert!(!is_pending("bad"));
}

#[test]
fn hidden_objects_are_deleted_at_once() {
    let server = server(&[]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    kubectl.run("create namespace gone");
    let hidden = |path: &str, mut object: Value| {
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        object["metadata"]["initializers"] = json!({"pending": [{"name": "a.example.com"}]});
        let (code, made) = admin.send("POST", &format!("{path}?{WHOLE}"), Some(&object));
        assert_eq!(code, 202, "{made}");
    };
    let container = json!({"name": "c", "image": "i"});
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    pod["spec"]["nodeName"] = json!("n1");
    let inside = "/api/v1/namespaces/gone";
    eventually("it has a service account", SOON, || {
        admin.get(&format!("{inside}/serviceaccounts/default")).0 == 200
    });
    let pods = format!("{inside}/pods");
    for (path, object, query) in [
        (MAPS, map("a"), ""),
        (MAPS, map("b"), "?propagationPolicy=Foreground"),
        (MAPS, map("c"), "?propagationPolicy=Orphan"),
        (&*pods, pod.clone(), "?gracePeriodSeconds=30"),
        ("/api/v1/namespaces", json!({"metadata": {"name": "unseen"}}), ""),
    ] {
        let at = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        hidden(path, object);
        let (code, answer) = admin.send("DELETE", &format!("{at}{query}"), None);
        assert_eq!((code, admin.get(&at).0), (200, 404), "{at}{query}: {answer}");
    }
    // Nor does its namespace wait for it.
    hidden(&pods, pod);
    kubectl.run("delete namespace gone --timeout=60s");
}

#[test]
fn only_so_many_creates_wait() {
    const MOST: usize = 32;
    let server = server(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create(CONFIGURATIONS, &configuration("a", ("", "configmaps"), &["a.example.com"]));
    let stored = || listed(&admin, WHOLE).iter().filter(|name| name.starts_with("waits-")).count();
    let create = &|name: String| admin.send("POST", MAPS, Some(&map(&name)));
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..MOST).map(|n| scope.spawn(move || create(format!("waits-{n}")).0)).collect();
        // Before the first of them has waited too long.
        eventually("they are stored", Duration::from_secs(25), || stored() == MOST);
        let (code, answer) = create("waits-not".to_owned());
        assert_eq!((code, &answer["details"]["retryAfterSeconds"]), (429, &json!(1)), "{answer}");
        assert_eq!(stored(), MOST, "it is not stored");
        for n in 0..MOST {
            admin.send("PATCH", &format!("{MAPS}/waits-{n}"), Some(&pending(&[])));
        }
        let codes: Vec<u16> = waiting.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(codes, [201; MOST]);
    });
}

#[test]
fn controllers_see_nothing_before() {
    let server = server(&[]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    admin.create(CONFIGURATIONS, &configuration("a", ("apps", "deployments"), &["a.example.com"]));
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "hidden"}, "spec": spec});
    assert_eq!(admin.send("POST", &format!("{deployments}?{WHOLE}"), Some(&deployment)).0, 202);
    let mut seen = deployment.clone();
    seen["metadata"] = json!({"name": "seen", "initializers": {}});
    admin.create(deployments, &seen);
    let sets = || kubectl.run("get replicasets -o name");
    eventually("the other one has a ReplicaSet", SOON, || sets().contains("/seen-"));
    assert!(!sets().contains("/hidden-"));
    assert_eq!(admin.send("PATCH", &format!("{deployments}/hidden"), Some(&pending(&[]))).0, 200);
    eventually("it has a ReplicaSet", SOON, || sets().contains("/hidden-"));
    // A namespace goes with what nobody sees.
    kubectl.run("create namespace gone");
    let inside = "/apis/apps/v1/namespaces/gone/deployments";
    assert_eq!(admin.send("POST", &format!("{inside}?{WHOLE}"), Some(&deployment)).0, 202);
    kubectl.run("delete namespace gone --timeout=60s");
    assert_eq!(admin.get(&format!("{inside}/hidden")).0, 404);
}

#[test]
fn the_garbage_collector_knows_hidden_owners() {
    let server = server(&[]);
    let admin = Caller::admin(&server);
    admin.create(CONFIGURATIONS, &configuration("a", ("", "secrets"), &["a.example.com"]));
    let secrets = "/api/v1/namespaces/default/secrets";
    let hidden = json!({"metadata": {"name": "hidden"}});
    let (code, owner) = admin.send("POST", &format!("{secrets}?{WHOLE}"), Some(&hidden));
    assert_eq!(code, 202, "{owner}");
    let create = |name: &str, owner: &str, uid: &Value| {
        let reference = json!({"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": uid});
        let mut owned = map(name);
        owned["metadata"]["ownerReferences"] = json!([reference]);
        admin.create(MAPS, &owned);
    };
    let is_gone = |name: &str| admin.get(&format!("{MAPS}/{name}")).0 == 404;
    create("owned", "hidden", &owner["metadata"]["uid"]);
    create("stray", "nobody", &json!("00000000-0000-4000-8000-000000000000"));
    eventually("the stray one is collected", SOON, || is_gone("stray"));
    assert!(!is_gone("owned"));
    assert_eq!(admin.send("DELETE", &format!("{secrets}/hidden"), None).0, 200);
    eventually("it is collected with its owner", SOON, || is_gone("owned"));
}

#[test]
fn some_kinds_are_never_initialized() {
    let server = server(&["--api-only"]);
    let admin = Caller::admin(&server);
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}});
    for (path, name, mut object) in
        [(leases, "l", lease), (CONFIGURATIONS, "c", configuration("c", ("", "pods"), &["a.example.com"]))]
    {
        let asked = pending(&["b.example.com"]);
        object["metadata"]["initializers"] = asked["metadata"]["initializers"].clone();
        let (code, made) = admin.send("POST", path, Some(&object));
        assert_eq!((code, &made["metadata"]["initializers"]), (201, &Value::Null), "{made}");
        let (code, changed) = admin.send("PATCH", &format!("{path}/{name}"), Some(&asked));
        assert_eq!((code, &changed["metadata"]["initializers"]), (200, &Value::Null), "{changed}");
        let listed = admin.get(path).1;
        let is_listed = |item: &Value| item["metadata"]["name"] == name;
        assert!(listed["items"].as_array().unwrap().iter().any(is_listed), "{listed}");
    }
}

/// The sample of the documentation, until it is dropped.
struct Sample(Child);

impl Sample {
    fn start(server: &Server) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/howto/sidecar-initializer.py");
        let kubectl = found().values().next_back().unwrap();
        let mut command = Command::new("python3");
        command.arg(script).env("KUBECTL", kubectl).env("KUBECONFIG", server.kubeconfig());
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_sample_adds_a_sidecar() {
    let server = server(&["--api-only"]);
    let (admin, kubectl) = (Caller::admin(&server), newest(&server.kubeconfig()));
    admin.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "default"}}));
    admin.create(CONFIGURATIONS, &configuration("proxy", ("", "pods"), &["proxy.example.com"]));
    let _sample = Sample::start(&server);
    kubectl.run("run with --image=i --annotations=example.com/proxy=yes");
    kubectl.run("run without --image=i");
    let names = |pod: &str| kubectl.run(&format!("get pod {pod} -o jsonpath={{.spec.containers[*].name}}"));
    assert_eq!((names("with"), names("without")), ("with proxy".to_owned(), "without".to_owned()));
    assert_eq!(kubectl.run("get pods -o name"), "pod/with\npod/without\n");
}

#[test]
fn the_gate_can_be_turned_on_and_off() {
    let mut server = Server::with(&["--api-only"]);
    let documented = |server: &Server| {
        let document = Caller::admin(server).get("/openapi/v3/api/v1").1;
        let at = "/paths/~1api~1v1~1namespaces~1{namespace}~1configmaps/get/parameters";
        let parameters = document.pointer(at).and_then(Value::as_array).unwrap();
        parameters.iter().any(|parameter| parameter["name"] == "includeUninitialized")
    };
    assert!(!documented(&server));
    server.stop();
    server.restart_with(&GATE);
    assert!(documented(&server));
    let admin = Caller::admin(&server);
    admin.create(CONFIGURATIONS, &configuration("a", ("", "configmaps"), &["a.example.com"]));
    let mut fixed = map("fixed");
    fixed["immutable"] = json!(true);
    assert_eq!(admin.send("POST", &format!("{MAPS}?{WHOLE}"), Some(&fixed)).0, 202);
    server.stop();
    server.restart();
    let admin = Caller::admin(&server);
    assert!(listed(&admin, "").contains(&"fixed".to_owned()));
    let changed = json!({"data": {"key": "another"}});
    let (code, answer) = admin.send("PATCH", &format!("{MAPS}/fixed"), Some(&changed));
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 422 && why.contains("immutable"), "{code} {why}");
}

#[test]
fn they_are_off_by_default() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    assert_eq!(admin.get(CONFIGURATIONS).0, 404);
    let mut asked = map("m");
    asked["metadata"]["initializers"] = json!({"pending": [{"name": "a.example.com"}]});
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let (code, answer) = admin.send("POST", &strict, Some(&asked));
    let why = answer["message"].as_str().unwrap_or_default();
    assert!(code == 400 && why.contains("unknown field \"metadata.initializers\""), "{code} {why}");
    let (code, made) = admin.send("POST", MAPS, Some(&asked));
    assert_eq!((code, &made["metadata"]["initializers"]), (201, &Value::Null), "{made}");
}
