//! The `coracle-keeper` command: `coracle-keeper <run directory>`; the agent starts it.

use std::path::PathBuf;
use std::process::ExitCode;

use coracle_agent::keeper::server::{Paths, run};

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: coracle-keeper <run directory>");
        return ExitCode::from(2);
    };
    match run(&Paths::under(&dir)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coracle-keeper: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}
