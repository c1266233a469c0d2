//! Attacks, each by the role that would try it: a pod, a restricted pod, a read-only user, a namespace editor, a node, a local
//! user of a node, an image author, a failing disk. Every test performs the attack and passes when it fails.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

// Pods and local users against a node's files.
mod volumes;
// Namespace editors against everybody who reads objects.
mod shapes;
// Users against the API's rules.
mod authorization;
// Readers against the server's memory.
mod unread;
// Users against webhooks that guard connections.
mod guards;
// Nodes against the cluster.
mod nodes;
// Image authors against a node.
mod images;
// Pods against images that others pulled.
mod private_images;
// Namespace editors and administrators of custom resources against the server's processors.
mod expressions;
// Pods whose confinement a node cannot give.
mod confinement;
// Disks against the store.
mod store;
// One object against a task that serves all.
mod supervision;

use coracle_tests::namespaces;

/// Runs the tests that need root again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
#[test]
fn in_namespaces() {
    if namespaces::is_inside() {
        return;
    }
    let only = std::env::var("CORACLE_ONLY").ok();
    let args: Vec<&str> = ["--ignored", "--test-threads=1"].into_iter().chain(only.as_deref()).collect();
    let status = namespaces::run_again(&args, &[]);
    assert!(status.success(), "the suite inside failed: {status}");
}
