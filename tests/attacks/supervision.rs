//! Tasks that die: one object, or a store that hangs, against a task that serves all.

use coracle_tests::caller::Caller;
use coracle_tests::etcd::Etcd;
use coracle_tests::eventually;
use coracle_tests::pods::{Cluster, IMAGE};
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// A page as text.
fn page(caller: &Caller, path: &str) -> (u16, String) {
    let (code, body) = caller.get(path);
    (code, body.as_str().map_or_else(|| body.to_string(), str::to_owned))
}

/// A node that says it has room; nobody runs it.
fn node(admin: &Caller) {
    admin.create("/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    let amounts = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"status": {"allocatable": amounts, "capacity": amounts,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(admin.send("PATCH", "/api/v1/nodes/n/status", Some(&status)).0, 200);
}

fn pod(name: &str, requests: &[Value]) -> Value {
    let container = |(index, requests): (usize, &Value)| json!({"name": format!("c{index}"), "image": "i", "resources": {"requests": requests}});
    let containers: Vec<Value> = requests.iter().enumerate().map(container).collect();
    json!({"metadata": {"name": name}, "spec": {"tolerations": [{"operator": "Exists"}], "containers": containers}})
}

#[test]
fn a_namespace_editor_cannot_stop_the_scheduler_by_asking_for_everything() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    node(&admin);
    let pods = "/api/v1/namespaces/default/pods";
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    eventually("an account", WAIT, || admin.get(account).0 == 200);
    // Each amount is a number that the API takes; their sum is none.
    let huge = json!({"cpu": "9E", "memory": "5Ei", "ephemeral-storage": "7Ei"});
    admin.create(pods, &pod("huge", &[huge.clone(), huge.clone(), huge]));
    admin.create(pods, &pod("small", &[json!({"cpu": "10m"})]));
    let of = |name: &str| admin.get(&format!("{pods}/{name}")).1;
    eventually("the other pod has a node", WAIT, || of("small")["spec"]["nodeName"] == "n");
    eventually("the huge one is told that there is no room", WAIT, || {
        let conditions = of("huge")["status"]["conditions"].clone();
        conditions[0]["message"].as_str().is_some_and(|text| text.contains("1 Insufficient memory"))
    });
    assert!(of("huge")["spec"]["nodeName"].is_null());
    let (_, metrics) = page(&admin, "/metrics");
    assert!(metrics.contains("coracle_task_panics_total{task=\"scheduler\"} 0\n"), "{metrics}");
    assert_eq!(page(&admin, "/readyz").0, 200);
}

#[test]
fn a_namespace_editor_cannot_stop_controllers_by_asking_for_everything() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    let deployments = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let deployment = |name: &str, replicas: i32| {
        let labels = json!({"app": name});
        json!({"metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }})
    };
    admin.create("/api/v1/namespaces", &json!({"metadata": {"name": "crowded"}}));
    // No pod is made of all those that are asked for.
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    admin.create("/api/v1/namespaces/crowded/resourcequotas", &quota);
    let quota = "/api/v1/namespaces/crowded/resourcequotas/none";
    eventually("the quota holds", WAIT, || admin.get(quota).1["status"]["hard"]["pods"] == "0");
    // One for each worker of the controller.
    for number in 0..8 {
        admin.create(&deployments("crowded"), &deployment(&format!("all-{number}"), i32::MAX));
    }
    admin.create(&deployments("default"), &deployment("modest", 0));
    let sets = |namespace: &str| {
        let list = admin.get(&format!("/apis/apps/v1/namespaces/{namespace}/replicasets")).1;
        list["items"].as_array().map_or(0, Vec::len)
    };
    eventually("the other Deployment gets its ReplicaSet", WAIT, || sets("default") == 1);
    eventually("and so do the large ones", WAIT, || sets("crowded") == 8);
    let (_, metrics) = page(&admin, "/metrics");
    assert!(metrics.contains("coracle_task_panics_total{task=\"deployment-controller\"} 0\n"), "{metrics}");
}

#[test]
fn a_reader_cannot_break_a_watch_by_asking_for_an_endless_one() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    let path = format!("/api/v1/namespaces?watch=true&timeoutSeconds={}", i64::MAX);
    let mut watch = admin.watch(&path);
    // An error would be all there is.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!watch.over(), "a watch, not the answer of a panic");
    let (_, metrics) = page(&admin, "/metrics");
    assert!(!metrics.contains("coracle_task_panics_total{task=\"request\"}"), "{metrics}");
}

