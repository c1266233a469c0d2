//! Pods that have to go, and what replaces them.

use crate::scenarios::{all_ready, root_name};
use crate::world::{WAIT, World, deployment, outline, spans, text, uid_of};
use crate::{audit, checks};
use coracle_tests::eventually;
use coracle_timeline::TraceView;
use std::time::Duration;

/// Pods leave a node that is silent after two seconds instead of five minutes.
const TOLERATIONS: &str = "tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2}, \
     {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 2}]";
/// Until a node counts as silent, and its pods are somewhere else.
const SILENT: Duration = Duration::from_secs(240);

fn has_write(view: &TraceView, verb: &str, uid: &str) -> bool {
    spans(view, "write").iter().any(|span| span.name == verb && uid_of(view, span) == uid)
}

pub fn evicted(world: &World) {
    world.namespace("evict");
    world.deploy("evict", 2);
    let before = world.pods("evict");
    let victim = world.json("get pods -n evict")["items"][0]["metadata"].clone();
    let (name, uid) = (text(&victim["name"]), text(&victim["uid"]));
    world.k.run_with(
        &format!("create --raw /api/v1/namespaces/evict/pods/{name}/eviction -f -"),
        &format!("{{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {{\"name\": \"{name}\", \"namespace\": \"evict\"}}}}"),
    );
    let mut new = world.pods("evict");
    eventually("another pod is ready", WAIT, || {
        new = world.pods("evict");
        new.retain(|uid, _| !before.contains_key(uid));
        new.len() == 1 && world.k.try_with("rollout status deployment web -n evict --timeout=1s", "").ok
    });
    let is_over = |view: &TraceView| {
        let ended =
            spans(view, "terminate").into_iter().any(|span| span.end.is_some() && uid_of(view, span) == uid);
        ended && all_ready(view, &new)
    };
    let other = world.json("get pods -n evict");
    let other = other["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pod| new.contains_key(&text(&pod["metadata"]["uid"])));
    let other = text(&other.unwrap()["metadata"]["name"]);
    // Asked for the pod that is new: the eviction of the old one caused it.
    let of_new = world.trace("pods", "evict", &other, |view| all_ready(view, &new));
    assert_eq!(root_name(&of_new), format!("POST /api/v1/namespaces/evict/pods/{name}/eviction"));
    let view = world.ask(&format!("trace={}", of_new.trace), is_over);
    checks::complete(&view);
    checks::pods_started(&view, new.keys());
    assert!(has_write(&view, "delete", &uid), "{}", outline(&view));
    audit::check(world, &view, "evict", |_| false);
}

pub fn node_killed(world: &World) {
    world.namespace("killed");
    world.create("killed", &deployment(6, TOLERATIONS));
    world.rolled_out("killed");
    let before = world.pods("killed");
    let lost: Vec<&String> =
        before.iter().filter(|(_, node)| *node == "node-3").map(|(uid, _)| uid).collect();
    assert!(!lost.is_empty(), "no pod on the node: {before:?}");
    world.cluster.kill_agent("node-3");
    let mut new = before.clone();
    eventually("all pods are on other nodes", SILENT, || {
        let pods = world.pods("killed");
        new = pods
            .iter()
            .filter(|(uid, _)| !before.contains_key(*uid))
            .map(|(a, b)| (a.clone(), b.clone()))
            .collect();
        pods.len() == 6 && pods.values().all(|node| node != "node-3") && new.len() == lost.len()
    });
    world.rolled_out("killed");
    let pods = world.json("get pods -n killed");
    let one =
        pods["items"].as_array().unwrap().iter().find(|pod| new.contains_key(&text(&pod["metadata"]["uid"])));
    let one = text(&one.unwrap()["metadata"]["name"]);
    let view = world.trace("pods", "killed", &one, |view| !spans(view, "ready").is_empty());
    checks::one_tree(&view);
    let root = view.spans.iter().find(|span| span.parent.is_none()).unwrap();
    assert_eq!(root.stage, "reconcile", "nobody asked for it\n{}", outline(&view));
    assert!(root.name.contains("node"), "the node was silent\n{}", outline(&view));
    // All of it is one tree: the node's taints, the pods that left, those that came.
    let whole = world.ask(&format!("trace={}", view.trace), |view| all_ready(view, &new));
    checks::complete_with_waits(&whole);
    checks::pods_started(&whole, new.keys());
    assert!(lost.iter().all(|uid| has_write(&whole, "delete", uid)), "{}", outline(&whole));
    world.k.run("delete namespace killed --wait=false");
    world.cluster.up(3);
    world.k.run("wait --for=condition=Ready node/node-3 --timeout=120s");
}
