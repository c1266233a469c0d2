//! The `coracle` command.

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use coracle::config::ServerArgs;
use coracle::doctor::DoctorArgs;
use coracle::hollow::HollowArgs;
use coracle::token::{RevokeNodeArgs, TokenArgs};
use coracle::up::{DownArgs, SuperviseArgs, UpArgs};

/// Kubernetes you can carry.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the control plane: API server, scheduler and controllers in one process.
    Server(Box<ServerArgs>),
    /// Start a whole cluster on this machine, in namespaces of its own.
    Up(UpArgs),
    /// End that cluster.
    Down(DownArgs),
    /// Check whether this machine can carry a cluster, and say what to do where it cannot.
    Doctor(DoctorArgs),
    /// Write man pages, completions and a documented configuration file.
    #[command(hide = true)]
    Manual(coracle_cli::manual::ManualArgs),
    /// Run nodes without containers, to try clusters of any size.
    Hollow(HollowArgs),
    /// Tokens for nodes that join: create, list, revoke.
    Token(TokenArgs),
    /// Shut a node out: its certificates of now stop counting, tokens that it may know end, and its Node goes.
    RevokeNode(RevokeNodeArgs),
    /// Keep the namespaces of a node; started by `up`.
    #[command(hide = true)]
    Hold,
    /// Run a program and start it again when it fails; started by `up`.
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

fn main() -> anyhow::Result<()> {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let filter = tracing_subscriber::EnvFilter::try_from_env("CORACLE_LOG").unwrap_or_else(|_| "info".into());
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Server(args) => {
            let matches = matches.subcommand_matches("server").expect("the command is server");
            if let Err(error) = coracle::privileges::shed() {
                tracing::warn!(%error, "the server keeps rights that it does not need");
            }
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let handed_on = runtime.block_on(coracle::server::run(args.resolve(matches)?))?;
            match handed_on {
                // What still runs here ends with this program.
                Some(doors) => {
                    Err(anyhow::Error::from(doors.hand_on()).context("the program that is to follow"))
                }
                None => Ok(()),
            }
        }
        Command::Hollow(args) => {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(coracle::hollow::run(args))
        }
        Command::Token(args) => small_runtime()?.block_on(coracle::token::run(&args)),
        Command::RevokeNode(args) => small_runtime()?.block_on(coracle::token::revoke_node(&args)),
        Command::Hold => coracle::up::hold(),
        Command::Supervise(args) => {
            std::process::exit(small_runtime()?.block_on(coracle::up::supervise(&args))?);
        }
        Command::Up(args) => coracle::up::up(&args),
        Command::Down(args) => coracle::up::down(&args),
        Command::Manual(args) => Ok(args.write(Cli::command(), &[("server", "server.yaml")])?),
        Command::Doctor(args) => {
            let fit = coracle::doctor::run(&args)?;
            std::process::exit(i32::from(!fit));
        }
    }
}

/// For commands that ask one question.
fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
