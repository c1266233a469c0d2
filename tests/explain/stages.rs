//! Every stage of docs/stages.md that a cluster can be brought to is in the timeline of what brings it about.

use crate::clients::{resolves, within};
use crate::world::{NODES, WAIT, World, causes, outline, spans, text, uid_of};
use crate::{admission, checks, images};
use coracle_tests::eventually;
use coracle_timeline::{SpanView, TraceView};
use coracle_trace::Stage;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub const NAMESPACE: &str = "stages";
const SPAN: &str = "00f067aa0ba902b7";
/// Between two questions.
const PAUSE: Duration = Duration::from_millis(500);

/// A request for which its client connects; what comes later than 20 ms after the handshake has another reason to.
const CONNECTED: &[&str] = &["accept", "tls"];
/// A Deployment whose request the client records, with an image that is pulled, an init container, a volume, hooks and a probe.
const CREATED: &[&str] = &[
    "request",
    "authn",
    "filters",
    "flow-queue",
    "authz",
    "body",
    "decode",
    "respond",
    "write",
    "prepare",
    "mutating",
    "mutating-webhook",
    "mutating-policy",
    "defaults",
    "validation",
    "validating",
    "validating-webhook",
    "validating-policy",
    "encode",
    "store",
    "store-queue",
    "store-commit",
    "store-sync",
    "publish",
    "read-back",
    "delivered",
    "queued",
    "reconcile",
    "scheduler-queue",
    "attempt",
    "filter",
    "score",
    "verdict",
    "bind",
    "pod-start",
    "seen",
    "admit",
    "volumes",
    "volume",
    "policies",
    "image",
    "image-queue",
    "image-resolve",
    "image-layer",
    "image-unpack",
    "image-commit",
    "sandbox",
    "sandbox-files",
    "cgroup",
    "namespaces",
    "network",
    "cni-plugin",
    "container",
    "container-config",
    "oci-bundle",
    "oci-start",
    "post-start",
    "init-run",
    "probe",
    "status-held",
    "status-report",
    "ready",
];
/// A pod with a claim, created by a client that records: plugins change and check pods, and the scheduler waits for the volume. Its
/// image is there, so that its container is created before the sandbox is ready.
const CLAIMED: &[&str] = &["mutating-plugin", "validating-plugin", "reserve", "volume-binding", "oci-create"];
/// A pod that needs the place of another.
const PREEMPTED: &[&str] = &["unschedulable", "preempt"];
/// The end of the Deployment.
const REMOVED: &[&str] = &[
    "terminate",
    "pre-stop",
    "stop",
    "sandbox-stop",
    "network-remove",
    "volumes-remove",
    "cgroup-remove",
    "directories-remove",
    "object-delete",
];
const SERVED: &[&str] = &["service-seen", "rules-programmed", "dns-visible", "dns-answered"];
/// Pods that are not well.
const TROUBLED: &[(&str, &[&str])] = &[
    ("gated", &["gated"]),
    ("crashes", &["exit", "crash-backoff"]),
    ("missing", &["image-backoff"]),
    ("late", &["evicted"]),
];

/// What is not shown here, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("handle", "only of requests that write nothing, which leave a timeline only if they are slow or fail"),
    ("aggregated", "needs an aggregated API server; shown by the suite api"),
    ("conversion-webhook", "needs a custom resource with two versions; shown by the suite api"),
    ("store-batch", "is shown as the parts of `store`"),
    ("cache-update", "not recorded by this version"),
    ("retry-backoff", "not recorded by this version"),
    ("requeued", "not recorded by this version"),
    ("restart", "not recorded by this version"),
    ("scheduler-backoff", "only of a pod that is tried again within a second, or could not be bound"),
    ("sync", "only if a pass takes longer than a millisecond"),
    ("thread-wait", "only if a thread is waited for longer than a millisecond"),
    ("status-wait", "only if a report waits longer than a millisecond for the one before it"),
    ("lost", "about the recording itself"),
    ("restarted", "about the recording itself; a note in the answer, see crashes.rs"),
    ("clock-step", "about the recording itself"),
    ("usual", "about the recording itself"),
    ("spans-taken", "about the recording itself"),
    ("other", "stages of newer versions"),
];

/// Whoever adds a stage says here how it comes about, or why it does not.
#[test]
fn every_stage_is_in_a_list() {
    let troubled = TROUBLED.iter().flat_map(|(_, stages)| stages.iter());
    let lists = [CONNECTED, CREATED, CLAIMED, PREEMPTED, REMOVED, SERVED].into_iter().flatten();
    let mut listed: Vec<&str> = lists.chain(troubled).copied().collect();
    listed.extend(LEFT_OUT.iter().map(|(stage, _)| *stage));
    let all: BTreeSet<&str> = Stage::ALL.iter().map(|stage| stage.key()).collect();
    assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), all);
    assert_eq!(listed.len(), all.len(), "each is in one list");
}

