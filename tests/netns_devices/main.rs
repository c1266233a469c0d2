//! Devices of a device plugin, seen by pods, on a server and an agent, as root, in namespaces of their own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

mod setting;
mod pods;
mod restarts;
mod claims;
mod refusals;
mod faults;
mod many;

use coracle_tests::namespaces;

/// Runs every test of this suite again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
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
