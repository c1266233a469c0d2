//! `coracle doctor`: can this machine carry a cluster, and if not, what is to be done. What can be tried is tried, in
//! namespaces that end with the attempt; nothing of the machine changes.

// What was found, and how it is shown.
mod finding;
// The kernel: version, namespaces, and file systems, links and rules that are really made.
mod kernel;
// Control groups and their controllers.
mod cgroups;
// Privilege, disk, memory, clock.
mod machine;
// Ports, and who holds them.
mod ports;
// Programs that are run.
mod programs;

pub use programs::find_program;

use clap::{Args, ValueEnum};
use finding::{Finding, Outcome};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the machine is to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Server and nodes in namespaces of their own, as `coracle up` starts them.
    Up,
    /// The control plane.
    Server,
    /// A node.
    Agent,
}

/// Options of `coracle doctor`.
#[derive(Debug, Clone, Args)]
#[command(override_usage = "coracle doctor [OPTIONS]")]
pub struct DoctorArgs {
    /// What the machine is to become.
    #[arg(long, value_enum, default_value = "up")]
    role: Role,
    /// Where state will live.
    #[arg(long, env = "CORACLE_DATA_DIR", default_value = "/var/lib/coracle", value_parser = crate::up::directory())]
    data_dir: PathBuf,
    /// Where the API will listen; port 0 is any free one [default: as `up` or `server` would choose].
    #[arg(long)]
    bind: Option<SocketAddr>,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Only what is not in order.
    #[arg(long, short)]
    quiet: bool,
}

/// Looks, prints, and says whether a cluster can run: nothing that is needed is missing.
pub fn run(args: &DoctorArgs) -> anyhow::Result<bool> {
    let findings = examine(args);
    let fit = findings.iter().all(|finding| finding.outcome != Outcome::Missing);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({"fit": fit, "findings": findings}))?);
    } else {
        print!("{}", finding::text(&findings, args.quiet));
    }
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
    findings.extend(ports::findings(args.role, args.bind, &args.data_dir));
    findings.push(machine::disk(&args.data_dir));
    findings.push(machine::memory());
    findings.push(machine::clock());
    findings
}
