//! The commands of `coracle-agent`, one file each.

// The node.
pub mod run;
// Values of options.
pub mod values;
// Becoming a node.
pub mod join;
// Images of this node.
pub mod image;
// The engine alone, as CRI.
pub mod engine;

use clap::{CommandFactory, Parser};

/// What `coracle-agent` is asked to do.
#[derive(Debug, clap::Parser)]
#[command(name = "coracle-agent", version, about = "The Coracle node agent")]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Run the node: keep the pods that the API server gives it.
    Run(Box<run::RunArgs>),
    /// Join a cluster: verify the server, get a certificate with a token.
    Join(join::JoinArgs),
    /// Images of this node: import, pull, ls, rm, gc.
    Image(image::ImageArgs),
    /// Serve the container engine alone, as CRI on a unix socket.
    Engine(engine::EngineArgs),
    /// Write man pages, completions and a documented configuration file.
    #[command(hide = true)]
    Manual(coracle_cli::manual::ManualArgs),
}

impl Cli {
    /// Reads the command line, and the file that `run --config` names.
    pub fn read() -> anyhow::Result<Self> {
        let mut command = Self::command();
        command.build();
        let arguments = std::env::args_os().collect();
        let arguments = match command.find_subcommand("run") {
            Some(run) => coracle_cli::file::expand(arguments, run)?,
            None => arguments,
        };
        Ok(Self::parse_from(arguments))
    }

    /// Runs the command to its end.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::Join(args) => args.run(),
            Command::Image(args) => args.run(),
            Command::Engine(args) => args.run(),
            Command::Manual(args) => Ok(args.write(Self::command(), &[("run", "agent.yaml")])?),
        }
    }
}

/// Logs to stderr, by `RUST_LOG`.
pub fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,kube_client::client::builder=off"));
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
}
