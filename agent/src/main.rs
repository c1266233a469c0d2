//! The `coracle-agent` command.

use clap::Parser;
use coracle_agent::cli::Cli;

fn main() -> anyhow::Result<()> {
    Cli::parse().run()
}
