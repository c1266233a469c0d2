//! Troubles that get in the way of others, one after the other: nodes that are closed, stopped, without network, full.

use crate::case::{Case, busybox, idle, pod};
use crate::run::Run;
use crate::third;
use coracle_proto::time::parse_time;
use coracle_tests::cluster::Cluster;
use serde_json::Value;
use std::time::{Duration, Instant, SystemTime};

const LONG: Duration = Duration::from_secs(90);

fn node(trouble: &'static str) -> Case {
    Case::new(trouble, "node/node-3", "Node/node-3", "")
}

pub fn all(run: &Run, cluster: &Cluster) {
    run.part("closed nodes", || cordoned(run));
    run.part("node without network", || without_network(run, cluster));
    run.part("preempted pod", || preempted(run));
    run.part("stopped agent", || stopped(run, cluster));
    run.part("full disk", || full(run, cluster));
    run.part("wrong clock", || wrong_clock(run));
}

/// All nodes are closed, and a new pod finds none.
fn cordoned(run: &Run) {
    let nodes = ["node-1", "node-2", "node-3"];
    for node in nodes {
        run.kubectl.run(&format!("cordon {node}"));
    }
    let closed = Case::new("node-cordoned", "node/node-1", "Node/node-1", "");
    run.one(
        &closed
            .because("the node is cordoned: it gets no new pods")
            .says("field spec.unschedulable", "kubectl uncordon node-1")
            .undated(),
        LONG,
    );
    let waiting = Case::pod("nodes-cordoned", &idle())
        .because("none of the 3 nodes can run the pod (3 cordoned")
        .says("is cordoned", "kubectl uncordon");
    run.kubectl.run(&format!("create namespace {}", waiting.namespace()));
    let line = format!("-n {} apply --validate=false -f -", waiting.namespace());
    coracle_tests::eventually("a pod is accepted", LONG, || {
        run.kubectl.try_with(&line, &pod("p", &idle())).ok
    });
    run.one(&waiting, LONG);
    for node in nodes {
        run.kubectl.run(&format!("uncordon {node}"));
    }
    nothing(run, &waiting);
    nothing(run, &node("node-cordoned"));
}

fn without_network(run: &Run, cluster: &Cluster) {
    third::set_network(cluster, true);
    run.one(
        &node("node-not-ready")
            .because("the node reports that it is not ready: ")
            .says("network not ready", "correct what the condition names"),
        LONG,
    );
    third::set_network(cluster, false);
    nothing(run, &node("node-not-ready"));
}

/// Two pods of which only one fits on a node: the critical one ends the other.
fn preempted(run: &Run) {
    let cpu = run.kubectl.run("get node node-2 -o jsonpath={.status.allocatable.cpu}");
    let milli = match cpu.trim().strip_suffix('m') {
        Some(milli) => milli.parse::<u64>().expect("a quantity"),
        None => cpu.trim().parse::<u64>().expect("a quantity") * 1000,
    };
    let most = busybox(&format!(
        "command: [sleep, '100000'], resources: {{requests: {{cpu: {}m}}}}",
        milli * 6 / 10
    ));
    let case = Case::pod("preempted", "").says("condition DisruptionTarget", "spec.priorityClassName");
    let namespace = case.namespace();
    run.kubectl.run(&format!("create namespace {namespace}"));
    let line = format!("-n {namespace} apply --validate=false -f -");
    let first = pod("p", &format!("nodeName: node-2, {most}"));
    coracle_tests::eventually("a pod is accepted", LONG, || run.kubectl.try_with(&line, &first).ok);
    run.kubectl.run(&format!("-n {namespace} wait --for=condition=Ready pod/p --timeout=90s"));
    let critical = format!("nodeName: node-2, priorityClassName: system-node-critical, {most}");
    run.kubectl.run_with("-n kube-system apply --validate=false -f -", &pod("w-critical", &critical));
    run.one(&case.because("was preempted by one with a higher priority"), LONG);
    run.kubectl.run("-n kube-system delete pod w-critical --now");
}

