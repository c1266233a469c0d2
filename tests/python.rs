//! The official Python client and other packages from PyPI, each in an environment of its own that is kept beside the build.

use std::path::PathBuf;
use std::process::Command;

/// Runs a command, and shows what it wrote if it fails.
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}

/// The interpreter of an environment with the client installed.
///
/// # Panics
/// If it cannot be installed.
pub fn python() -> PathBuf {
    environment("python-client", "kubernetes")
}

/// The interpreter of an environment with a package installed.
pub(crate) fn environment(name: &str, package: &str) -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let target = program.ancestors().nth(3).expect("a target directory");
    let dir = target.join(name);
    let interpreter = dir.join("bin/python");
    // Suites that run at the same time install it once.
    std::fs::create_dir_all(target).expect("a directory");
    let lock = std::fs::File::create(target.join(format!("{name}.lock"))).expect("a file");
    lock.lock().expect("a lock");
    if !dir.join("ready").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
        run(Command::new(&interpreter).args(["-m", "pip", "install", "--quiet", package]));
        std::fs::write(dir.join("ready"), "").expect("a file");
    }
    interpreter
}
