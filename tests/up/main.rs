//! What a newcomer runs: `coracle up`, `down` and `doctor`, in a sandbox where everything that is left can be seen. Needs root.

#![allow(missing_docs, clippy::unwrap_used)]

use coracle_tests::program;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const TREE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Where the programs were built.
fn bin() -> PathBuf {
    program("coracle").parent().unwrap().to_owned()
}

/// Runs a script as the first process of new pid, mount, network and host name namespaces.
fn in_sandbox(script: &str) -> Output {
    assert!(nix::unistd::geteuid().is_root(), "this suite makes namespaces and mounts: run it as root");
    Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--uts", "--fork", "--mount-proc", "--kill-child"])
        .args(["--propagation", "private", "bash"])
        .arg(Path::new(TREE).join("tests/up").join(script))
        .env("BIN", bin())
        .env("TREE", TREE)
        .env("CORACLE_OUTBOUND", "false")
        .output()
        .unwrap()
}

#[test]
fn down_leaves_nothing_and_a_second_up_changes_nothing() {
    let output = in_sandbox("leaves_nothing.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("nothing is left\n"), "{text}");
}

#[test]
fn pods_reach_what_the_machine_reaches_or_are_refused_at_once() {
    let output = in_sandbox("way_out.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("in and out\n"), "{text}");
}

#[test]
fn a_cluster_is_as_before_and_what_is_not_done_is_said() {
    let output = in_sandbox("as_before.sh");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.ends_with("as before\n"), "{text}");
}

#[test]
fn doctor_finds_this_machine_fit_and_says_what_is_missing_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let doctor = |flags: &[&str]| {
        let mut command = Command::new(program("coracle"));
        command.args(["doctor", "--data-dir"]).arg(dir.path()).args(flags);
        command
    };
    let outcome = |report: &Value, name: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|f| f["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {report}"))["outcome"].as_str().unwrap().to_owned()
    };
    let output = doctor(&["--json"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for name in ["overlayfs", "veth", "bridge", "vxlan", "nftables nat", "runc or crun or youki"] {
        assert_eq!(outcome(&report, name), "ok", "{report:#}");
    }
    // Nothing stays of what was tried.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

    let output = doctor(&["--json"]).env("PATH", "").output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        (report["fit"].as_bool(), outcome(&report, "runc or crun or youki").as_str()),
        (Some(false), "missing")
    );
    assert!(text(&output).contains("apt-get install runc"));
    // What could not be tried says nothing of the kernel.
    for name in ["veth", "nftables nat"] {
        assert_eq!(outcome(&report, name), "limited", "{report:#}");
    }
}

#[test]
fn the_usage_is_the_command_s_own() {
    let output = Command::new(program("coracle")).args(["up", "--image", "x", "--wrong"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("Usage: coracle up [OPTIONS]\n"), "{}", text(&output));
}

#[test]
fn without_root_it_says_so() {
    let copy = tempfile::tempdir().unwrap();
    let script = copy.path().join("scripts");
    let copied =
        Command::new("cp").arg("-r").arg(Path::new(TREE).join("scripts")).arg(&script).status().unwrap();
    assert!(copied.success());
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    std::fs::set_permissions(copy.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = command.arg(script.join("up")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("needs root: sudo scripts/up"), "{}", text(&output));
}
