//! `coracle status`: servers, store, elections, last backup, certificates and versions of a cluster, and what is wrong with them.

// Asks the servers.
mod collect;
// What is wrong.
mod assess;
// Text for people.
mod table;

use crate::admin::KubeconfigArgs;
use crate::output::Output;
use clap::Args;

/// Options of `coracle status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    server: KubeconfigArgs,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// Runs `coracle status`; false if something is wrong.
pub async fn run(args: &StatusArgs) -> anyhow::Result<bool> {
    let remote = args.server.remote()?;
    // Leases are renewed while a server that does not answer is waited for.
    let asked = jiff::Timestamp::now();
    let mut cluster = match collect::collect(&remote).await {
        Ok(cluster) => cluster,
        Err(error) => {
            let problem = error.to_string();
            collect::ClusterStatus { problems: vec![problem], ..collect::ClusterStatus::default() }
        }
    };
    cluster.problems.extend(assess::problems(&cluster, asked));
    let text = table::text(&cluster, asked)?;
    args.output.print(&cluster, || text)?;
    Ok(cluster.problems.is_empty())
}
