//! Processes that are killed without notice: what was acknowledged is in the timeline, once.

use crate::checks;
use crate::scenarios::all_ready;
use crate::world::{WAIT, World, begin, deployment, outline, spans, text, unix_now};
use coracle_tests::eventually;
use coracle_timeline::TraceView;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::time::Duration;

/// While pods are being started.
const SOON: Duration = Duration::from_millis(150);
/// How long the server is away.
const AWAY: Duration = Duration::from_secs(15);

fn kill_now(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// Waits for the Deployment as somebody who tries again does.
fn rolled_out(world: &World, namespace: &str) {
    eventually("it is rolled out", WAIT, || {
        world.k.try_with(&format!("rollout status deployment web -n {namespace} --timeout=20s"), "").ok
    });
}

pub fn server(world: &World) {
    world.namespace("server-killed");
    world.create("server-killed", &deployment(8, ""));
    std::thread::sleep(SOON);
    let killed = world.server_pid();
    kill_now(killed);
    rolled_out(world, "server-killed");
    let pods = world.pods("server-killed");
    assert!(pods.len() == 8 && world.server_pid() != killed);
    let view = world.trace("deployments.apps", "server-killed", "web", |view| all_ready(view, &pods));
    checks::one_tree(&view);
    checks::pods_started(&view, pods.keys());
    checks::starts_follow_bindings(&view, pods.keys());
    checks::told_once(&view, pods.keys());
    assert!(view.notes.iter().any(|note| note.contains("restart")), "{}", outline(&view));
}

/// Before the first report of a pod, about then, and after it.
pub fn agent(world: &World) {
    let mut unfinished = 0;
    // The question takes some of the time, too.
    for (round, soon) in [50, 100, 150, 200].into_iter().enumerate() {
        let namespace = format!("agent-killed-{round}");
        world.namespace(&namespace);
        world.create(&namespace, &deployment(6, ""));
        std::thread::sleep(Duration::from_millis(soon));
        let killed = world.cluster.agent_pid("node-1");
        let path = format!("/coracle/v1/trace?resource=deployments.apps&namespace={namespace}&name=web");
        let (code, before) = world.curl(&[], &path);
        assert_eq!(code, 200, "{before}");
        kill_now(killed as i32);
        rolled_out(world, &namespace);
        let pods = world.pods(&namespace);
        assert!(pods.values().any(|node| node == "node-1"), "{pods:?}");
        let view = world.trace("deployments.apps", &namespace, "web", |view| all_ready(view, &pods));
        checks::one_tree(&view);
        checks::pods_started(&view, pods.keys());
        checks::starts_follow_bindings(&view, pods.keys());
        checks::told_once(&view, pods.keys());
        checks::kept(&serde_json::from_value(before).unwrap(), &view);
        unfinished +=
            view.spans.iter().filter(|span| span.flags.iter().any(|flag| flag == "unfinished")).count();
        eventually("its supervisor started it again", WAIT, || world.cluster.agent_pid("node-1") != killed);
    }
    assert!(unfinished > 0, "the agent was killed while it did something");
}

/// What a node does while the server is away is delivered later, with the time at which it happened.
pub fn server_away(world: &World) {
    world.namespace("away");
    world.deploy("away", 1);
    let pod = world.json("get pods -n away")["items"][0].clone();
    let (name, uid, node) =
        (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]), text(&pod["spec"]["nodeName"]));
    world.cluster.kill_server();
    std::thread::sleep(Duration::from_secs(2));
    let at = unix_now();
    kill_now(container(&uid));
    std::thread::sleep(AWAY);
    world.cluster.up(3);
    let path = format!("get --raw /coracle/v1/trace?resource=pods&namespace=away&name={name}&last=10");
    let mut found = None;
    eventually("the exit is delivered", WAIT, || {
        let answer = world.k.try_with(&path, "").out;
        let list: Value = serde_json::from_str(&answer).unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let mut views = items.into_iter().filter_map(|item| serde_json::from_value::<TraceView>(item).ok());
        found = views.find(|view| !spans(view, "exit").is_empty());
        found.is_some()
    });
    let view = found.unwrap();
    let exit = spans(&view, "exit")[0];
    assert_eq!(exit.node, node, "{}", outline(&view));
    let exited = begin(&view) + exit.start;
    assert!(exited.abs_diff(at) < 1_000_000_000, "killed at {at}, but {exited}\n{}", outline(&view));
    world.k.run("wait --for=condition=Ready node --all --timeout=120s");
}

/// The process of the container in a pod.
fn container(uid: &str) -> i32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let is_container = read("cgroup")?.contains(uid) && read("cmdline")?.contains("httpd");
        is_container.then_some(pid)
    });
    processes.min().expect("the container runs")
}
