//! An engine of one's own, an image for it, and a picture of what it leaves behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use coracle_engine::image::ImageStore;
use coracle_engine::runtime::{Containers, CriRuntime, Execs, Runtime, Sandboxes};
use coracle_proto::cri;
use coracle_tests::{namespaces, program};

pub const IMAGE: &str = "example.test/busybox:1";

/// Mounts that all tests of the process share.
fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        assert!(namespaces::is_inside(), "run by in_namespaces, not directly");
        run("mount -t sysfs sysfs /sys && mount -t cgroup2 none /sys/fs/cgroup && ip link set lo up");
    });
}

pub fn run(script: &str) -> String {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The OCI runtime of this run.
pub fn runtime() -> String {
    std::env::var("CORACLE_OCI_RUNTIME").unwrap_or_else(|_| "runc".into())
}

/// A docker archive with a static busybox, made once.
pub fn archive() -> &'static Path {
    static ARCHIVE: OnceLock<tempfile::TempDir> = OnceLock::new();
    let dir = ARCHIVE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path().display();
        run(&format!(
            "set -e; mkdir -p {d}/root/bin {d}/root/etc {d}/root/tmp {d}/image; cp $(command -v busybox) {d}/root/bin/
             for f in sh sleep echo cat httpd kill true false id hostname tty mkdir ls stty wget nc env touch ps dd seq; do
               ln -s busybox {d}/root/bin/$f; done
             ln -s /usr/share/zoneinfo/UTC {d}/root/etc/localtime
             printf 'root:x:0:0::/root:/bin/sh\\nweb:x:101:102::/:/bin/sh\\n' > {d}/root/etc/passwd
             tar -C {d}/root -cf {d}/image/layer.tar ."
        ));
        let digest = run(&format!("sha256sum {d}/image/layer.tar | cut -d' ' -f1"));
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = serde_json::json!({
            "architecture": arch, "os": "linux",
            "config": { "Cmd": ["sh"], "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", digest.trim())] },
        });
        let manifest = serde_json::json!([{ "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }]);
        fs::write(dir.path().join("image/config.json"), config.to_string()).unwrap();
        fs::write(dir.path().join("image/manifest.json"), manifest.to_string()).unwrap();
        run(&format!("tar -C {d}/image -cf {d}/busybox.tar manifest.json config.json layer.tar"));
        dir
    });
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| dir.path().join("busybox.tar"))
}

/// An engine with its directories, network and cgroup; everything is gone when dropped.
pub struct Node {
    dir: tempfile::TempDir,
    engine: Child,
    pub cri: CriRuntime,
    cgroup: String,
}

impl Node {
    pub async fn start() -> Self {
        prepare();
        let dir = tempfile::tempdir().unwrap();
        // Pods with a user namespace must get to their own part of it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let cgroup = namespaces::cgroup(&name);
        let store = ImageStore::open(&dir.path().join("root/images")).unwrap();
        store.import(archive(), None).await.unwrap();
        write_network(dir.path(), "10.88.0.0/24");
        let engine = spawn(dir.path(), &cgroup, &runtime());
        let cri = CriRuntime::new(dir.path().join("cri.sock").to_str().unwrap()).unwrap();
        let node = Self { dir, engine, cri, cgroup };
        node.wait().await;
        node
    }

    /// Gives pods from now on addresses of another range.
    pub fn network(&self, subnet: &str) {
        write_network(self.dir.path(), subnet);
    }

    async fn wait(&self) {
        let begun = Instant::now();
        while self.cri.version().await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "engine: {}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("engine.log")).unwrap_or_default()
    }

    /// Kills the engine without a word.
    pub fn kill_engine(&mut self) {
        self.engine.kill().unwrap();
        self.engine.wait().unwrap();
    }

    pub async fn start_engine(&mut self) {
        self.start_engine_with(&runtime()).await;
    }

    /// With another OCI runtime than before.
    pub async fn start_engine_with(&mut self, runtime: &str) {
        self.engine = spawn(self.dir.path(), &self.cgroup, runtime);
        self.wait().await;
    }

    #[allow(dead_code, reason = "for measurements")]
    pub fn engine_pid(&self) -> i32 {
        self.engine.id() as i32
    }

    pub fn keeper_pid(&self) -> i32 {
        self.keepers().next().expect("a keeper")
    }

