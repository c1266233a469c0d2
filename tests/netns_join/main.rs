//! A second machine, in namespaces of its own, joins with a token and nothing else, becomes a node, and shows nothing of
//! itself to those who may not see it. Root: namespaces, mounts and cgroups.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used)]

// A server is lost.
mod failover;
// A server is lost with its disk, and its backup is restored.
mod restored;
// The CA is replaced under a pod that uses it.
mod rotated;

use coracle_pki::authority::{Authority, Profile};
use coracle_tests::kubectl::newest;
use coracle_tests::lab::{Lab, in_lab, run};
use coracle_tests::server::Server;
use coracle_tests::{eventually, program};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SERVER: &str = "198.51.100.1";
const MACHINE: &str = "198.51.100.2";
const WAIT: Duration = Duration::from_secs(120);

/// The machine: a network, mounts, processes and a name of its own, and nothing of the server's files.
struct Machine {
    netns: PathBuf,
    dir: PathBuf,
    hidden: PathBuf,
    cgroup: String,
    agent: Option<Child>,
}

impl Machine {
    fn new(lab: &Lab, server: &Server) -> Self {
        let netns = lab.netns("machine");
        let path = netns.display().to_string();
        run("ip", &["link", "set", "right", "netns", &path]);
        let inside = |args: &[&str]| {
            let net = format!("--net={path}");
            run("nsenter", &[&[net.as_str(), "ip"], args].concat());
        };
        inside(&["link", "set", "lo", "up"]);
        inside(&["link", "set", "right", "name", "eth0"]);
        inside(&["addr", "add", &format!("{MACHINE}/24"), "dev", "eth0"]);
        inside(&["link", "set", "eth0", "up"]);
        let dir = lab.path("machine");
        std::fs::create_dir_all(dir.join("manifests")).unwrap();
        // Another view of all cgroups than the host's, to see what the machine leaves.
        std::fs::create_dir(lab.path("cgroup")).unwrap();
        run("mount", &["-t", "cgroup2", "none", &lab.path("cgroup").display().to_string()]);
        // Of this machine only: all that is in it is killed at the end.
        static MACHINES: AtomicU32 = AtomicU32::new(0);
        let number = MACHINES.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("coracle-test-{}-join-{number}", std::process::id());
        Self { netns, dir, hidden: server.data_dir().into(), cgroup, agent: None }
    }

    /// A command on the machine, which is a fresh one for everything but its directory.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.netns.display()));
        command.args(["unshare", "-m", "-p", "-u", "-i", "--fork", "--kill-child", "--mount-proc"]);
        let prepare = format!(
            "set -e; mount --make-rprivate /; mount -t tmpfs tmpfs {}; hostname machine-b
             mount -t sysfs sysfs /sys; mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs tmpfs /run; set +e",
            self.hidden.display()
        );
        // The shell is the first process of its namespace, and reaps what is left.
        command.args(["sh", "-c", &format!("{prepare}\n{script}\nexit $?")]);
        command
    }

    fn join(&self, url: &str, token: &str) -> (bool, String) {
        let agent = program("coracle-agent");
        let script = format!(
            "{} join --server {url} --token {token} --root-dir {}/agent",
            agent.display(),
            self.dir.display()
        );
        let output = self.command(&script).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn run(&mut self) {
        let (agent, d) = (program("coracle-agent"), self.dir.display().to_string());
        let script = format!(
            "{} run --node-name machine-b --node-ip {MACHINE} --kubeconfig {d}/agent/kubeconfig --root-dir {d}/agent \
             --kubelet-dir {d}/kubelet --memory-dir {d}/memory --pod-log-dir {d}/logs --container-log-dir {d}/log-links --manifests {d}/manifests --root {d}/engine --state {d}/run \
             --cri-socket {d}/cri.sock --cni-conf-dir {d}/net.d --cni-bin-dir /usr/lib/cni --cni-cache-dir {d}/cni \
             --cgroup-root /{} --cluster-dns 10.96.0.10",
            agent.display(),
            self.cgroup
        );
        let log = std::fs::File::create(self.dir.join("agent.log")).unwrap();
        let child = self.command(&script).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.agent = Some(child);
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("agent.log")).unwrap_or_default()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        // With nsenter and unshare goes the machine's first process, and with that one all of them.
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        if let Some(spans) = coracle_timeline::shared_memory::path(&self.dir.join("agent")) {
            let _ = std::fs::remove_file(spans);
        }
        let top = self.dir.with_file_name("cgroup");
        let script = format!(
            "for i in 1 2 3 4 5 6 7 8 9 10; do find {0}/{1} -depth -type d -exec rmdir {{}} + 2>/dev/null
             [ -e {0}/{1} ] || break; echo 1 > {0}/{1}/cgroup.kill; sleep 0.3; done; umount {0}",
            top.display(),
            self.cgroup
        );
        let _ = Command::new("sh").args(["-c", &script]).status();
    }
}

