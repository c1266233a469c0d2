//! The `coracle-agent` command.

#![forbid(unsafe_code)]

use coracle_agent::cli::Cli;

fn main() -> anyhow::Result<()> {
    Cli::read()?.run(&coracle_cli::version!(coracle_proto::version::KUBERNETES))
}
