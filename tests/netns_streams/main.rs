//! Everything a person does to a running pod, with the oldest and the newest kubectl, kube-rs and the Python client, on one
//! cluster, as root, in namespaces of its own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

mod tools;
mod logs;
mod commands;
mod ports;
mod debug;
mod clients;
mod rough;
mod usage;
mod metrics;
mod events;

use std::panic::{AssertUnwindSafe, catch_unwind};

use coracle_tests::{namespaces, pods as cluster};
use tools::Stage;

/// Runs the suite again inside fresh namespaces. `CORACLE_ONLY` names the parts to run.
#[test]
fn in_namespaces() {
    if namespaces::is_inside() {
        return;
    }
    // Inside there is no way to the package index.
    let python = clients::python();
    let args = ["--ignored", "--test-threads=1", "--nocapture"];
    let status = namespaces::run_again(&args, &[("CORACLE_PYTHON", python.as_ref())]);
    assert!(status.success(), "the suite inside failed: {status}");
}

type Part = (&'static str, fn(&mut Stage));

const PARTS: &[Part] = &[
    ("logs::options", logs::options),
    ("logs::previous_and_all_containers", logs::previous_and_all_containers),
    ("logs::follow", logs::follow),
    ("logs::rotation", logs::rotation),
    ("logs::refusals", logs::refusals),
    ("commands::exec", commands::exec),
    ("commands::terminal", commands::terminal),
    ("commands::refusals", commands::refusals),
    ("commands::attach_and_run", commands::attach_and_run),
    ("commands::copy", commands::copy),
    ("commands::large_streams", commands::large_streams),
    ("ports::forward", ports::forward),
    ("ports::many_connections", ports::many_connections),
    ("ports::nobody_listens", ports::nobody_listens),
    ("ports::proxy", ports::proxy),
    ("debug::ephemeral", debug::ephemeral),
    ("debug::copy_and_node", debug::copy_and_node),
    ("clients::kube_rs", clients::kube_rs),
    ("clients::hundred_execs", clients::hundred_execs),
    ("clients::python_client", clients::python_client),
    ("usage::top", usage::top),
    ("usage::figures", usage::figures),
    ("usage::node_api", usage::node_api),
    ("metrics::server", metrics::server),
    ("metrics::forms", metrics::forms),
    ("metrics::dashboard", metrics::dashboard),
    ("metrics::checkpoint", metrics::checkpoint),
    ("events::of_a_life", events::of_a_life),
    ("events::of_trouble", events::of_trouble),
    ("events::of_the_node", events::of_the_node),
    ("rough::idle", rough::idle),
    ("rough::client_is_killed", rough::client_is_killed),
    ("rough::nothing_leaks", rough::nothing_leaks),
    ("rough::agent_restarts_under_a_follow", rough::agent_restarts_under_a_follow),
    ("rough::behind_nat", rough::behind_nat),
];

#[test]
#[ignore = "run by in_namespaces"]
fn streams() {
    let only = std::env::var("CORACLE_ONLY").unwrap_or_default();
    let mut stage = Stage::start();
    let mut failed = Vec::new();
    for (name, part) in PARTS.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        // All that fails is told at once: a run is slow.
        let ok = catch_unwind(AssertUnwindSafe(|| part(&mut stage))).is_ok();
        eprintln!("{name}: {} in {:.1?}", if ok { "ok" } else { "FAILED" }, begun.elapsed());
        if !ok {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        eprintln!("{}", stage.cluster.log());
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}
