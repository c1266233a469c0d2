//! Backups: `coracle backup`, `coracle restore`, and what the server does for them.

// Options that name keys and S3.
mod args;
// Options of the server.
pub mod options;
// What a backup of this server is made of.
pub(crate) mod source;
// `/coracle/v1/backup`.
pub(crate) mod serve;
// Backups by the clock.
pub(crate) mod schedule;
// Counters of backups.
pub(crate) mod metrics;
// `coracle backup save`.
mod save;
// `coracle backup ls`, `check` and `prune`.
mod kept;
// `coracle restore`.
pub mod restore;

use args::{IdentityArgs, OutputArgs, RecipientArgs, S3Args};
use clap::{Args, Subcommand};

/// Options of `coracle backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum BackupCommand {
    /// Back up the running cluster: everything in the store at one revision, and the keys of the cluster.
    Save {
        /// A new file, a directory, or s3://bucket/prefix; in the latter two the backup gets a name with time and revision.
        to: String,
        #[command(flatten)]
        server: crate::admin::KubeconfigArgs,
        #[command(flatten)]
        recipients: RecipientArgs,
        #[command(flatten)]
        s3: S3Args,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// List the backups in a directory or bucket, also those that were given other names. Of these, encrypted ones are read with
    /// --identity or --passphrase-file.
    Ls {
        /// A directory, or s3://bucket/prefix.
        place: String,
        #[command(flatten)]
        identities: IdentityArgs,
        #[command(flatten)]
        s3: S3Args,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Read a whole backup and verify that it can be restored.
    Check {
        /// A file, or s3://bucket/key.
        backup: String,
        #[command(flatten)]
        identities: IdentityArgs,
        #[command(flatten)]
        s3: S3Args,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove old backups from a directory or bucket. The newest of every cluster is always kept.
    Prune {
        /// A directory, or s3://bucket/prefix.
        place: String,
        /// Keep the newest N of each cluster.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
        /// Keep those of the last D days.
        #[arg(long, required_unless_present = "keep")]
        keep_days: Option<u32>,
        #[command(flatten)]
        s3: S3Args,
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Runs `coracle backup`.
pub async fn run(args: &BackupArgs) -> anyhow::Result<()> {
    match &args.command {
        BackupCommand::Save { to, server, recipients, s3, output } => {
            save::run(to, server, recipients, s3, *output).await
        }
        BackupCommand::Ls { place, identities, s3, output } => {
            kept::list(place, identities, s3, *output).await
        }
        BackupCommand::Check { backup, identities, s3, output } => {
            kept::check(backup, identities, s3, *output).await
        }
        BackupCommand::Prune { place, keep, keep_days, s3, output } => {
            kept::prune(place, (*keep, *keep_days), s3, *output).await
        }
    }
}
