//! A server and a node of one's own, an image for it, and a picture of what pods leave behind.
#![allow(clippy::unwrap_used, missing_docs, clippy::missing_panics_doc)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use crate::caller::{Caller, token};
use crate::kubectl::{self, Kubectl};
use crate::server::Server;
use crate::{eventually, namespaces, program};
use serde_json::Value;

use crate::containerd::Containerd;

pub const IMAGE: &str = "example.test/busybox:1";
const WAIT: Duration = Duration::from_secs(60);

pub fn run(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Mounts and links that all tests of the process share.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(namespaces::is_inside(), "run by in_namespaces, not directly");
        // containerd takes the host's cgroups as they are.
        if !Containerd::is_wanted() {
            run("mount -t sysfs sysfs /sys && mount -t cgroup2 none /sys/fs/cgroup");
        }
        run("mount -t tmpfs tmpfs /run
             hostname node1; ip link set lo up; ip link add eth0 type veth peer name outside
             ip addr add 192.0.2.10/24 dev eth0; ip link set eth0 up; ip link set outside up");
    });
}

/// A docker archive with a static busybox whose every applet is there.
pub fn archive(dir: &Path) -> PathBuf {
    let d = dir.display();
    run(&format!(
        "set -e; mkdir -p {d}/root/bin {d}/root/etc {d}/root/tmp {d}/image; cp $(command -v busybox) {d}/root/bin/busybox
         for f in $(busybox --list); do [ $f = busybox ] || ln -s busybox {d}/root/bin/$f; done
         printf 'root:x:0:0::/root:/bin/sh\\nweb:x:1000:1000::/:/bin/sh\\n' > {d}/root/etc/passwd
         tar -C {d}/root -cf {d}/image/layer.tar ."
    ));
    let digest = run(&format!("sha256sum {d}/image/layer.tar | cut -d' ' -f1"));
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = serde_json::json!({
        "architecture": arch, "os": "linux", "config": {"Cmd": ["sh"], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", digest.trim())]},
    });
    let manifest =
        serde_json::json!([{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]);
    fs::write(dir.join("image/config.json"), config.to_string()).unwrap();
    fs::write(dir.join("image/manifest.json"), manifest.to_string()).unwrap();
    run(&format!("tar -C {d}/image -cf {d}/busybox.tar manifest.json config.json layer.tar"));
    dir.join("busybox.tar")
}

/// Loads an archive into the images of a node.
pub fn import(images: &Path, archive: &Path) {
    let import = Command::new(program("coracle-agent"))
        .args(["image", "--image-dir"])
        .arg(images)
        .arg("import")
        .arg(archive)
        .output()
        .unwrap();
    assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
}

/// A server, an agent and kubectl; everything is gone when dropped.
pub struct Cluster {
    dir: tempfile::TempDir,
    pub server: Server,
    agent: Option<Child>,
    pub kubectl: Kubectl,
    cgroup: String,
    flags: String,
    /// Whether the agent has the certificate of a node, and not the administrator's.
    joined: bool,
    containerd: Option<Containerd>,
    /// Environment of the agent.
    pub environment: Vec<(String, String)>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// With more flags for the agent.
    pub fn start_with(flags: &str) -> Self {
        Self::start_on(None, flags)
    }

    /// With a file system of its own for all that the node keeps, of so many MiB.
    pub fn start_on(disk: Option<u32>, flags: &str) -> Self {
        Self::start_as(false, disk, flags)
    }

    /// With an agent that has joined and may do what a node may: the Node authorizer and NodeRestriction decide.
    #[allow(dead_code, reason = "not for every suite")]
    pub fn start_joined_with(flags: &str) -> Self {
        Self::start_as(true, None, flags)
    }

    fn start_as(joined: bool, disk: Option<u32>, flags: &str) -> Self {
        prepare();
        let dir = tempfile::tempdir().unwrap();
        if let Some(size) = disk {
            run(&format!("mount -t tmpfs -o size={size}m tmpfs {}", dir.path().display()));
        }
        // Pods with a user namespace must get to their own part of it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        fs::create_dir(dir.path().join("manifests")).unwrap();
        // In memory, as `/run` is on a node: the OCI runtime waits for its pid file to be on disk.
        run(&format!("mkdir {0}/run && mount -t tmpfs -o mode=711 tmpfs {0}/run", dir.path().display()));
        let tar = archive(dir.path());
        let containerd = Containerd::is_wanted().then(|| Containerd::start(dir.path(), &tar));
        if containerd.is_none() {
            import(&dir.path().join("engine/images"), &tar);
        }
        let server = Server::start();
        let kubectl = kubectl::newest(&server.kubeconfig());
        let mut cluster = Self {
            dir,
            server,
            agent: None,
            kubectl,
            cgroup: namespaces::cgroup(&name),
            flags: flags.to_owned(),
            joined,
            containerd,
            environment: vec![],
        };
        if joined {
            cluster.join();
        }
        cluster.start_agent();
        let admin = Caller::admin(&cluster.server);
        eventually("the node is ready", WAIT, || {
            condition(&admin.get("/api/v1/nodes/node1").1["status"], "Ready") == "True"
        });
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Gets a kubeconfig of the node for the agent, as on a machine that joins.
    fn join(&self) {
        let output = Command::new(program("coracle-agent"))
            .args(["join", "--server", &self.server.url(), "--token", &token(&self.server, &[])])
            .args(["--node-name", "node1", "--root-dir"])
            .arg(self.path("agent"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn start_agent(&mut self) {
        self.start_agent_with("");
    }

    /// Kills server and agent and starts both with more flags, this time only.
    #[allow(dead_code, reason = "not for every suite")]
    pub fn restart_with(&mut self, server: &[&str], agent: &str) {
        self.kill_agent();
        self.server.stop();
        self.server.restart_with(server);
        self.start_agent_with(agent);
    }

    fn start_agent_with(&mut self, more: &str) {
        let d = self.dir.path().display();
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("agent.log")).unwrap();
        let plugins = match self.flags.contains("--cni-bin-dir") {
            true => "",
            false => "--cni-bin-dir /usr/lib/cni --cni-bin-dir /opt/cni/bin",
        };
        let eviction = match self.flags.contains("--eviction-hard") {
            true => "",
            false => "--eviction-hard memory.available<1Mi",
        };
        let flags = format!(
            "run --node-name node1 --node-ip 192.0.2.10 --root-dir {d}/agent --kubelet-dir {d}/kubelet --memory-dir {d}/memory --pod-log-dir {d}/logs --container-log-dir {d}/log-links \
             --manifests {d}/manifests --root {d}/engine --state {d}/run --cri-socket {d}/cri.sock --cni-conf-dir {d}/net.d \
             {plugins} --cni-cache-dir {d}/cni --cgroup-root {} \
             --cluster-dns 10.96.0.10 {eviction}",
            self.cgroup
        );
        let kubeconfig = if self.joined { self.path("agent/kubeconfig") } else { self.server.kubeconfig() };
        let agent = Command::new(program("coracle-agent"))
            .args(flags.split_whitespace())
            .args(self.flags.split_whitespace())
            .args(more.split_whitespace())
            .args(
                self.containerd
                    .iter()
                    .flat_map(|c| ["--container-runtime-endpoint".into(), c.socket.clone()]),
            )
            .envs(self.environment.iter().cloned())
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.agent = Some(agent);
    }

    #[allow(dead_code)]
    pub fn agent_pid(&self) -> u32 {
        self.agent.as_ref().map_or(0, Child::id)
    }

    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }

    /// Kills the agent and starts it with more flags.
    #[allow(dead_code, reason = "not for every suite")]
    pub fn restart_agent_with(&mut self, flags: &str) {
        self.kill_agent();
        self.flags = format!("{} {flags}", self.flags);
        self.start_agent();
    }

    /// The process that containers live under.
    #[allow(dead_code, reason = "not for every suite")]
    pub fn keeper_pid(&self) -> u32 {
        let run = self.path("run").display().to_string();
        let pids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let command = fs::read_to_string(entry.path().join("cmdline")).ok()?;
            (command.contains("coracle-keeper") && command.contains(&run)).then_some(pid)
        });
        pids.min().expect("a keeper")
    }

    /// Waits until the agent has ended by itself.
    #[allow(dead_code, reason = "not for measurements")]
    pub fn wait_agent_ended(&mut self) {
        let Some(mut agent) = self.agent.take() else { return };
        eventually("the agent ends", WAIT, || agent.try_wait().unwrap().is_some());
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("agent.log")).unwrap_or_default()
    }

    /// Applies a pod given as its spec's fields in YAML flow style.
    pub fn pod(&self, name: &str, spec: &str) {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{app: {name}}}}}, spec: {{terminationGracePeriodSeconds: 1, {spec}}}}}"
        );
        self.apply(&text);
    }

    pub fn apply(&self, yaml: &str) {
        self.kubectl.run_with("apply --validate=false -f -", yaml);
    }

    /// The pod's object. Not by kubectl: it takes ten times the CPU time, and most of a suite is waiting for pods.
    pub fn get(&self, name: &str) -> Value {
        let (code, pod) = Caller::admin(&self.server).get(&format!("/api/v1/namespaces/default/pods/{name}"));
        assert_eq!(code, 200, "{name}: {pod}");
        pod
    }

    /// Waits until the pod's status satisfies a condition; the status.
    pub fn wait(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        self.wait_for(WAIT, name, what, check)
    }

    /// The same for what takes longer.
    pub fn wait_for(
        &self,
        patience: Duration,
        name: &str,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> Value {
        let mut last = Value::Null;
        let begun = std::time::Instant::now();
        while begun.elapsed() < patience {
            last = self.get(name)["status"].clone();
            if check(&last) {
                return last;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{name}: {what}: not within {patience:?}; status {last:#}\n{}", self.log());
    }

    pub fn wait_phase(&self, name: &str, phase: &str) -> Value {
        self.wait(name, phase, |status| status["phase"] == phase)
    }

    pub fn wait_ready(&self, name: &str) -> Value {
        self.wait(name, "Ready", |status| condition(status, "Ready") == "True")
    }

    /// Waits for a container's waiting reason; its message.
    pub fn wait_waiting(&self, name: &str, reason: &str) -> String {
        let status = self.wait(name, reason, |status| {
            status["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
        });
        status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default().to_owned()
    }

    /// What a container wrote, in its n-th run.
    pub fn output(&self, pod: &str, container: &str, attempt: u32) -> String {
        let uid = self.get(pod)["metadata"]["uid"].as_str().unwrap().to_owned();
        let path = self.path("logs").join(format!("default_{pod}_{uid}/{container}/{attempt}.log"));
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n")
    }

    pub fn delete(&self, names: &str) {
        self.kubectl.run(&format!("delete pod {names} --wait=true"));
    }

    /// Everything pods could leave: mounts, links, addresses, cgroups, files, processes.
    pub fn picture(&self) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut add = |kind: &str, text: &str| {
            seen.extend(
                text.lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty())
                    .map(|line| format!("{kind} {line}")),
            );
        };
        add("mount", &run("cut -d' ' -f5 /proc/self/mountinfo"));
        add("link", &run("ip -o link | cut -d: -f2 | cut -d@ -f1"));
        add("cgroup", &run(&format!("find /sys/fs/cgroup{} -name 'pod*' 2>/dev/null || true", self.cgroup)));
        let d = self.dir.path().display();
        // The node's own certificate may come at any time, and stays; records of its work are kept by size and age.
        add(
            "file",
            &run(&format!(
                "cd {d}; find agent memory logs log-links run/containers run/sandboxes engine/containers engine/sandboxes \
                 \\( -path agent/pki -o -path agent/trace \\) -prune -o -print 2>/dev/null || true"
            )),
        );
        add("address", &run("ls /var/lib/cni/networks/cbr0 2>/dev/null | grep -E '^[0-9]' || true"));
        add("process", &run("ps -eo args | grep -E '^(sleep|httpd|sh -c trap)' || true"));
        seen
    }
}

pub fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    let all = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        self.kill_agent();
        if let Some(spans) = coracle_timeline::shared_memory::path(&self.path("agent")) {
            let _ = fs::remove_file(spans);
        }
        // The keeper and the containers of a test that failed.
        let cgroup = format!("/sys/fs/cgroup{}", self.cgroup);
        let run_dir = self.path("run").display().to_string();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).into_owned();
            if command.contains("coracle-keeper")
                && command.contains(&run_dir)
                && let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>()
            {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
        }
        namespaces::remove_cgroup(Path::new(&cgroup));
        let _ = Command::new("sh")
            .args(["-c", "ip link del coracle0; rm -rf /var/lib/cni/networks/cbr0"])
            .stderr(Stdio::null())
            .status();
        let _ = Command::new("sh")
            .args(["-c", &format!("for m in $(cut -d' ' -f5 /proc/self/mountinfo | grep '^{}' | sort -r); do umount -l $m; done", self.dir.path().display())])
            .status();
    }
}