#[test]
fn health_pages_name_every_check_and_tell_strangers_no_reasons() {
    let server = Server::start();
    let (admin, nobody) = (Caller::admin(&server), Caller::nobody(&server));
    let (code, text) = page(&nobody, "/livez?verbose");
    assert_eq!((code, text.as_str()), (200, "[+]ping ok\n[+]etcd ok\n[+]tasks ok\nlivez check passed\n"));
    let (code, text) = page(&nobody, "/readyz?verbose");
    assert_eq!(code, 200);
    for line in ["[+]ping ok\n", "[+]etcd ok\n", "[+]informer-sync ok\n", "[+]shutdown ok\n", "[+]tasks ok\n"]
    {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(text.ends_with("readyz check passed\n"), "{text}");
    for path in ["/livez", "/readyz", "/healthz", "/readyz/ping", "/livez/etcd", "/livez/tasks"] {
        assert_eq!(page(&nobody, path), (200, "ok".to_owned()), "{path}");
    }
    assert_eq!(page(&nobody, "/readyz/nothing").0, 404);
    let (code, text) = page(&nobody, "/readyz?verbose&exclude=etcd&exclude=nothing");
    assert_eq!(code, 200);
    assert!(text.contains("[+]etcd excluded: ok\n"), "{text}");
    assert!(text.contains("warn: some health checks cannot be excluded: no matches for \"nothing\"\n"));
    let (_, metrics) = page(&admin, "/metrics");
    for task in ["scheduler", "store-feed", "deployment-controller", "informer pods", "certificate-renewal"] {
        let line = format!("coracle_task_panics_total{{task=\"{task}\"}} 0\n");
        assert!(metrics.contains(&line), "{line}");
    }
    assert!(
        metrics.contains("coracle_tasks_dead 0\n") && metrics.contains("coracle_quarantined_objects 0\n")
    );
}

/// The condition of a part of the control plane: its status, and what is wrong.
fn component(admin: &Caller, name: &str) -> (String, String) {
    let shown = admin.get(&format!("/api/v1/componentstatuses/{name}")).1;
    let text = |key: &str| shown["conditions"][0][key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("error"))
}

#[test]
fn component_statuses_are_healthy_once_the_parts_run() {
    let server = Server::start();
    let admin = Caller::admin(&server);
    for name in ["scheduler", "controller-manager", "etcd-0"] {
        eventually(name, WAIT, || component(&admin, name) == ("True".to_owned(), String::new()));
    }
    let server = Server::with(&["--api-only"]);
    assert_eq!(component(&Caller::admin(&server), "scheduler").0, "False", "nobody runs it");
}

#[test]
fn a_store_that_hangs_fails_health_and_does_not_hang_it() {
    let etcd = Etcd::start();
    let server = Server::with(&["--api-only", "--datastore", &format!("etcd://{}", etcd.address)]);
    let (admin, nobody) = (Caller::admin(&server), Caller::nobody(&server));
    assert_eq!(page(&nobody, "/livez").0, 200);
    etcd.pause();
    // curl would give up after a minute, without a code.
    let (code, text) = page(&nobody, "/livez");
    assert_eq!(code, 500, "{text}");
    assert!(text.contains("[-]etcd failed: reason withheld\n") && text.ends_with("livez check failed\n"));
    let (_, text) = page(&admin, "/livez");
    assert!(text.contains("[-]etcd failed: etcd did not answer within 1.8s\n"), "{text}");
    let hangs = ("False".to_owned(), "etcd did not answer within 1.8s".to_owned());
    assert_eq!(component(&admin, "etcd-0"), hangs);
    etcd.resume();
    eventually("it recovers", WAIT, || page(&nobody, "/livez").0 == 200);
}

#[test]
#[ignore = "run by in_namespaces"]
fn a_pod_cannot_stay_for_ever_by_numbers_that_no_clock_reaches() {
    let cluster = Cluster::start();
    let command = "command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1; done\"]";
    let pod = |name: &str, fields: &str, container: &str| {
        cluster.apply(&format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{fields}, \
             containers: [{{name: c, image: '{IMAGE}', {command}, {container}}}]}}}}"
        ));
    };
    let most = i64::MAX;
    pod("endless", &format!("terminationGracePeriodSeconds: {most}"), "env: []");
    let limits = "resources: {requests: {cpu: 1m, memory: 1Mi}, limits: {cpu: 9E, memory: 7Ei}}";
    pod("boundless", "terminationGracePeriodSeconds: 1", limits);
    cluster.wait_ready("endless");
    cluster.wait_ready("boundless");
    cluster.kubectl.run("delete pod endless boundless --wait=false");
    let there = || cluster.kubectl.run("get pods -o name");
    eventually("both are gone", WAIT, || there().is_empty());
    let (health, metrics) = (
        "get --raw /api/v1/nodes/node1/proxy/healthz?verbose",
        "get --raw /api/v1/nodes/node1/proxy/metrics",
    );
    assert_eq!(cluster.kubectl.run(health), "[+]ping ok\n[+]tasks ok\nhealthz check passed\n");
    let metrics = cluster.kubectl.run(metrics);
    for task in ["probes", "service proxy", "watch pods", "node status", "DNS at 10.96.0.10"] {
        let line = format!("coracle_task_panics_total{{task=\"{task}\"}} 0\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(!cluster.log().contains("panicked"), "{}", cluster.log());
}
