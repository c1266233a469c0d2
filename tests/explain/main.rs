//! Timelines of what kubectl does on a cluster of three nodes, beside what others saw of it: the kernel, the audit log, clients. Needs
//! root.
#![allow(missing_docs, clippy::unwrap_used)]

// The cluster.
mod world;
// What is true of every answer.
mod checks;
// What the audit log says.
mod audit;
// What the kernel saw.
mod kernel;
mod strace;
// What clients of Services saw.
mod clients;
// Changes and what follows from them.
mod scenarios;
mod failures;
// Every stage, and what brings it about.
mod stages;
mod images;
mod admission;
// Answers beside the evidence of others.
mod evidence;
// Traces of clients, and their export.
mod contexts;
#[allow(dead_code)]
#[path = "../api/explain/receiver.rs"]
mod receiver;
// Processes that are killed.
mod crashes;
// A node without spans.
mod silent;
// Questions and deliveries that are wrong.
mod bad_input;
// `coracle trace`.
mod commands;

use world::World;

type Step = (&'static str, fn(&World));

/// One cluster for all: starting it costs more than any of the steps. Every step is tried; all that failed are named.
#[test]
fn timelines_on_three_nodes() {
    let world = World::start();
    let steps: &[Step] = &[
        ("a Deployment is created", scenarios::create),
        ("a Deployment is exposed", scenarios::expose),
        ("a Deployment is changed", scenarios::rolling_update),
        ("a Deployment is scaled", scenarios::scale),
        ("a pod is evicted", failures::evicted),
        ("every stage is there", stages::all),
        ("containers and plugins start when the kernel says so", evidence::processes),
        ("Services answer when the timeline says so", evidence::services),
        ("names resolve when the timeline says so", evidence::names),
        ("a client's trace goes on in the cluster", contexts::exported),
        ("contexts that are none are ignored", contexts::malformed),
        ("bad questions are refused", bad_input::questions),
        ("bad deliveries are refused", bad_input::deliveries),
        ("coracle trace draws it", commands::objects),
        ("coracle trace -- COMMAND waits for it", commands::command),
        ("coracle trace has the history", commands::history),
        ("the server is killed", crashes::server),
        ("an agent is killed", crashes::agent),
        ("the server is away for a while", crashes::server_away),
        ("a node is killed", failures::node_killed),
        ("a node records nothing", silent::node),
    ];
    let only = std::env::var("CORACLE_ONLY").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, step) in steps.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&world)));
        println!("{}: {name} ({:.1?})", if outcome.is_ok() { "ok" } else { "FAILED" }, begun.elapsed());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        for node in world::NODES {
            println!("{}", world.cluster.told(node));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
