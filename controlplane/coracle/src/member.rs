//! `coracle member`: the members of a managed etcd, through the certificate that is in the data directory of a server. It works
//! while the server of that directory is down, as long as other members answer.

use crate::etcd_member::removal::{KnownMember, known, plan_removal, remove};
use crate::etcd_member::{ClientFiles, saved_options};
use crate::output::Output;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use coracle_store::etcd::Membership;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Options of `coracle member`.
#[derive(Debug, Clone, Args)]
pub struct MemberArgs {
    #[command(subcommand)]
    command: MemberCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum MemberCommand {
    /// List the members of the cluster's etcd.
    Ls {
        #[command(flatten)]
        server: DataDirArgs,
    },
    /// Remove a member, such as that of a machine that is lost. Refused if the cluster would lose its majority.
    Remove {
        #[command(flatten)]
        server: DataDirArgs,
        /// Name or identifier, as `coracle member ls` prints it.
        name: String,
    },
}

#[derive(Debug, Clone, Args)]
struct DataDirArgs {
    /// Data directory of a server with `--datastore etcd`.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle")]
    data_dir: PathBuf,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

impl DataDirArgs {
    fn cluster(&self) -> anyhow::Result<Membership> {
        let files = ClientFiles { pki_dir: self.data_dir.join("pki") };
        let options = saved_options(&self.data_dir, &files)?;
        let options = options.with_context(|| {
            let dir = self.data_dir.display();
            format!(
                "the server of {dir} runs no etcd member: this command is for --datastore etcd, on the machine of a server; `coracle status` shows the members from elsewhere"
            )
        })?;
        Ok(Membership::new(&options)?)
    }
}

/// Runs `coracle member`.
pub async fn run(args: &MemberArgs) -> anyhow::Result<()> {
    match &args.command {
        MemberCommand::Ls { server } => {
            let members = list(&server.cluster()?).await?;
            let text = table(&members)?;
            server.output.print(&members, || text)?;
        }
        MemberCommand::Remove { server, name } => {
            let cluster = server.cluster()?;
            let members = list(&cluster).await?;
            let removed = plan_removal(&members, name)?;
            remove(&cluster, removed.member.id).await?;
            server.output.print(removed, || format!("member {} removed\n", removed.name()))?;
        }
    }
    Ok(())
}

async fn list(cluster: &Membership) -> anyhow::Result<Vec<KnownMember>> {
    known(cluster).await.context(
        "the members cannot be listed: most of them must run (if they are lost: coracle server --cluster-reset)",
    )
}

/// The state in a word; what exactly is wrong with one that does not answer is in the JSON output.
fn state(known: &KnownMember) -> &str {
    match &known.problem {
        None => "ok",
        Some(_) if known.member.client_urls.is_empty() => "not started",
        Some(_) if known.version.is_empty() => "does not answer",
        Some(problem) => problem,
    }
}

fn table(members: &[KnownMember]) -> Result<String, std::fmt::Error> {
    let width = members.iter().map(|known| known.name().len()).max().unwrap_or(0).max(4);
    let mut table = String::new();
    writeln!(
        table,
        "{:<width$}  {:<16}  {:<8}  {:<8}  {:>9}  {:<30}  STATE",
        "NAME", "ID", "ROLE", "VERSION", "SIZE", "PEER URL"
    )?;
    for known in members {
        let role = match (known.member.learner, known.leader) {
            (true, _) => "learner",
            (_, true) => "leader",
            _ => "voter",
        };
        writeln!(
            table,
            "{:<width$}  {:<16}  {role:<8}  {:<8}  {:>9}  {:<30}  {}",
            known.name(),
            format!("{:x}", known.member.id),
            known.version,
            format!("{:.1}M", known.size as f64 / f64::from(1 << 20)),
            known.member.peer_urls.join(","),
            state(known),
        )?;
    }
    Ok(table)
}
