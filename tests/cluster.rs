//! A whole cluster of one's own: `coracle up` in a temporary directory, ended and checked for leftovers when dropped.

use crate::kubectl::{Kubectl, newest};
use crate::program;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A running cluster.
pub struct Cluster {
    dir: tempfile::TempDir,
    flags: Vec<String>,
}

impl Cluster {
    /// Starts one with so many nodes and the test images loaded.
    ///
    /// # Panics
    /// Without root: a cluster makes namespaces.
    pub fn start(nodes: usize) -> Self {
        Self::start_with(nodes, &[])
    }

    /// The same with more flags of `coracle up`.
    ///
    /// # Panics
    /// Without root: a cluster makes namespaces.
    pub fn start_with(nodes: usize, flags: &[&str]) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this suite makes namespaces and mounts: run it as root");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let cluster = Self { dir, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() };
        cluster.up(nodes);
        // Pods need it, and a controller makes it.
        let kubectl = cluster.kubectl();
        crate::eventually("the default service account", std::time::Duration::from_secs(60), || {
            kubectl.try_with("get serviceaccount default", "").ok
        });
        cluster
    }

    /// Starts what is not running.
    ///
    /// # Panics
    /// When something does not come up.
    pub fn up(&self, nodes: usize) {
        self.up_with(nodes, &[]);
    }

    /// The same with more flags of `coracle up`, which count for what is started now.
    ///
    /// # Panics
    /// When something does not come up.
    pub fn up_with(&self, nodes: usize, flags: &[&str]) {
        let mut command = Command::new(program("coracle"));
        command.arg("up").arg("--data-dir").arg(self.dir.path());
        command.args(["--bind", "127.0.0.1:0", "--nodes", &nodes.to_string()]);
        command.args(&self.flags).args(flags).env("CORACLE_OUTBOUND", "false");
        for image in images() {
            command.arg("--image").arg(image);
        }
        let output = command.output().expect("coracle up can be started");
        assert!(output.status.success(), "coracle up:\n{}", text(&output));
    }

    /// Its state.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The newest kubectl, as administrator.
    pub fn kubectl(&self) -> Kubectl {
        newest(&self.dir.path().join("admin.kubeconfig"))
    }

    /// What `coracle up` noted of a node: `holder`, `agent` (who keeps it running), `address`.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn node(&self, name: &str) -> Value {
        let state = std::fs::read(self.dir.path().join("up.json")).expect("the cluster is up");
        let state: Value = serde_json::from_slice(&state).expect("JSON");
        let mut nodes = state["nodes"].as_array().expect("nodes").iter();
        nodes.find(|n| n["name"] == name).expect("the node is there").clone()
    }

    /// A node's agent itself, which is the child of the process that starts it again when it fails.
    ///
    /// # Panics
    /// When it does not run.
    pub fn agent_pid(&self, node: &str) -> u32 {
        let supervisor = self.node(node)["agent"]["pid"].as_i64().expect("an agent");
        children(supervisor).first().copied().expect("the agent runs") as u32
    }

    /// The process that keeps the network of the server and of the bridge between nodes.
    ///
    /// # Panics
    /// When the cluster is not up.
    pub fn hub(&self) -> u32 {
        let state = std::fs::read(self.dir.path().join("up.json")).expect("the cluster is up");
        let state: Value = serde_json::from_slice(&state).expect("JSON");
        state["hub"]["pid"].as_u64().expect("a hub") as u32
    }

    /// Kills a node's agent and returns once it is gone: `up` leaves alone what still runs.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill_agent(&self, node: &str) {
        let pid = self.node(node)["agent"]["pid"].as_i64().expect("an agent");
        kill_and_wait(pid);
    }

    /// The same for the server.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill_server(&self) {
        let state = std::fs::read(self.dir.path().join("up.json")).expect("the cluster is up");
        let state: Value = serde_json::from_slice(&state).expect("JSON");
        kill_and_wait(state["server"]["pid"].as_i64().expect("a server"));
    }

    /// The end of a node's agent's log, for those who must find out what went wrong.
    pub fn told(&self, node: &str) -> String {
        let log = std::fs::read_to_string(self.dir.path().join(node).join("agent.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let warnings = lines.iter().copied().filter(|line| line.contains("WARN") || line.contains("ERROR"));
        let warnings: Vec<&str> = warnings.collect();
        let tail = |lines: &[&str], count: usize| lines[lines.len().saturating_sub(count)..].join("\n");
        format!("--- {node}: warnings\n{}\n--- {node}: last\n{}", tail(&warnings, 20), tail(&lines, 10))
    }

    /// Runs a command inside a node's network and mounts.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn inside(&self, node: &str, command: &[&str]) -> String {
        let holder = self.node(node)["holder"]["pid"].to_string();
        let output = Command::new("nsenter")
            .args(["-t", &holder, "--net", "--mount", "--"])
            .args(command)
            .output()
            .expect("nsenter can be started");
        text(&output)
    }

    /// The network namespace of a pod, as a path on this machine that is valid while the node's agent runs.
    ///
    /// # Panics
    /// When no sandbox of the node has the address.
    pub fn pod_netns(&self, node: &str, ip: &str) -> PathBuf {
        let records = self.dir.path().join(node).join("engine/sandboxes");
        let found = std::fs::read_dir(&records).into_iter().flatten().flatten().find_map(|entry| {
            let record: Value = serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok()?;
            let here = record["ips"].as_array()?.iter().any(|of| of == ip);
            (here && record["phase"] == "ready").then(|| record["id"].as_str().map(str::to_owned))?
        });
        let id = found.unwrap_or_else(|| panic!("no sandbox of {node} has {ip}"));
        let agent = self.agent_pid(node);
        PathBuf::from(format!("/proc/{agent}/root/run/coracle/sandboxes/{id}/ns/net"))
    }

    /// Ends the cluster, its state too.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub fn down(&self) {
        let output = Command::new(program("coracle"))
            .args(["down", "--purge", "--data-dir"])
            .arg(self.dir.path())
            .output()
            .expect("coracle down can be started");
        assert!(output.status.success(), "coracle down:\n{}", text(&output));
    }
}

/// Kills the process that keeps a program running; the program ends with it.
fn kill_and_wait(pid: i64) {
    use nix::sys::signal::{Signal, kill};
    let all = [vec![pid], children(pid)].concat();
    kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it runs");
    crate::eventually("it is gone", std::time::Duration::from_secs(60), || {
        all.iter().all(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
        })
    });
}

fn children(pid: i64) -> Vec<i64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The archives that `scripts/images` made.
fn images() -> Vec<PathBuf> {
    let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/images"));
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = found.filter(|path| path.extension().is_some_and(|e| e == "tar")).collect();
    found.sort();
    assert!(!found.is_empty(), "no test images: run scripts/images first");
    found
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dir.path().exists() {
            let _ = Command::new(program("coracle"))
                .args(["down", "--purge", "--data-dir"])
                .arg(self.dir.path())
                .output();
        }
    }
}
