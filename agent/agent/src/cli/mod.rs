//! The commands of `coracle-agent`, one file each.

// Logs.
mod log;
// Options of the node.
pub mod options;
// The node.
pub mod run;
// Builds the parts of the node.
pub mod assemble;
// Parsers of option values.
pub mod values;
// Joins a cluster.
pub mod join;
// Images of this node.
pub mod image;
// Serves the engine as CRI.
pub mod engine;

use clap::{CommandFactory, Parser};

/// The Coracle node agent.
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
    /// Run the node: start and supervise the pods that are bound to it.
    Run(Box<options::RunArgs>),
    /// Join a cluster: verify the server and request a certificate with a token.
    Join(join::JoinArgs),
    /// Manage images of this node: import, pull, ls, rm, gc.
    Image(image::ImageArgs),
    /// Run only the container engine and serve CRI on a unix socket.
    Engine(engine::EngineArgs),
    /// Write man pages, completions and a documented configuration file.
    #[command(hide = true)]
    Manual(coracle_cli::manual::ManualArgs),
}

impl Cli {
    /// Parses the command line and the file of `run --config`.
    pub fn read() -> anyhow::Result<Self> {
        let mut command = Self::command();
        command.build();
        let arguments = std::env::args_os().collect();
        let arguments = match command.find_subcommand("run") {
            Some(run) => coracle_cli::config_file::expand(arguments, run)?,
            None => arguments,
        };
        Ok(Self::parse_from(arguments))
    }

    /// Runs the command.
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
