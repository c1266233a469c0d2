//! `coracle doctor`: checks whether this machine can run a cluster, and prints how to fix what is missing. Kernel features are
//! tried in temporary namespaces; nothing on the machine changes.

// Roles of a machine.
mod role;
// What was found, and how it is shown.
mod finding;
// The kernel: version, namespaces, and file systems, links and rules that are really made.
mod kernel;
// Links among them.
mod links;
// Control groups and their controllers.
mod cgroups;
// Privilege, disk, memory, clock.
mod machine;
// Ports, and who holds them.
mod ports;
// Programs that are run.
mod programs;
// The etcd that a server runs.
mod managed_etcd;

pub use role::Role;

use crate::output::Output;
use clap::Args;
use finding::{Finding, Outcome};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Options of `coracle doctor`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "coracle doctor [OPTIONS]")]
pub struct DoctorArgs {
    /// Role to check the machine for.
    #[arg(long, value_enum, default_value = "up")]
    role: Role,
    /// Data directory to check.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle", value_parser = crate::cluster_args::directory())]
    data_dir: PathBuf,
    /// Address of the API; port 0 is any free port [default: that of `up` or `server`].
    #[arg(long)]
    bind: Option<SocketAddr>,
    /// Store of the server; `etcd` checks for what a server needs to run a member of etcd.
    #[arg(long)]
    datastore: Option<String>,
    /// Format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// The same as `--output json`.
    #[arg(long)]
    json: bool,
    /// Print only problems.
    #[arg(long, short)]
    quiet: bool,
}

/// Runs all checks and prints the findings. Returns whether nothing required is missing.
pub fn run(args: &DoctorArgs) -> anyhow::Result<bool> {
    let findings = examine(args);
    let fit = findings.iter().all(|finding| finding.outcome != Outcome::Missing);
    let output = if args.json { Output::Json } else { args.output };
    let answer = serde_json::json!({"fit": fit, "findings": findings});
    output.print(&answer, || finding::text(&findings, args.quiet))?;
    Ok(fit)
}

fn examine(args: &DoctorArgs) -> Vec<Finding> {
    let root = nix::unistd::geteuid().is_root();
    let mut findings = vec![machine::privilege(args.role, root), kernel::version()];
    if args.role != Role::Server {
        findings.extend(kernel::namespaces());
        findings.extend(kernel::attempts(root, &args.data_dir));
        findings.push(kernel::seccomp());
        findings.extend(cgroups::findings());
        findings.extend(programs::findings(args.role));
    }
    if args.role == Role::Server && managed_etcd::is_needed(args.datastore.as_deref(), &args.data_dir) {
        findings.extend(managed_etcd::findings());
    }
    findings.extend(ports::findings(args.role, args.bind, &args.data_dir));
    findings.push(machine::disk(&args.data_dir));
    findings.push(machine::memory());
    findings.push(machine::clock());
    findings
}