    fn keepers(&self) -> impl Iterator<Item = i32> {
        let run = self.path("run").display().to_string();
        let ours = move |command: &str| command.contains("coracle-keeper") && command.contains(&run);
        processes().into_iter().filter(move |(_, command)| ours(command)).map(|(pid, _)| pid)
    }

    /// Waits for a keeper other than this one.
    pub async fn other_keeper(&self, old: i32) {
        let begun = Instant::now();
        while !self.keepers().any(|pid| pid != old) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no new keeper: {}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until a process that was killed is gone.
    pub async fn ended(&self, pid: i32) {
        let begun = Instant::now();
        while Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{pid} is still there: {}", self.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn kill_keeper(&self) -> i32 {
        let pid = self.keeper_pid();
        kill(pid, 9);
        pid
    }

    pub fn sandbox_config(&self, name: &str) -> cri::PodSandboxConfig {
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.into(),
                uid: format!("uid-{name}"),
                namespace: "default".into(),
                attempt: 0,
            }),
            hostname: name.into(),
            log_directory: self.path("logs").join(name).display().to_string(),
            dns_config: Some(cri::DnsConfig { servers: vec!["10.96.0.10".into()], ..Default::default() }),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/kubepods/pod{name}", self.cgroup),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub fn container_config(&self, name: &str, command: &[&str]) -> cri::ContainerConfig {
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: name.into(), attempt: 0 }),
            image: Some(cri::ImageSpec { image: IMAGE.into(), ..Default::default() }),
            command: command.iter().map(|s| s.to_string()).collect(),
            log_path: format!("{name}.log"),
            linux: Some(cri::LinuxContainerConfig {
                security_context: Some(cri::LinuxContainerSecurityContext {
                    seccomp: Some(cri::SecurityProfile::default()),
                    namespace_options: Some(cri::NamespaceOption {
                        pid: cri::NamespaceMode::Container.into(),
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    /// A sandbox whose containers have pid namespaces of their own, as most pods.
    pub async fn sandbox(&self, name: &str) -> String {
        let mut config = self.sandbox_config(name);
        config.linux.as_mut().unwrap().security_context = Some(cri::LinuxSandboxSecurityContext {
            namespace_options: Some(cri::NamespaceOption {
                pid: cri::NamespaceMode::Container.into(),
                ..Default::default()
            }),
            ..Default::default()
        });
        self.cri.run_pod_sandbox(config, "").await.unwrap()
    }

    pub async fn run(&self, sandbox: &str, pod: &str, config: cri::ContainerConfig) -> String {
        let id = self.cri.create_container(sandbox, config, self.sandbox_config(pod)).await.unwrap();
        self.cri.start_container(&id).await.unwrap_or_else(|e| panic!("{e}\n{}", self.log()));
        id
    }

    pub async fn status(&self, id: &str) -> cri::ContainerStatus {
        self.cri.container_status(id, false).await.unwrap().status.unwrap()
    }

    pub async fn exited(&self, id: &str) -> cri::ContainerStatus {
        let begun = Instant::now();
        loop {
            let status = self.status(id).await;
            if status.state() == cri::ContainerState::ContainerExited {
                return status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{id} does not exit: {}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn pid(&self, id: &str) -> i32 {
        let info = self.cri.container_status(id, true).await.unwrap().info;
        let info: serde_json::Value = serde_json::from_str(&info["info"]).unwrap();
        info["pid"].as_i64().unwrap() as i32
    }

    /// Text of a container's log without times, `stream tag text` per line.
    pub fn container_log(&self, pod: &str, name: &str) -> String {
        let text =
            fs::read_to_string(self.path("logs").join(pod).join(format!("{name}.log"))).unwrap_or_default();
        text.lines().map(|l| format!("{}\n", l.split_once(' ').unwrap().1)).collect()
    }

    /// Waits for a line of a container's log, as `container_log` has it.
    pub async fn logged(&self, pod: &str, name: &str, line: &str) {
        let begun = Instant::now();
        while !self.container_log(pod, name).lines().any(|have| have == line) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", self.container_log(pod, name));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn exec(&self, id: &str, script: &str) -> cri::ExecSyncResponse {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        self.cri.exec_sync(id, command, Duration::from_secs(60)).await.unwrap()
    }

    /// What is there now, was not before, and stays. A plugin or runtime that is about to end is no leak, and the kernel
    /// takes links and processes away in its own time: they get some.
    pub async fn left_behind(&self, before: &BTreeSet<String>) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let mut new: Vec<String> = self.picture().difference(before).cloned().collect();
            // A pod's own cgroup is pod life's to remove.
            let pods = format!("cgroup /sys/fs/cgroup{}/kubepods/", self.cgroup);
            new.retain(|line| line.strip_prefix(&pods).is_none_or(|rest| rest.contains('/')));
            if new.is_empty() || begun.elapsed() > Duration::from_secs(60) {
                return new;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Everything on the machine that a pod could leave behind.
    pub fn picture(&self) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut add = |kind: &str, text: &str| {
            seen.extend(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(|l| format!("{kind} {l}")));
        };
        add("mount", &run("cut -d' ' -f5 /proc/self/mountinfo"));
        add("link", &run("ip -o link | cut -d: -f2 | cut -d@ -f1"));
        // Link-local addresses are the kernel's, and come when it gets to it.
        add("addr", &run("ip -o addr | awk '$4 !~ /^fe80:/ {print $2, $4}'"));
        add("nft", &run("nft list ruleset"));
        let root = self.dir.path().display();
        add("cgroup", &run(&format!("find /sys/fs/cgroup{} -type d 2>/dev/null || true", self.cgroup)));
        add(
            "file",
            &run(&format!(
                "cd {root}; find run cni ipam root/containers root/sandboxes root/images/holds/*/* ! -name exits.jsonl ! -name last_reserved_ip.0 ! -path 'run/runtime/.cache*' || true"
            )),
        );
        for (_, command) in processes() {
            if !command.starts_with("sh -c find")
                && !command.starts_with("find")
                && !command.starts_with("cut")
            {
                add("process", &command);
            }
        }
        seen
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("engine log:\n{}", self.log());
        }
        let _ = self.engine.kill();
        let _ = self.engine.wait();
        let run = self.path("run").display().to_string();
        for (pid, command) in processes() {
            if command.contains("coracle-keeper") && command.contains(&run) {
                kill(pid, 9);
            }
        }
        // Of a test that failed half-way.
        let cgroup = format!("/sys/fs/cgroup{}", self.cgroup);
        namespaces::remove_cgroup(Path::new(&cgroup));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        for line in mounts.lines().rev() {
            let at = line.split(' ').nth(4).unwrap();
            if Path::new(at).starts_with(self.dir.path()) {
                let _ = nix::mount::umount2(at, nix::mount::MntFlags::MNT_DETACH);
            }
        }
    }
}

fn write_network(dir: &Path, subnet: &str) {
    // A bridge keeps its address: another range has another one.
    let bridge = if subnet.starts_with("10.88.0.") { "cor0" } else { "cor1" };
    let conf = serde_json::json!({
        "cniVersion": "1.0.0", "name": "test",
        "plugins": [{
            "type": "bridge", "bridge": bridge, "isGateway": true, "hairpinMode": true,
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": subnet }]],
                "dataDir": dir.join("ipam"), "routes": [{ "dst": "0.0.0.0/0" }] },
        }],
    });
    fs::create_dir_all(dir.join("net.d")).unwrap();
    fs::write(dir.join("net.d/10-test.conflist"), conf.to_string()).unwrap();
}

fn spawn(dir: &Path, cgroup: &str, runtime: &str) -> Child {
    let log = fs::OpenOptions::new().append(true).create(true).open(dir.join("engine.log")).unwrap();
    let at = |name: &str| dir.join(name);
    Command::new(program("coracle-agent"))
        .arg("engine")
        .arg("--socket")
        .arg(at("cri.sock"))
        .arg("--root")
        .arg(at("root"))
        .arg("--state")
        .arg(at("run"))
        .arg("--runtime")
        .arg(runtime)
        .arg("--cni-conf-dir")
        .arg(at("net.d"))
        .arg("--cni-bin-dir")
        .arg(program("bridge").parent().unwrap())
        .arg("--cni-cache-dir")
        .arg(at("cni"))
        .arg("--cdi-spec-dir")
        .arg(at("cdi"))
        .arg("--cgroup-parent")
        .arg(cgroup)
        .env("RUST_LOG", "debug,h2=info,hyper=info,tower=info")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

pub fn kill(pid: i32, signal: i32) {
    let _ = nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::try_from(signal).unwrap(),
    );
}

/// Processes with a command line.
pub fn processes() -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let command = |pid: i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned();
        (!line.is_empty()).then_some((pid, line))
    };
    pids.filter_map(command).collect()
}
