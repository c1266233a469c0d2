//! `coracle certificate`: expiry and rotation of the certificates of a server.

// The certificates of a server's directory.
pub mod files;
// The certificate that a server shows.
mod served;
// `coracle certificate check`.
mod check;
// `coracle certificate rotate`.
mod rotate;
// `coracle certificate rotate-ca`.
mod rotate_ca;

use crate::admin::KubeconfigArgs;
use crate::output::Output;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Options of `coracle certificate`.
#[derive(Debug, Clone, Args)]
pub struct CertificateArgs {
    #[command(subcommand)]
    command: CertificateCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum CertificateCommand {
    /// Show the certificates of a server and when they expire; fails if one expires soon.
    Check(CheckArgs),
    /// Renew certificates now. A running server uses them within seconds, without a restart.
    Rotate(RotateArgs),
    /// Replace the CA of the cluster, in three steps: prepare, switch, finish.
    RotateCa(RotateCaArgs),
}

#[derive(Debug, Clone, Args)]
struct CheckArgs {
    /// Data directory of the server.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    data_dir: PathBuf,
    /// Fail if a certificate expires within so many days.
    #[arg(long, default_value_t = 30)]
    days: i64,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

#[derive(Debug, Clone, Args)]
struct RotateArgs {
    /// Data directory of the server.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    data_dir: PathBuf,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Certificates to renew: apiserver, admin, front-proxy-client; all of them by default.
    names: Vec<String>,
}

#[derive(Debug, Clone, Args)]
struct RotateCaArgs {
    /// What to do.
    #[arg(value_enum)]
    step: CaStep,
    #[command(flatten)]
    server: KubeconfigArgs,
    /// Finish although nodes use the old CA, or do not say which one they use. They have to join again.
    #[arg(long)]
    force: bool,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// A step of the rotation of the CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CaStep {
    /// Show how far the rotation is, and who uses which CA.
    Status,
    /// Make a new CA. Everybody trusts it, the old one signs.
    Prepare,
    /// Sign with the new CA. Servers and nodes get new certificates, the old CA is trusted.
    Switch,
    /// Trust the new CA only. Refused while nodes use the old one.
    Finish,
    /// Forget a new CA that was prepared, before the switch to it.
    Cancel,
}

/// Runs `coracle certificate`; false if something has to be done.
pub async fn run(args: &CertificateArgs) -> anyhow::Result<bool> {
    match &args.command {
        CertificateCommand::Check(args) => check::run(args).await,
        CertificateCommand::Rotate(args) => rotate::run(args).await,
        CertificateCommand::RotateCa(args) => rotate_ca::run(args).await,
    }
}
