//! Pods through kubectl, on a server and an agent with the built-in engine, as root, in namespaces of their own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

// From `kubectl run` to nothing left.
mod life;
// Init containers, sidecars, restarts, hooks, probes, resize.
mod containers;
// Volumes and environment, seen from inside.
mod volumes;
// `imagePullSecrets` against a registry with a password.
mod pull_secrets;
// Limits of a pod's traffic.
mod bandwidth;
// Bad input: a reason on the pod.
mod refusals;
// What the node does for its pods: users, cpus, disk limits, claims, shutdown.
mod node;
// Killed agents, servers that are away.
mod survival;
// What workloads notice of a kubelet beyond conformance.
mod kubelet;
// Probe errors, local storage, memory volumes, claims of others.
mod limits;

// A server and a node.
use coracle_tests::{namespaces, pods as cluster};

/// What is run again with containerd in the place of the built-in engine.
const THROUGH_CONTAINERD: [&str; 4] =
    ["life::run_answers", "containers::", "volumes::", "survival::pods_go_on"];

/// Runs every test of this suite again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
#[test]
fn in_namespaces() {
    let only = std::env::var("CORACLE_ONLY").ok();
    inside("coracle", &only.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The same pods with Debian's containerd behind `--container-runtime-endpoint`.
#[test]
fn through_containerd() {
    inside("containerd", &THROUGH_CONTAINERD);
}

fn inside(runtime: &str, only: &[&str]) {
    if namespaces::is_inside() {
        return;
    }
    let args: Vec<&str> = ["--ignored", "--test-threads=1"].iter().chain(only).copied().collect();
    let status = namespaces::run_again(&args, &[("CORACLE_RUNTIME", runtime.as_ref())]);
    assert!(status.success(), "the suite inside failed with {runtime}: {status}");
}
