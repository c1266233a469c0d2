//! Traces of clients by W3C Trace Context, and their export.

use crate::checks;
use crate::clients::within;
use crate::receiver::{Receiver, hex, text as attribute};
use crate::scenarios::all_ready;
use crate::world::{RECEIVER, WAIT, World, outline};
use coracle_proto::otlp::trace::v1::Span;
use coracle_tests::eventually;
use coracle_tests::python::python;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// What a client begins goes on in server and agents, and an OTLP receiver gets it as one tree below the client's span.
pub fn exported(world: &World) {
    world.namespace("contexts");
    let receiver = within(world.cluster.hub(), || Receiver::start_at(RECEIVER, 0));
    // The server has found nobody there so far, and tries again after a while.
    let first = "1".repeat(32);
    eventually("the receiver gets spans", WAIT, || {
        let header = format!("traceparent: 00-{first}-{SPAN}-01");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "first-"}});
        let arguments =
            ["-X", "POST", "-H", &header, "-H", "Content-Type: application/json", "-d", &map.to_string()];
        let (code, answer) = world.curl(&arguments, "/api/v1/namespaces/contexts/configmaps");
        assert_eq!(code, 201, "{answer}");
        std::thread::sleep(Duration::from_secs(1));
        !receiver.of_trace(&first).is_empty()
    });
    for client in [with_curl, with_python, with_kubectl] {
        client(world, &receiver);
    }
}

