//! `coracle store`: copies the store of a cluster to another one.

// Where from, and where to.
mod place;
// Copies of a running server's store.
mod online;
// Copies of a store that no server uses.
mod offline;

use crate::admin::{KubeconfigArgs, ask};
use crate::operations::STORE_RESUME;
use crate::output::Output;
use clap::{Args, Subcommand};
use http::Method;
use place::EtcdArgs;
use serde::Serialize;

/// Options of `coracle store`.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum StoreCommand {
    /// Copy all keys of the store to an empty one: embedded to etcd, or back.
    Copy(Box<CopyArgs>),
    /// Let a server take writes again whose store was copied.
    Resume(ResumeArgs),
}

#[derive(Debug, Clone, Args)]
struct ResumeArgs {
    #[command(flatten)]
    server: KubeconfigArgs,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Clone, Args)]
struct CopyArgs {
    #[command(flatten)]
    server: KubeconfigArgs,
    /// `server` for the store of the running server, `embedded:DIR` with the data directory of a stopped server, or an etcd
    /// that no server uses: `etcd://host:port[,host:port]`, `https://host:port[,host:port]`.
    #[arg(long, default_value = "server")]
    from: String,
    /// The new store, which must be empty: `embedded:DIR` with a data directory, or an etcd.
    #[arg(long)]
    to: String,
    #[command(flatten, next_help_heading = "etcd")]
    etcd: EtcdArgs,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// What was copied.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Copied {
    from: String,
    to: String,
    keys: u64,
    /// Keys that changed during the copy.
    corrected: u64,
    /// The last revision of the old store.
    revision: u64,
    /// How long writes were paused until the new store was complete.
    paused_milliseconds: u64,
    /// The options that start a server on the new store.
    options: Vec<String>,
}

/// Runs `coracle store`.
pub async fn run(args: &StoreArgs) -> anyhow::Result<()> {
    match &args.command {
        StoreCommand::Resume(args) => {
            ask(&args.server.remote()?, Method::POST, STORE_RESUME, None).await?;
            let text = || "the server takes writes again; the copy is out of date from now on\n".to_owned();
            args.output.print(&serde_json::json!({"resumed": true}), text)?;
        }
        StoreCommand::Copy(args) => {
            let copied = match args.from.as_str() {
                "server" => online::copy(args).await?,
                _ => offline::copy(args).await?,
            };
            args.output.print(&copied, || text(&copied))?;
        }
    }
    Ok(())
}

fn text(copied: &Copied) -> String {
    let Copied { from, to, keys, corrected, revision, paused_milliseconds, options } = copied;
    let mut text = format!("copied {keys} keys from {from} to {to}, at revision {revision}\n");
    let options = options.join(" ");
    if from == "server" {
        text.push_str(&format!(
            "{corrected} keys changed meanwhile; writes were paused after {paused_milliseconds} ms of corrections\n\
             \n\
             The server still answers reads and refuses writes (503). Stop it, and start it again with\n  {options}\n\
             in place of its options for the old store. To keep the old store instead, run: coracle store resume\n"
        ));
    } else {
        text.push_str(&format!(
            "\nStart the server with\n  {options}\nin place of its options for the old store.\n"
        ));
    }
    text
}
