//! What recording spans costs: the same work with and without it, in turns; and what the timeline needs. It fails, after the table, if
//! creates per second or the start of pods are more than 2 % worse, an idle program has 3 MiB more, or the disk is not bounded.

// Single calls, in this process.
mod calls;
// Ratios and how certain they are.
mod ratio;
// Creates per second, CPU and memory of two servers.
mod creates;
// Pods, with and without recording.
mod starts;
// The timeline after many pods.
mod lives;

use crate::report::Report;

/// Measures everything; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut report = Report::default();
    tokio::task::block_in_place(|| calls::run(&mut report));
    // Pods first: they prepare the namespaces.
    starts::run(&mut report).await?;
    creates::run(&mut report).await?;
    tokio::task::block_in_place(|| lives::run(&mut report))?;
    Ok(report)
}
