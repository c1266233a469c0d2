//! `coracle secrets-encrypt`: which keys encrypt stored values, and rotation of these keys.

// Changes of the configuration file.
mod file;
// The servers of a cluster.
mod servers;
// `coracle secrets-encrypt rotate`.
mod rotate;

use crate::admin::{KubeconfigArgs, ask};
use crate::operations::ENCRYPTION;
use crate::operations::encryption::EncryptionStatus;
use crate::output::{Output, table};
use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use coracle_apiserver::https_client::HttpsClient;
use http::Method;
use std::time::Duration;

/// Answers take as long as all stored values take to be counted.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options of `coracle secrets-encrypt`.
#[derive(Debug, Clone, Args)]
pub struct SecretsEncryptArgs {
    #[command(subcommand)]
    command: SecretsEncryptCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum SecretsEncryptCommand {
    /// Show which key encrypts new values, and how many stored values are under which key.
    Status {
        #[command(flatten)]
        server: KubeconfigArgs,
        /// Format of the answer.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Encrypt with a new key, and encrypt all stored values again. It can be interrupted and repeated.
    Rotate(RotateArgs),
}

#[derive(Debug, Clone, Args)]
struct RotateArgs {
    #[command(flatten)]
    server: KubeconfigArgs,
    /// Only one step, for servers that do not get the configuration of the cluster: each of them needs the changed file before
    /// the next step.
    #[arg(long, value_enum)]
    stage: Option<Stage>,
    /// Remove keys from the file that no stored value is encrypted with.
    #[arg(long)]
    prune: bool,
    /// Format of the answer.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// Add a key that only decrypts.
    Add,
    /// Encrypt with the key that was added.
    Use,
    /// Encrypt stored values again.
    Rewrite,
}

/// Runs `coracle secrets-encrypt`.
pub async fn run(args: &SecretsEncryptArgs) -> anyhow::Result<()> {
    match &args.command {
        SecretsEncryptCommand::Status { server, output } => show(&status(&server.remote()?).await?, *output),
        SecretsEncryptCommand::Rotate(args) => rotate::run(args).await,
    }
}

/// What a server says about its encryption.
async fn status(remote: &HttpsClient) -> anyhow::Result<EncryptionStatus> {
    let remote = remote.at(remote.url()).with_timeout(PATIENCE);
    let answer = ask(&remote, Method::GET, ENCRYPTION, None).await?;
    serde_json::from_value(answer).with_context(|| format!("the answer of {}", remote.url()))
}

fn show(status: &EncryptionStatus, output: Output) -> anyhow::Result<()> {
    Ok(output.print(status, || text(status))?)
}

fn text(status: &EncryptionStatus) -> String {
    let Some(path) = status.config_file.as_ref().filter(|_| status.enabled) else {
        return "nothing is encrypted: the server has no --encryption-provider-config\n".to_owned();
    };
    let mut text = format!("configuration: {}\n\n", path.display());
    let mut rows = vec![["RESOURCES", "ENCRYPTS", "DECRYPTS"].map(str::to_owned).to_vec()];
    for entry in &status.entries {
        let (first, others) = entry.providers.split_first().map_or(("", &[][..]), |(a, b)| (a.as_str(), b));
        rows.push(vec![entry.resources.join(","), first.to_owned(), others.join(",")]);
    }
    text.push_str(&table(&rows));
    let mut rows = vec![["STORED", "KEY", "VALUES", ""].map(str::to_owned).to_vec()];
    for stored in &status.stored {
        let state = if stored.current { "" } else { "not the key that encrypts" };
        let count = stored.count.to_string();
        let cells: [&str; 4] = [&stored.resource, &stored.provider, &count, state];
        rows.push(cells.map(str::to_owned).to_vec());
    }
    text.push('\n');
    text.push_str(&table(&rows));
    if status.rewrite.running {
        let (seen, written) = (status.rewrite.seen, status.rewrite.written);
        text.push_str(&format!("\nvalues are being encrypted again: {seen} seen, {written} written\n"));
    }
    if let Some(problem) = &status.problem {
        text.push_str(&format!("\nproblem: the file is not used as it is now: {problem}\n"));
    }
    text
}
