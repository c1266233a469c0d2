//! The `coracle-agent` command.

use coracle_agent::cli::Cli;

fn main() -> anyhow::Result<()> {
    Cli::read()?.run()
}
