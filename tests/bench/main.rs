//! Measurements: `coracle-bench NAME [--json]`. Figures are medians of what was measured in this run, on this machine.

#![allow(clippy::unwrap_used)]

// The API server under load.
mod api;
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
// How figures are shown.
mod report;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|a| a == "--json");
    let name = args.iter().find(|a| !a.starts_with("--")).map_or("", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = match name {
        "api" => runtime.block_on(api::run())?,
        "scheduler" => runtime.block_on(scheduler::run())?,
        "controllers" => runtime.block_on(controllers::run())?,
        "dns" => dns::run()?,
        "service" => runtime.block_on(service::run())?,
        other => {
            anyhow::bail!("unknown measurement {other:?}: one of api, scheduler, controllers, dns, service")
        }
    };
    report.print(json);
    Ok(())
}