pub fn all(world: &World) {
    world.namespace(NAMESPACE);
    let image = images::serve(world);
    // Their back-offs take ten seconds; they are looked at in the end.
    troubled_pods(world);
    connected(world);
    created(world, &image);
    served(world);
    claimed(world);
    removed(world);
    preempted(world);
    for (pod, wanted) in TROUBLED {
        has_had(world, pod, wanted);
    }
    world.k.run(&format!("delete namespace {NAMESPACE} --wait=false"));
}

/// The answer to a question, once it has all of these stages.
fn with_stages(world: &World, question: &str, wanted: &[&str]) -> TraceView {
    let begun = Instant::now();
    loop {
        let view = world.answer(question);
        let missing = |view: &TraceView| -> Vec<&str> {
            wanted.iter().copied().filter(|stage| spans(view, stage).is_empty()).collect()
        };
        match view {
            Some(view) if missing(&view).is_empty() => return view,
            view if begun.elapsed() > WAIT => {
                let view = view.unwrap_or_else(|| panic!("{question}: no answer"));
                panic!("{question}: without {:?}\n{}", missing(&view), outline(&view));
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// A request as a client with a trace of its own.
fn send(world: &World, method: &str, trace: &str, path: &str, body: &Value) {
    let (header, body) = (format!("traceparent: 00-{trace}-{SPAN}-01"), body.to_string());
    let arguments = ["-X", method, "-H", &header, "-H", "Content-Type: application/json", "-d", &body];
    let (code, answer) = world.curl(&arguments, path);
    assert!(matches!(code, 200..300), "{method} {path}: {code} {answer}");
}

fn connected(world: &World) {
    let mut number = 0;
    eventually("a handshake is told", WAIT, || {
        number += 1;
        let trace = format!("{number:032x}");
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number}")}});
        send(world, "POST", &trace, &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
        let view = world.answer(&format!("trace={trace}"));
        view.is_some_and(|view| CONNECTED.iter().all(|stage| !spans(&view, stage).is_empty()))
    });
}

fn created(world: &World, image: &str) {
    world.k.run(&format!("create configmap settings -n {NAMESPACE} --from-literal=colour=blue"));
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "web"},
        "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Ingress"], "ingress": [{}]}});
    world.create(NAMESPACE, &policy.to_string());
    let hooks = admission::install(world);
    let trace = "5".repeat(32);
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    send(world, "POST", &trace, &path, &deployment(image));
    hooks.remove(world);
    let status =
        world.k.try_with(&format!("rollout status deployment web -n {NAMESPACE} --timeout=120s"), "");
    assert!(
        status.ok,
        "{}\n{}",
        status.out,
        world.k.run(&format!("describe pods -l app=web -n {NAMESPACE}"))
    );
    let question = format!("trace={trace}");
    with_stages(world, &question, CREATED);
    checks::one_tree(&world.ask(&question, |_| true));
}

