//! Pods through kubectl, on a server and an agent with the built-in engine, as root, in namespaces of their own.
#![allow(clippy::unwrap_used, missing_docs)]

mod cluster;
mod life;
mod containers;
mod volumes;
mod refusals;
mod node;
mod survival;

/// What is run again with containerd in the place of the built-in engine.
const THROUGH_CONTAINERD: [&str; 4] =
    ["life::run_answers", "containers::", "volumes::", "survival::pods_go_on"];

/// Runs every test of this suite again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
#[test]
fn in_namespaces() {
    let only = std::env::var("CORACLE_ONLY").ok();
    inside("coracle", &only.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The same pods with Debian's containerd behind `--container-runtime-endpoint`.
#[test]
fn through_containerd() {
    inside("containerd", &THROUGH_CONTAINERD);
}

fn inside(runtime: &str, only: &[&str]) {
    if std::env::var_os("CORACLE_NETNS").is_some() {
        return;
    }
    assert!(
        nix::unistd::geteuid().is_root(),
        "this suite needs root: it makes namespaces, mounts and cgroups"
    );
    let status = std::process::Command::new("unshare")
        .args(["-m", "-n", "-p", "-u", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        // The shell is the namespace's first process and reaps what is left when an agent is killed.
        .args(["sh", "-c", r#""$0" "$@"; exit $?"#])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--test-threads=1"])
        .args(only)
        .env("CORACLE_NETNS", "1")
        .env("CORACLE_RUNTIME", runtime)
        .status()
        .unwrap();
    assert!(status.success(), "the suite inside failed with {runtime}: {status}");
}
