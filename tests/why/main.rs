//! `coracle why`, asked about every kind of trouble that can be produced: on nodes with real pods, on servers without nodes,
//! and on a stock kube-apiserver. Each test prints a table: trouble, seconds until it was named, answer.
//! `CORACLE_ONLY` selects cases by a part of their names.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// A trouble, and what must be said about it.
mod case;
// The command.
mod ask;
// Many cases at once.
mod run;
// Whole cluster, and mended troubles.
mod checks;
// Broken images.
mod registry;
// A node that tests may harm.
mod third;
// Nothing is wrong.
mod healthy;
// Pods without a node.
mod cases_scheduling;
// Images.
mod cases_images;
// Containers that cannot be created, or end.
mod cases_containers;
// Probes, hooks, deletion.
mod cases_probes;
// Workloads.
mod cases_workloads;
// Connections.
mod cases_connections;
// Claims and volumes.
mod cases_claims;
// Services and Ingresses.
mod cases_services;
// Pods that cannot be created.
mod cases_creation;
// Other objects.
mod cases_objects;
// Troubles of nodes.
mod disruption;
// Text, kubectl, bad input.
mod output;
// A kube-apiserver that is not ours.
mod stock;

use ask::Why;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use case::Case;
use coracle_pki::authority::{Authority, Profile};
use coracle_tests::cluster::Cluster;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use run::Run;
use std::path::Path;
use std::time::Duration;

/// The cases whose names have the part that `CORACLE_ONLY` gives.
fn selected(cases: Vec<Case>) -> Vec<Case> {
    let only = std::env::var("CORACLE_ONLY").unwrap_or_default();
    cases.into_iter().filter(|case| case.name.contains(&only)).collect()
}

/// Whether all cases are wanted.
fn is_whole() -> bool {
    std::env::var("CORACLE_ONLY").unwrap_or_default().is_empty()
}

/// Whether containers can be limited in memory here.
fn limits_memory() -> bool {
    let controllers = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    controllers.split_whitespace().any(|controller| controller == "memory")
}

/// A certificate that has ended, base64 of PEM.
fn ended_certificate() -> String {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::ensure(dir.path(), "ca", "w-ended").unwrap();
    let profile = Profile::server("old.example.com", &[]).lasting(Duration::from_secs(1));
    STANDARD.encode(authority.sign(&profile).unwrap().certificate)
}

/// Cases that need no node.
fn without_nodes() -> Vec<Case> {
    let mut cases = cases_claims::cases();
    cases.extend(cases_services::cases());
    cases.extend(cases_creation::cases());
    cases.extend(cases_objects::cases());
    let ended = ended_certificate();
    cases.push(cases_services::ended_certificate(&ended));
    cases.push(cases_objects::ended_authority(&ended));
    cases
}

#[test]
fn on_nodes_with_real_pods() {
    let cluster = Cluster::start(2);
    third::start(&cluster);
    let pids: Vec<u64> = ["node-1", "node-2", "node-3"]
        .iter()
        .map(|node| cluster.node(node)["holder"]["pid"].as_u64().unwrap())
        .collect();
    let registry = registry::serve(&pids);
    let _untrusted = registry::serve_untrusted(pids[0], "10.89.0.11:5443");
    let why = Why::new(&cluster.data_dir().join("admin.kubeconfig"));
    let run = Run::new(cluster.kubectl(), why, &registry);
    run.kubectl.run("wait --for=condition=Ready node --all --timeout=60s");
    if is_whole() {
        run.part("healthy cluster", || healthy::check(&run));
    }
    let mut cases = cases_scheduling::cases();
    cases.extend(cases_images::cases());
    cases.extend(cases_containers::created());
    cases.extend(cases_containers::ended());
    cases.extend(cases_probes::cases());
    cases.extend(cases_workloads::cases());
    cases.extend(cases_connections::cases());
    cases.push(cases_claims::attached_elsewhere());
    match limits_memory() {
        true => cases.push(cases_containers::out_of_memory()),
        false => coracle_tests::skipped("why::out_of_memory", "needs the memory controller of cgroup v2"),
    }
    let right = run.all(&selected(cases));
    run.survey(&right);
    run.mend(&right);
    if is_whole() {
        run.part("output", || output::for_people(&run));
        run.part("bad input", || output::bad_input(&run));
        run.part("deleted object", || output::deleted(&run));
        disruption::all(&run, &cluster);
    }
    run.finish();
}

/// Produces these troubles on a control plane without nodes of ours; `more` follows when all cases are wanted.
fn produce_and_ask(kubeconfig: &Path, cases: Vec<Case>, more: impl FnOnce(&Run)) {
    let run = Run::new(newest(kubeconfig), Why::new(kubeconfig), "");
    let right = run.all(&selected(cases));
    run.survey(&right);
    run.mend(&right);
    if is_whole() {
        more(&run);
    }
    run.finish();
}

#[test]
fn on_server_with_broken_apis() {
    let server = Server::start();
    produce_and_ask(&server.kubeconfig(), cases_objects::apart(), |_| {});
}

#[test]
fn on_server_without_nodes() {
    let server = Server::start();
    produce_and_ask(&server.kubeconfig(), without_nodes(), |run| {
        run.part("refused request", || output::refused(run));
        run.part("server on loopback", || output::loopback(run));
        run.part("object that existed", || output::existed(run));
    });
}

/// The troubles that need no node of ours, on an API server, controllers and a scheduler of somebody else.
#[test]
fn on_stock_server() {
    let Some(programs) = stock::Programs::given() else {
        return coracle_tests::skipped(
            "why::on_stock_server",
            "needs CORACLE_STOCK_APISERVER, CORACLE_STOCK_CONTROLLER_MANAGER and CORACLE_STOCK_SCHEDULER",
        );
    };
    let server = stock::Stock::start(&programs);
    produce_and_ask(&server.kubeconfig, without_nodes(), |run| {
        run.part("other ways to ask", || output::elsewhere(run));
    });
}