fn deployment(image: &str) -> Value {
    let run = json!({"exec": {"command": ["/bin/true"]}});
    let mut probe = run.clone();
    probe["periodSeconds"] = json!(1);
    let container = json!({"name": "c", "image": image, "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/httpd", "-f", "-p", "8080", "-h", "/tmp"], "readinessProbe": probe,
        "lifecycle": {"postStart": run, "preStop": run},
        "volumeMounts": [{"name": "settings", "mountPath": "/settings"}]});
    let first =
        json!({"name": "first", "image": image, "imagePullPolicy": "IfNotPresent", "command": ["/bin/true"]});
    let pod = json!({"terminationGracePeriodSeconds": 2, "initContainers": [first], "containers": [container],
        "volumes": [{"name": "settings", "configMap": {"name": "settings"}}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
}

fn served(world: &World) {
    world.k.run(&format!("expose deployment web -n {NAMESPACE} --port=80 --target-port=8080"));
    let server: SocketAddr = "10.96.0.10:53".parse().unwrap();
    let name = format!("web.{NAMESPACE}.svc.cluster.local");
    for node in NODES {
        let holder = world.cluster.node(node)["holder"]["pid"].as_u64().unwrap() as u32;
        within(holder, || eventually("the name resolves", WAIT, || resolves(server, &name)));
    }
    let question = format!("resource=services&namespace={NAMESPACE}&name=web");
    with_stages(world, &question, SERVED);
    let view = world.ask(&question, |_| true);
    // Which server a client asks is not ours to choose.
    for stage in SERVED.iter().filter(|stage| **stage != "dns-answered") {
        let nodes: BTreeSet<&str> = spans(&view, stage).into_iter().map(|span| span.node.as_str()).collect();
        assert_eq!(nodes, BTreeSet::from(NODES), "{stage} is on all nodes\n{}", outline(&view));
    }
}

/// A pod that sleeps, with more in its spec.
fn pod(name: &str, more: Value) -> Value {
    let container = json!({"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sleep", "3600"]});
    let mut spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn claimed(world: &World) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    world.create(NAMESPACE, &claim.to_string());
    let volumes = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    let trace = "6".repeat(32);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    send(world, "POST", &trace, &path, &pod("claimed", volumes));
    world.k.run(&format!("wait --for=condition=Ready pod/claimed -n {NAMESPACE} --timeout=120s"));
    with_stages(world, &format!("trace={trace}"), CLAIMED);
}

/// Two pods of which each needs more than half of a node.
fn preempted(world: &World) {
    let cpu = text(&world.json("get node node-1")["status"]["allocatable"]["cpu"]);
    let millis = match cpu.strip_suffix('m') {
        Some(millis) => millis.parse::<u64>().unwrap(),
        None => cpu.parse::<u64>().unwrap() * 1000,
    };
    let large = |name: &str, mut more: Value| {
        more["nodeSelector"] = json!({"kubernetes.io/hostname": "node-1"});
        let mut pod = pod(name, more);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{}m", millis * 6 / 10));
        pod.to_string()
    };
    world.k.run("create priorityclass stages-high --value=1000");
    world.create(NAMESPACE, &large("low", json!({})));
    world.k.run(&format!("wait --for=condition=Ready pod/low -n {NAMESPACE} --timeout=120s"));
    let uid = |name: &str| text(&world.json(&format!("get pod {name} -n {NAMESPACE}"))["metadata"]["uid"]);
    let low = uid("low");
    world.create(NAMESPACE, &large("high", json!({"priorityClassName": "stages-high"})));
    world.k.run(&format!("wait --for=condition=Ready pod/high -n {NAMESPACE} --timeout=120s"));
    let high = uid("high");
    let view = with_stages(world, &format!("resource=pods&namespace={NAMESPACE}&name=high"), PREEMPTED);
    // The victim goes because of the attempt to place the other.
    let delete = spans(&view, "write")
        .into_iter()
        .find(|span| span.name == "delete" && uid_of(&view, span) == low)
        .unwrap_or_else(|| panic!("nobody deletes the victim\n{}", outline(&view)));
    let is_attempt = |span: &&SpanView| span.stage == "attempt" && uid_of(&view, span) == high;
    assert!(causes(&view, delete).iter().any(is_attempt), "{}", outline(&view));
    world.k.run("delete priorityclass stages-high");
}

fn removed(world: &World) {
    let trace = "d".repeat(32);
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/web");
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    send(world, "DELETE", &trace, &path, &options);
    let question = format!("trace={trace}");
    with_stages(world, &question, REMOVED);
    checks::one_tree(&world.ask(&question, |_| true));
}

fn troubled_pods(world: &World) {
    world.create(
        NAMESPACE,
        &pod("gated", json!({"schedulingGates": [{"name": "example.com/wait"}]})).to_string(),
    );
    let mut crashes = pod("crashes", json!({}));
    crashes["spec"]["containers"][0]["command"] = json!(["/bin/false"]);
    world.create(NAMESPACE, &crashes.to_string());
    let mut missing = pod("missing", json!({}));
    missing["spec"]["containers"][0]["image"] = json!("127.0.0.1:5078/none:1");
    world.create(NAMESPACE, &missing.to_string());
    world.create(NAMESPACE, &pod("late", json!({"activeDeadlineSeconds": 8})).to_string());
    let patch = "[{\"op\":\"remove\",\"path\":\"/spec/schedulingGates\"}]";
    world.k.run(&format!("patch pod gated -n {NAMESPACE} --type=json -p '{patch}'"));
}

/// Waits until these stages are in the last operations on a pod.
fn has_had(world: &World, name: &str, wanted: &[&str]) {
    let question = format!("resource=pods&namespace={NAMESPACE}&name={name}&last=20");
    let mut left: Vec<&str> = wanted.to_vec();
    let begun = Instant::now();
    while !left.is_empty() {
        let answer = world.k.try_with(&format!("get --raw /coracle/v1/trace?{question}"), "").out;
        let list: Value = serde_json::from_str(&answer).unwrap_or_default();
        let items = list["items"].as_array().into_iter().flatten();
        let told: BTreeSet<String> = items
            .flat_map(|item| item["spans"].as_array().into_iter().flatten())
            .map(|span| text(&span["stage"]))
            .collect();
        left.retain(|stage| !told.contains(*stage));
        assert!(begun.elapsed() < WAIT, "{name}: without {left:?}, only {told:?}");
        std::thread::sleep(PAUSE);
    }
}
