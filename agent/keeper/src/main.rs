//! The `coracle-keeper` command: `coracle-keeper <run directory>`; the agent starts it. It runs a copy of itself as
//! `coracle-keeper --root <state> exec <request> <pid file> <log>` for a command that enters a container.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coracle_keeper::enter;
use coracle_keeper::server::{Paths, run};

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let args: Vec<&Path> = args.iter().map(PathBuf::as_path).collect();
    let result = match *args {
        // The state is for whoever looks for what works on it.
        [root, _, exec, request, pid_file, log] if root == "--root" && exec == "exec" => {
            // Its stderr is the command's; what went wrong is in the log.
            let started = enter::run(request, pid_file, log);
            return if started.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        [dir] => run(&Paths::under(dir)).map_err(|error| format!("{}: {error}", dir.display())),
        _ => {
            eprintln!("usage: coracle-keeper <run directory>");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("coracle-keeper: {error}");
            ExitCode::FAILURE
        }
    }
}