/// A Deployment of two pods.
fn deployment() -> String {
    let pod = json!({"terminationGracePeriodSeconds": 1, "containers": [
        {"name": "c", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sleep", "3600"]}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
    .to_string()
}

fn with_curl(world: &World, receiver: &Receiver) {
    let header = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let (code, answer) = world.curl(
        &["-X", "POST", "-H", &header, "-H", "Content-Type: application/json", "-d", &deployment()],
        "/apis/apps/v1/namespaces/contexts/deployments",
    );
    assert_eq!(code, 201, "{answer}");
    assert!(answer["metadata"]["annotations"].is_null(), "nothing is added to objects: {answer}");
    hangs_below(world, receiver, "contexts", TRACE);
}

/// A program of `traced.py`, with pipes to it.
fn traced(world: &World, arguments: &[&str]) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/explain/traced.py");
    let kubeconfig = world.cluster.data_dir().join("admin.kubeconfig");
    let (action, rest) = arguments.split_first().unwrap();
    let mut command = Command::new(python());
    command.args([script, action]).arg(kubeconfig).args(rest);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn with_python(world: &World, receiver: &Receiver) {
    let (namespace, trace) = ("contexts-python", "2".repeat(32));
    world.namespace(namespace);
    let mut client = traced(world, &["create", namespace, &format!("00-{trace}-{SPAN}-01")]);
    client.stdin.take().unwrap().write_all(deployment().as_bytes()).unwrap();
    assert!(client.wait().unwrap().success());
    hangs_below(world, receiver, namespace, &trace);
}

/// kubectl sends no context: a proxy adds it.
fn with_kubectl(world: &World, receiver: &Receiver) {
    let (namespace, trace) = ("contexts-kubectl", "3".repeat(32));
    world.namespace(namespace);
    let mut proxy = traced(world, &["proxy", &format!("00-{trace}-{SPAN}-01")]);
    let mut url = String::new();
    BufReader::new(proxy.stdout.take().unwrap()).read_line(&mut url).unwrap();
    let line = format!("create --server={} --validate=false -n {namespace} -f -", url.trim());
    world.k.run_with(&line, &deployment());
    drop(proxy.stdin.take());
    assert!(proxy.wait().unwrap().success());
    hangs_below(world, receiver, namespace, &trace);
}

/// The Deployment `web` and all that followed from it is one tree below the client's span, in the cluster and in the receiver.
fn hangs_below(world: &World, receiver: &Receiver, namespace: &str, trace: &str) {
    world.rolled_out(namespace);
    let pods = world.pods(namespace);
    let view = world.ask(&format!("trace={trace}"), |view| all_ready(view, &pods));
    checks::complete(&view);
    checks::pods_started(&view, pods.keys());
    assert_eq!(
        (view.trace.as_str(), view.remote_parent.as_deref()),
        (trace, Some(SPAN)),
        "{}",
        outline(&view)
    );
    let mut spans;
    // A span is exported when it ends: those within it come before it.
    let begun = Instant::now();
    loop {
        spans = receiver.of_trace(trace);
        let starts =
            spans.iter().filter(|(service, span)| service == "coracle-agent" && span.name == "pod-start");
        let (starts, orphans) = (starts.count(), orphans(&spans));
        if starts == pods.len() && orphans.is_empty() {
            break;
        }
        assert!(
            begun.elapsed() < WAIT,
            "{starts} starts of {} pods are exported, without parents {orphans:?}",
            pods.len()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let services: BTreeSet<&str> = spans.iter().map(|(service, _)| service.as_str()).collect();
    assert_eq!(services.into_iter().collect::<Vec<_>>(), ["coracle-agent", "coracle-server"]);
    let root = spans.iter().find(|(_, span)| span.name == "POST deployments").expect("the request");
    assert_eq!(hex(&root.1.parent_span_id), SPAN);
    let ids: BTreeSet<String> = spans.iter().map(|(_, span)| hex(&span.span_id)).collect();
    assert_eq!(ids.len(), spans.len(), "no span is exported twice");
    assert!(spans.iter().all(|(_, span)| span.end_time_unix_nano >= span.start_time_unix_nano));
    // Others find what a node did by the uid of the pod.
    let starts = spans.iter().filter(|(_, span)| span.name == "pod-start");
    let named: BTreeSet<String> =
        starts.filter_map(|(_, span)| attribute(&span.attributes, "k8s.pod.uid")).collect();
    assert_eq!(named, pods.keys().cloned().collect::<BTreeSet<_>>());
}

/// The names of spans whose parent is neither there nor the client's.
fn orphans(spans: &[(String, Span)]) -> Vec<String> {
    let ids: BTreeSet<String> = spans.iter().map(|(_, span)| hex(&span.span_id)).collect();
    let is_orphan = |span: &Span| {
        let parent = hex(&span.parent_span_id);
        parent != SPAN && !ids.contains(&parent)
    };
    spans.iter().filter(|(_, span)| is_orphan(span)).map(|(_, span)| span.name.clone()).collect()
}

/// Contexts that are none are as if there were none.
pub fn malformed(world: &World) {
    world.namespace("malformed");
    let long = "a".repeat(4096);
    let other = "1".repeat(32);
    let contexts = [
        String::new(),
        "00".into(),
        format!("00-{other}-{SPAN}"),
        format!("00-{}-{SPAN}-01", "0".repeat(32)),
        format!("00-{other}-{}-01", "0".repeat(16)),
        format!("ff-{other}-{SPAN}-01"),
        format!("00-{}-{SPAN}-01", "A".repeat(32)),
        format!("00-{other}-{SPAN}-01-more"),
        format!("00-{other}-{SPAN}-0g"),
        long,
    ];
    for (number, context) in contexts.iter().enumerate() {
        let name = format!("map-{number}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let header = format!("traceparent: {context}");
        let (code, answer) = world.curl(
            &["-X", "POST", "-H", &header, "-H", "Content-Type: application/json", "-d", &map.to_string()],
            "/api/v1/namespaces/malformed/configmaps",
        );
        assert_eq!(code, 201, "{context}: {answer}");
        let view = world.trace("configmaps", "malformed", &name, |_| true);
        checks::one_tree(&view);
        assert!(view.remote_parent.is_none() && view.trace != other, "{context}\n{}", outline(&view));
    }
}
