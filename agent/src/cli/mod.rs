//! The commands of `coracle-agent`, one file each.

// The node.
pub mod run;
// Images of this node.
pub mod image;
// The engine alone, as CRI.
pub mod engine;

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
    /// Images of this node: import, pull, ls, rm, gc.
    Image(image::ImageArgs),
    /// Serve the container engine alone, as CRI on a unix socket.
    Engine(engine::EngineArgs),
}

impl Cli {
    /// Runs the command to its end.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(args) => args.run(),
            Command::Image(args) => args.run(),
            Command::Engine(args) => args.run(),
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
