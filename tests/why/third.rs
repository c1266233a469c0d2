//! A third node that is small: it has room for three pods, a taint that keeps others away, and a disk of its own in memory that
//! a test can fill.

use coracle_tests::cluster::Cluster;
use coracle_tests::program;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;
use std::process::Command;

/// Its name.
pub const NAME: &str = "node-3";
/// Its taint.
pub const TAINT: &str = "example.com/small=yes:NoSchedule";
/// More than the threshold of `coracle up` for full disks, 512 MiB.
const DISK: &str = "size=760m,mode=755";
/// Leaves less than that.
const FILLING: &str = "400M";

/// Adds the node to a cluster of two. Its disk is mounted only in the node's own namespaces.
pub fn start(cluster: &Cluster) {
    let dir = cluster.data_dir().join(NAME);
    std::fs::create_dir_all(&dir).expect("a directory");
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNS).expect("root may do that");
            let none: Option<&str> = None;
            mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private mounts");
            mount(Some("disk"), dir.as_path(), Some("tmpfs"), MsFlags::empty(), Some(DISK))
                .expect("a disk in memory");
            up(cluster.data_dir());
        });
        thread.join().expect("no panic");
    });
}

fn up(data_dir: &Path) {
    let images = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/images"));
    let output = Command::new(program("coracle"))
        .args(["up", "--nodes", "3", "--data-dir"])
        .arg(data_dir)
        .arg("--image")
        .arg(images.join("busybox.tar"))
        .arg(format!("--agent-flag=--register-with-taints={TAINT}"))
        .arg("--agent-flag=--max-pods=3")
        .env("CORACLE_OUTBOUND", "false")
        .output()
        .expect("coracle up can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Fills the disk of the node.
pub fn fill(cluster: &Cluster) {
    let path = cluster.data_dir().join(NAME).join("filling");
    let said = cluster.inside(NAME, &["fallocate", "-l", FILLING, &path.display().to_string()]);
    assert_eq!(said, "", "the disk of {NAME} could not be filled");
}

/// Puts a network configuration whose plugin does not exist before that of the agent, or takes it away again.
pub fn set_network(cluster: &Cluster, broken: bool) {
    let path = cluster.data_dir().join(NAME).join("cni/00-broken.conflist").display().to_string();
    let config = r#"{"cniVersion": "1.0.0", "name": "broken", "plugins": [{"type": "no-such-plugin"}]}"#;
    let script = match broken {
        true => format!("echo '{config}' > {path}"),
        false => format!("rm {path}"),
    };
    let said = cluster.inside(NAME, &["sh", "-c", &script]);
    assert_eq!(said, "", "the network of {NAME}");
}

/// Stops the node's agent in its tracks, or lets it go on.
pub fn set_stopped(cluster: &Cluster, stopped: bool) {
    use nix::sys::signal::{Signal, kill};
    let signal = if stopped { Signal::SIGSTOP } else { Signal::SIGCONT };
    let pid = i32::try_from(cluster.agent_pid(NAME)).expect("a pid");
    kill(nix::unistd::Pid::from_raw(pid), signal).expect("the agent runs");
}