/// The answer of the machine's own API to a request with these arguments of curl.
fn ask(path: &str, args: &[&str]) -> String {
    let url = format!("https://{MACHINE}:10250{path}");
    let output = Command::new("curl")
        .args(["-sk", "--max-time", "30", "-o", "/dev/null", "-w", "%{http_code}"])
        .args(args)
        .arg(&url)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A new token for a node.
fn token(server: &Server) -> String {
    let output = Command::new(program("coracle"))
        .args(["token", "create", "--data-dir"])
        .arg(server.data_dir())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The link between the servers' network and the machine's.
fn link() {
    run("ip", &["link", "add", "left", "type", "veth", "peer", "name", "right"]);
    run("ip", &["addr", "add", &format!("{SERVER}/24"), "dev", "left"]);
    run("ip", &["link", "set", "left", "up"]);
}

#[test]
fn a_second_machine_joins_with_a_token_and_nothing_else() {
    in_lab(|lab| {
        link();
        let server = Server::with(&["--bind", &format!("{SERVER}:0")]);
        let mut machine = Machine::new(lab, &server);
        let token = token(&server);

        // Not with another token, nor when somebody else answers for the server.
        let wrong = format!("{}::abcdef.0123456789abcdef", token.split("::").next().unwrap());
        let (worked, said) = machine.join(&server.url(), &wrong);
        assert!(!worked && said.contains("wrong, expired or revoked"), "{said}");
        let other = format!("K10{}::{}", "ab".repeat(32), token.rsplit("::").next().unwrap());
        let (worked, said) = machine.join(&server.url(), &other);
        assert!(!worked && said.contains("the server's authority is not the one with hash"), "{said}");
        assert!(!machine.dir.join("agent/pki/client.pem").exists());

        let (worked, said) = machine.join(&server.url(), &token);
        assert!(worked, "{said}");
        machine.run();
        let kubectl = newest(&server.kubeconfig());
        let ready = "get node machine-b -o jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        eventually("the machine is a ready node", WAIT, || kubectl.try_with(ready, "").out == "True");
        let pki = machine.dir.join("agent/pki");
        eventually("its serving certificate is signed by the cluster", WAIT, || {
            pki.join("serving.pem").exists()
        });
        for file in ["client.pem", "serving.pem"] {
            let mode = std::fs::metadata(pki.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let address = "get node machine-b -o jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}";
        assert_eq!(kubectl.run(address), MACHINE);
        strangers(&server, lab.dir.as_path());
        // Through the API server, which knows the machine by its certificate.
        eventually("the server reaches the machine", WAIT, || {
            kubectl.try_with("get --raw /api/v1/nodes/machine-b/proxy/healthz", "").out.trim() == "ok"
        });
    });
}

/// Nothing but health is readable on :10250 without a name, and with a name only what the cluster lets them.
fn strangers(server: &Server, dir: &Path) {
    let authority = Authority::ensure(&server.data_dir().join("pki"), "ca", "x").unwrap();
    let certified = |name: &str, groups: &[&str]| {
        let signed = authority.sign(&Profile::client(name, groups)).unwrap();
        let path = dir.join(format!("{name}.pem"));
        std::fs::write(&path, format!("{}{}", signed.certificate, signed.key)).unwrap();
        path.display().to_string()
    };
    let (stranger, admin) = (certified("stranger", &[]), certified("root", &["system:masters"]));
    let forged = Authority::ensure(dir, "forged", "coracle-ca").unwrap();
    let signed = forged.sign(&Profile::client("root", &["system:masters"])).unwrap();
    let forged = dir.join("forged.pem");
    std::fs::write(&forged, format!("{}{}", signed.certificate, signed.key)).unwrap();
    let forged = forged.display().to_string();
    eventually("the machine's API answers", WAIT, || ask("/healthz", &[]) == "200");
    for path in [
        "/pods",
        "/metrics",
        "/metrics/cadvisor",
        "/stats/summary",
        "/configz",
        "/logs/",
        "/containerLogs/default/p/c",
        "/exec/default/p/c?command=id&output=1",
        "/attach/default/p/c",
        "/portForward/default/p",
        "/run/default/p/c",
        "/debug/pprof/",
        "/checkpoint/default/p/c",
        "/nonsense",
    ] {
        assert_eq!(ask(path, &[]), "401", "{path}: nobody");
        assert_eq!(
            ask(path, &["-H", "Authorization: Bearer made.up.token"]),
            "401",
            "{path}: a made-up token"
        );
        assert_eq!(ask(path, &["--cert", &stranger]), "403", "{path}: a user without rights");
        assert_eq!(
            ask(path, &["--cert", &forged]),
            "401",
            "{path}: a certificate of somebody else's authority"
        );
    }
    for path in ["/pods", "/metrics", "/stats/summary"] {
        assert_eq!(ask(path, &["--cert", &admin]), "200", "{path}: an administrator");
    }
}
