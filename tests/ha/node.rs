//! A node on a machine of its own, whose agent is started again whenever it ends.

use crate::network::Machine;
use crate::server::tail;
use coracle_tests::{namespaces, program};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub struct Node {
    pub machine: Machine,
    dir: PathBuf,
    child: Option<Child>,
}

impl Node {
    pub fn new(machine: Machine, dir: PathBuf) -> Self {
        fs::create_dir_all(dir.join("manifests")).unwrap();
        Self { machine, dir, child: None }
    }

    /// Where its images are.
    pub fn images(&self) -> PathBuf {
        self.dir.join("engine/images")
    }

    fn command(&self, script: &str) -> Command {
        let prefix = self.machine.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]);
        command.args(["unshare", "-m", "-p", "-u", "-i", "--fork", "--kill-child", "--mount-proc"]);
        let prepare = format!(
            "set -e; mount --make-rprivate /; hostname {}; mount -t sysfs sysfs /sys
             mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs tmpfs /run; set +e",
            self.machine.name
        );
        // The shell is the first process of its namespace, and reaps what is left.
        command.args(["sh", "-c", &format!("{prepare}\n{script}\nexit $?")]);
        command
    }

    pub fn join(&self, url: &str, token: &str) {
        let agent = program("coracle-agent");
        let script = format!(
            "{} join --server {url} --token {token} --root-dir {}/agent",
            agent.display(),
            self.dir.display()
        );
        let output = self.command(&script).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{} joins: {text}", self.machine.name);
    }

    pub fn start(&mut self) {
        let (agent, d, name) = (program("coracle-agent"), self.dir.display(), &self.machine.name);
        let script = format!(
            "while :; do {} run --node-name {name} --node-ip {} --kubeconfig {d}/agent/kubeconfig --root-dir {d}/agent \
             --kubelet-dir {d}/kubelet --memory-dir {d}/memory --pod-log-dir {d}/logs --container-log-dir {d}/log-links --manifests {d}/manifests --root {d}/engine --state {d}/run \
             --cri-socket {d}/cri.sock --cni-conf-dir {d}/net.d --cni-bin-dir {} --cni-cache-dir {d}/cni \
             --cgroup-root {} --cluster-dns 10.96.0.10 --eviction-hard 'memory.available<1Mi'; sleep 0.5; done",
            agent.display(),
            self.machine.address,
            agent.parent().unwrap().display(),
            namespaces::cgroup(name),
        );
        let log = fs::File::create(self.dir.join("agent.log")).unwrap();
        let child = self.command(&script).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.child = Some(child);
    }

    /// Kills the agent, which is started again; pods go on.
    pub fn kill_agent(&self) {
        let flag = format!("--node-name\0{}\0", self.machine.name);
        crate::processes::kill(|command| command.contains("coracle-agent\0run") && command.contains(&flag));
    }

    /// Uids and names of the pods that have had a container here.
    pub fn ran(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(self.dir.join("logs")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let pod = |name: String| {
            let mut parts = name.splitn(3, '_').map(str::to_owned);
            let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
            Some((uid, format!("{namespace}/{pod}")))
        };
        names.filter_map(pod).collect()
    }

    /// The end of its agent's log.
    pub fn told(&self) -> String {
        tail(&self.dir.join("agent.log"), 30)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(spans) = coracle_timeline::shared_memory::path(&self.dir.join("agent")) {
            let _ = fs::remove_file(spans);
        }
    }
}
