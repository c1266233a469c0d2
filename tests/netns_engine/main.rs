//! The container engine over CRI, as root, in mount, network and pid namespaces of its own.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, missing_docs)]

mod node;
mod life;
mod users;
mod streams;
mod entry;
mod confinement;
mod pulls;
mod rough;
mod survival;
mod hooks;
mod crashes;

use coracle_tests::{namespaces, skipped};

/// What is run again through every OCI runtime; the rest does not touch it.
const THROUGH_EVERY_RUNTIME: [&str; 3] = ["life::", "streams::", "survival::"];

/// Runs every test of this suite again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
#[test]
fn in_namespaces() {
    let only = std::env::var("CORACLE_ONLY").ok();
    let runtime = std::env::var("CORACLE_OCI_RUNTIME").unwrap_or_else(|_| "runc".into());
    inside(&runtime, &only.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The same through crun; `CORACLE_CRUN` names another than the one on the path.
#[test]
fn through_crun() {
    let path = std::env::var("CORACLE_CRUN").unwrap_or_else(|_| "crun".into());
    let version = version_of(&path).unwrap_or_else(|| panic!("{path} is not installed: scripts/deps test"));
    let number = |at: usize| version.split('.').nth(at).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    if (number(0), number(1)) < (1, 21) && cgroups_are_bare() {
        let reason = format!(
            "crun {version} cannot run a container with device rules where cgroup2 has no controllers; 1.21 can"
        );
        return skipped("netns_engine::through_crun", &reason);
    }
    inside(&path, &THROUGH_EVERY_RUNTIME);
}

/// The same through youki; `CORACLE_YOUKI` names another than the one on the path.
#[test]
fn through_youki() {
    let path = std::env::var("CORACLE_YOUKI").unwrap_or_else(|_| "youki".into());
    if version_of(&path).is_none() {
        let reason =
            format!("{path} is not installed: cargo install youki --locked --features v1,v2,seccomp");
        return skipped("netns_engine::through_youki", &reason);
    }
    inside(&path, &THROUGH_EVERY_RUNTIME);
}

/// The same through our own runtime, which is built with the rest.
#[test]
fn through_coracle() {
    let path = coracle_tests::program("coracle-runtime");
    inside(path.to_str().unwrap(), &THROUGH_EVERY_RUNTIME);
}

/// User namespaces, which only runc has otherwise, and commands, through our own runtime.
#[test]
fn users_and_commands_through_coracle() {
    if is_own_runtime_wanted("users_and_commands_through_coracle") {
        inside(coracle_tests::program("coracle-runtime").to_str().unwrap(), &["users::", "entry::"]);
    }
}

/// Our own runtime does not do everything as runc does yet: what is known to differ is compared on request.
fn is_own_runtime_wanted(test: &str) -> bool {
    let wanted = std::env::var_os("CORACLE_COMPARE_RUNTIMES").is_some();
    if !wanted {
        let reason = "needs CORACLE_COMPARE_RUNTIMES=1: coracle-runtime still differs from runc";
        skipped(&format!("netns_engine::{test}"), reason);
    }
    wanted
}

/// The version a runtime says it has; `None` when it is not there.
fn version_of(runtime: &str) -> Option<String> {
    let output = std::process::Command::new(runtime).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let word = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    Some(word.unwrap_or_default().to_owned())
}

/// True when the host's cgroup2 hierarchy has not even the pids controller to give.
fn cgroups_are_bare() -> bool {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let controllers =
        read("/sys/fs/cgroup/cgroup.controllers") + &read("/sys/fs/cgroup/unified/cgroup.controllers");
    !controllers.contains("pids")
}

fn inside(runtime: &str, only: &[&str]) {
    if namespaces::is_inside() {
        return;
    }
    let args: Vec<&str> = ["--ignored", "--test-threads=1"].iter().chain(only).copied().collect();
    let status = namespaces::run_again(&args, &[("CORACLE_OCI_RUNTIME", runtime.as_ref())]);
    assert!(status.success(), "the suite inside failed through {runtime}: {status}");
}