/// A pod that nobody starts yet, while its node still counts as ready: nothing says why, and no cause is made up.
fn without_cause(run: &Run) {
    let begun = Instant::now();
    let spec = format!("nodeName: {}, {}", third::NAME, idle());
    run.kubectl.run_with("-n default apply --validate=false -f -", &pod("w-waits", &spec));
    let answer = run.why.run(&["pod/w-waits", "-n", "default"]);
    let said = ["pod/w-waits: no root cause found", "looked at: ", "events of pod/w-waits"];
    let fine = answer.code == 0 && said.iter().all(|part| answer.out.contains(part));
    run.line("no cause", begun, &format!("{}: {}{}", answer.code, answer.out, answer.err), !fine);
    run.kubectl.run("-n default delete pod w-waits --force --grace-period=0");
}

/// The agent of a node does not answer: a pod that is deleted there cannot end, and after a while nobody knows of the node.
fn stopped(run: &Run, cluster: &Cluster) {
    let namespace = "w-insufficient-pods";
    let line = format!(
        "-n {namespace} get pods --field-selector spec.nodeName=node-3,status.phase=Running -o jsonpath={{.items[0].metadata.name}}"
    );
    let name = run.kubectl.run(&line);
    third::set_stopped(cluster, true);
    run.kubectl.run(&format!("-n {namespace} delete pod {name} --wait=false"));
    without_cause(run);
    let mut case = Case::new("termination-stuck", &format!("pod/{name}"), &format!("Pod/{name}"), "");
    case.name = "insufficient-pods".to_owned();
    let stuck = case.clone().because("has not reported");
    run.one(&stuck.says("containers that still run", "log of the kubelet or agent"), LONG);
    run.one(
        &node("node-unreachable")
            .because("the node does not report: its kubelet or agent does not run")
            .says("lease renewed last", "start the kubelet or agent"),
        LONG,
    );
    case.trouble = "termination-node-gone";
    let gone = case.because("node-3, which is not ready");
    run.one(&gone.says("field spec.nodeName: node-3", "--force").also(&["node-unreachable"]), LONG);
    third::set_stopped(cluster, false);
    nothing(run, &node("node-unreachable"));
}

fn full(run: &Run, cluster: &Cluster) {
    third::fill(cluster);
    run.one(
        &node("node-disk-pressure")
            .because("the node is short of disk space or inodes")
            .says("condition DiskPressure", "free disk space"),
        LONG,
    );
}

/// The clock of the machine where the command runs is wrong.
fn wrong_clock(run: &Run) {
    let begun = Instant::now();
    let asked = run.why.command(&["-o", "json"]);
    let mut command = std::process::Command::new("faketime");
    // Timers go on as they are.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command.args(["-f", "+300s"]).arg(asked.get_program()).args(asked.get_args());
    let answer = crate::ask::Answer::of(&mut command);
    let findings = answer.findings();
    let found = findings.iter().find(|f| f["trouble"] == "clock-skew" && f["object"]["kind"] == "Server");
    let text = found.map_or_else(|| answer.summary(), ToString::to_string);
    run.line("clock-skew (this machine)", begun, &text, !found.is_some_and(names_wrong_clock));
}

/// Whether a finding says that this machine is about 300 s ahead of the server, by its own time, and what helps.
fn names_wrong_clock(finding: &Value) -> bool {
    let cause = finding["cause"].as_str().unwrap_or_default();
    let seconds = cause
        .strip_prefix("the clock of the API server is ")
        .and_then(|rest| rest.strip_suffix(" s behind that of this machine"))
        .and_then(|seconds| seconds.parse::<u64>().ok());
    let facts = finding["evidence"].as_array().map(Vec::as_slice).unwrap_or_default();
    let time = facts.iter().find(|fact| fact["what"] == "time of this machine");
    let time = time.and_then(|fact| parse_time(fact["text"].as_str()?)).map(SystemTime::from);
    let remedy = finding["remedy"].as_str().unwrap_or_default();
    // The command takes some seconds on a machine that does other things.
    seconds.is_some_and(|seconds| (290..=302).contains(&seconds))
        && time.is_some_and(|time| time > SystemTime::now() + Duration::from_secs(240))
        && remedy.contains("synchronize both clocks")
}

/// Asks until nothing is named any more.
fn nothing(run: &Run, case: &Case) {
    let begun = Instant::now();
    let mut answer = run.why.about(case);
    while answer.code != 0 && begun.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(500));
        answer = run.why.about(case);
    }
    let what = format!("{} is over", case.trouble);
    run.line(&what, begun, &answer.summary(), answer.code != 0);
}
