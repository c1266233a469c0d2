//! The official Python client, from PyPI, in an environment of its own that is kept beside the build.

use crate::on_both_stores;
use std::path::PathBuf;
use std::process::Command;

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
}

/// The interpreter of an environment with the client installed.
fn python() -> PathBuf {
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let dir = target.join("python-client");
    let interpreter = dir.join("bin/python");
    if !dir.join("ready").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
        run(Command::new(&interpreter).args(["-m", "pip", "install", "--quiet", "kubernetes"]));
        std::fs::write(dir.join("ready"), "").unwrap();
    }
    interpreter
}

#[test]
fn the_python_client_works() {
    let python = python();
    let suite = concat!(env!("CARGO_MANIFEST_DIR"), "/api/python_suite.py");
    on_both_stores(|server| run(Command::new(&python).arg(suite).arg(server.kubeconfig())));
}
