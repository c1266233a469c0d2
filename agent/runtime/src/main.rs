//! The `coracle-runtime` command: an OCI runtime with the command line of runc.
//!
//! youki's libcontainer makes namespaces, cgroup, mounts and devices. Everything that confines the process (capabilities,
//! seccomp, labels, keyring, signals) is the keeper's code, which also confines commands that enter a container: a
//! container and its commands cannot differ. Where libcontainer differs from runc, [`prepare`] changes what it is given.
//! `tests/netns_engine/confinement` compares what a process can see with runc's.
//!
//! libcontainer clones without the fork handlers of the C library: it must only run in a process of one thread.

// Nothing here works in directories of pods: those are entered by their namespaces.
#![allow(clippy::disallowed_methods)]

// Errors.
mod error;
// Errors in the log that the caller named.
mod log;
// Runs as a sealed copy in memory.
mod reseal;
// Containers on disk: where they are, which process they have.
mod container;
// The configuration as libcontainer is to see it.
mod prepare;
// Settings of a process, for the keeper's code.
mod process;
// Seccomp filters.
mod filter;
// Resource limits.
mod limits;
// Session keyrings.
mod keyring;
// Propagation of mounts.
mod propagation;
// Mounts: what libcontainer makes, and what is done after it.
mod rootfs;
// What a container with a user namespace needs of the host.
mod user_namespace;
// Confines the first process and execs its program.
mod confine;
// Device rules as a BPF program of the cgroup.
mod devices;
// create, run, start.
mod create;
// exec.
mod exec;
// Terminals.
mod terminal;
// state, list, kill, delete, pause, resume, ps.
mod manage;
// update.
mod update;
// features.
mod features;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use liboci_cli::{CommonCmd, GlobalOpts, StandardCmd};

use self::error::Error;

/// An OCI runtime: runs a container from a bundle.
#[derive(Debug, Parser)]
#[command(name = "coracle-runtime", version)]
struct Options {
    #[command(flatten)]
    global: GlobalOpts,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[command(flatten)]
    Standard(Box<StandardCmd>),
    #[command(flatten)]
    Common(Box<CommonCmd>),
}

/// Where the states of containers are by default.
const ROOT: &str = "/run/coracle-runtime";

fn main() -> ExitCode {
    let Options { global, command } = Options::parse();
    let root: PathBuf = global.root.unwrap_or_else(|| ROOT.into());
    let outcome = log::Log::open(global.log.as_deref(), global.log_format.as_deref()).and_then(|log| {
        log.of(match global.systemd_cgroup {
            true => Err(Error::Unsupported("--systemd-cgroup")),
            false => run(&root, command),
        })
    });
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("coracle-runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, command: Verb) -> Result<ExitCode, Error> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Verb::Standard(command) => match *command {
            StandardCmd::Create(args) => create::create(root, args).map(done),
            StandardCmd::Start(args) => create::start(root, &args.container_id).map(done),
            StandardCmd::State(args) => manage::state(root, &args.container_id).map(done),
            StandardCmd::Kill(args) => manage::kill(root, &args).map(done),
            StandardCmd::Delete(args) => manage::delete(root, &args).map(done),
        },
        Verb::Common(command) => match *command {
            CommonCmd::Run(args) => create::run(root, args),
            CommonCmd::Exec(args) => exec::exec(root, &args),
            CommonCmd::List(args) => manage::list(root, &args).map(done),
            CommonCmd::Pause(args) => manage::pause(root, &args.container_id).map(done),
            CommonCmd::Resume(args) => manage::resume(root, &args.container_id).map(done),
            CommonCmd::Ps(args) => manage::processes(root, &args).map(done),
            CommonCmd::Update(args) => update::update(root, &args).map(done),
            CommonCmd::Features(_) => features::print().map(done),
            CommonCmd::Checkpointt(_) => Err(Error::Unsupported("checkpoint")),
            CommonCmd::Events(_) => Err(Error::Unsupported("events")),
            CommonCmd::Spec(_) => Err(Error::Unsupported("spec")),
        },
    }
}
