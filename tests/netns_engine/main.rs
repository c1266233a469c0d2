//! The container engine over CRI, as root, in mount, network and pid namespaces of its own.
#![allow(clippy::unwrap_used, missing_docs)]

mod node;
mod life;
mod streams;
mod survival;
mod crashes;
mod figures;

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
    let own = std::env::current_exe().unwrap();
    // The shell is the namespace's first process and reaps what the keeper leaves when it is killed.
    let status = std::process::Command::new("unshare")
        .args([
            "-m",
            "-n",
            "-p",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
            "sh",
            "-c",
        ])
        .arg(r#""$0" "$@"; exit $?"#)
        .arg(own)
        .args(["--ignored", "--test-threads=1"])
        .args(std::env::var("CORACLE_ONLY").ok())
        .env("CORACLE_NETNS", "1")
        .status()
        .unwrap();
    assert!(status.success(), "the suite inside failed: {status}");
}
