//! A suite run again in namespaces of its own; nothing of it stays on the machine, however it ends.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Set inside, so that nobody goes in twice.
const INSIDE: &str = "CORACLE_NETNS";
/// What the names of all cgroups of a run begin with.
const CGROUP: &str = "CORACLE_TEST_CGROUP";
/// Plugins of CNI keep addresses here, and containerd its results, whatever they are told. Suites that run at the same time
/// must not see each other's, and the machine none of them.
const OWN_MOUNTS: &str = "mkdir -p /var/lib/cni && mount -t tmpfs tmpfs /var/lib/cni";
/// What is killed is gone by then.
const PATIENCE: Duration = Duration::from_secs(20);

/// True in the namespaces.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program again with these arguments in fresh mount, network, pid and host name namespaces.
///
/// Its temporary directories and cgroups carry the number of this process in their names, so that `scripts/test` knows
/// those of a run that was killed.
///
/// # Panics
/// Without root.
pub fn run_again<S: AsRef<OsStr>>(args: &[S], environment: &[(&str, &OsStr)]) -> ExitStatus {
    assert!(nix::unistd::geteuid().is_root(), "this needs root: it makes namespaces, mounts and cgroups");
    // Short: sockets of drivers lie five levels below it, and the path of a socket has at most 107 bytes.
    let prefix = format!("coracle-t{}-", std::process::id());
    let scratch = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary directory");
    // Pods with a user namespace must get to their own part of it.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).expect("its permissions");
    let name = scratch.path().file_name().expect("it has a name").to_string_lossy();
    let name = name.replacen("coracle-t", "coracle-test-", 1);
    let status = Command::new("unshare")
        .args(["-m", "-n", "-p", "-u", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"])
        // The shell is the namespace's first process and reaps what is left when somebody is killed.
        .args(["sh", "-c", &format!(r#"{OWN_MOUNTS} || exit 1; "$0" "$@"; exit $?"#)])
        .arg(std::env::current_exe().expect("a test knows its own path"))
        .args(args)
        .env(INSIDE, "1")
        .env("TMPDIR", scratch.path())
        .env(CGROUP, &name)
        .envs(environment.iter().copied())
        .status()
        .expect("unshare can be started");
    for entry in hierarchies().iter().flat_map(|root| directories(root)) {
        if entry.file_name().is_some_and(|own| own.to_string_lossy().starts_with(&name)) {
            remove_cgroup(&entry);
        }
    }
    status
}

/// The name of a cgroup of this run, from the root of the hierarchy.
pub fn cgroup(name: &str) -> String {
    let prefix = std::env::var(CGROUP).unwrap_or_else(|_| format!("coracle-test-{}-", std::process::id()));
    format!("/{prefix}{name}")
}

/// Where the machine has its cgroups: one hierarchy, or, before version 2, one per controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut all = vec![root.to_owned()];
    if !root.join("cgroup.controllers").exists() {
        all.extend(directories(root));
    }
    all
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect()
}

/// Kills all in a cgroup and removes it with those below.
pub fn remove_cgroup(path: &Path) {
    let begun = Instant::now();
    while path.exists() && begun.elapsed() < PATIENCE {
        let _ = fs::write(path.join("cgroup.kill"), "1");
        remove_dirs(path);
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn remove_dirs(path: &Path) {
    directories(path).iter().for_each(|child| remove_dirs(child));
    let _ = fs::remove_dir(path);
}
