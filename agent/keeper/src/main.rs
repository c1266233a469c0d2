//! The `coracle-keeper` command: `coracle-keeper <run directory>`; the agent starts it. It runs a copy of itself as
//! `coracle-keeper --root <state> exec <request> <pid file> <log>` for a command that enters a container.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coracle_keeper::enter;
use coracle_keeper::server::{Paths, run};

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let args: Vec<&Path> = args.iter().map(PathBuf::as_path).collect();
    match *args {
        // `--root <state>` only marks the process: `stale_runtimes` finds it by this argument.
        [root, _, exec, request, pid_file, log] if root == "--root" && exec == "exec" => {
            // stderr belongs to the command, so errors go to the log file.
            let started = enter::run(request, pid_file, log);
            if started.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        [dir] => match run(&Paths::under(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("coracle-keeper: {}: {error}", dir.display());
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: coracle-keeper <run directory>");
            ExitCode::from(2)
        }
    }
}
