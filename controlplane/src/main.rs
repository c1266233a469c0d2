//! The `coracle` command.

use clap::{Parser, Subcommand};
use coracle::config::ServerArgs;
use coracle::up::{DownArgs, UpArgs};

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
    Server(ServerArgs),
    /// Start a whole cluster on this machine, in namespaces of its own.
    Up(UpArgs),
    /// End that cluster.
    Down(DownArgs),
    /// Keep the namespaces of a node; started by `up`.
    #[command(hide = true)]
    Hold,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_env("CORACLE_LOG").unwrap_or_else(|_| "info".into());
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    match cli.command {
        Command::Server(args) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            runtime.block_on(coracle::server::run(args.resolve()?))?;
            Ok(())
        }
        Command::Hold => coracle::up::hold(),
        Command::Up(args) => coracle::up::up(&args),
        Command::Down(args) => coracle::up::down(&args),
    }
}
