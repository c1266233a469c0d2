//! Pods through kubectl, on a server and an agent with the built-in engine, as root, in namespaces of their own.
#![allow(clippy::unwrap_used, missing_docs)]

mod cluster;
mod life;
mod containers;
mod volumes;
mod refusals;
mod survival;

/// Runs every test of this suite again inside fresh namespaces; they are ignored outside. `CORACLE_ONLY` names one.
#[test]
fn in_namespaces() {
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
        .args(std::env::var("CORACLE_ONLY").ok())
        .env("CORACLE_NETNS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "the suite inside failed: {status}");
}
