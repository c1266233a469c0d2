//! Measurements: `coracle-bench NAME [--json]`. Figures are medians of what was measured in this run, on this machine.

#![allow(clippy::unwrap_used)]

// The API server under load.
mod api;
// The container engine.
mod engine;
// Pods.
mod pod;
// An engine of one's own.
#[allow(dead_code, missing_docs)]
#[path = "../netns_engine/node.rs"]
mod node;
// Volumes of a storage driver.
mod storage;
// The scheduler with thousands of nodes.
mod scheduler;
// The control loops.
mod controllers;
// Cluster DNS.
mod dns;
// Nodes without containers.
mod hollow;
// Services, few and many.
mod service;
// Exec, logs, port-forward, probes.
mod streams;
// What a container writes to its log.
mod logs;
// What recording spans costs.
mod explain;
// Several servers on etcd.
mod ha;
// A stock kube-apiserver.
#[allow(dead_code, missing_docs)]
#[path = "../why/stock.rs"]
mod stock;
// Backups and what is restored from them.
mod backup;
// How figures are shown.
mod report;

use coracle_tests::namespaces;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|a| a == "--json");
    let name = args.iter().find(|a| !a.starts_with("--")).map_or("", String::as_str);
    if matches!(name, "engine" | "pod" | "streams" | "logs" | "storage" | "explain")
        && !namespaces::is_inside()
    {
        return in_namespaces(&args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = match name {
        "api" => runtime.block_on(api::run())?,
        "engine" => runtime.block_on(engine::run())?,
        "pod" => runtime.block_on(pod::run())?,
        "storage" => runtime.block_on(storage::run())?,
        "scheduler" => runtime.block_on(scheduler::run())?,
        "controllers" => runtime.block_on(controllers::run())?,
        "dns" => dns::run()?,
        "service" => runtime.block_on(service::run())?,
        "streams" => runtime.block_on(streams::run())?,
        "logs" => runtime.block_on(logs::run())?,
        "explain" => runtime.block_on(explain::run())?,
        "ha" => runtime.block_on(ha::run())?,
        "backup" => runtime.block_on(backup::run())?,
        other => anyhow::bail!(
            "unknown measurement {other:?}: one of api, engine, pod, storage, scheduler, controllers, dns, service, streams, logs, explain, ha, backup"
        ),
    };
    report.print(json);
    report.check()
}

/// Measures what makes links, mounts and cgroups in namespaces of its own.
fn in_namespaces(args: &[String]) -> anyhow::Result<()> {
    let status = namespaces::run_again(args, &[]);
    anyhow::ensure!(status.success(), "the measurement failed: {status}");
    Ok(())
}
