//! The `coracle-agent` command.

#![forbid(unsafe_code)]

use coracle_agent::cli::Cli;
use coracle_cli::causes;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", causes::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    Cli::read()?.run(&coracle_cli::version!(coracle_proto::version::KUBERNETES))
}
