//! Cluster DNS: questions from a pod's network about 1,000 Services; needs root. With `CORACLE_COREDNS` naming that program,
//! the same questions to a CoreDNS on the same node.

use crate::report::{Report, percentile};
use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use std::fmt::Write as _;
use std::fs::File;
use std::net::UdpSocket;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const SERVICES: usize = 1000;
const SERVER: &str = "10.96.0.10:53";
const PEER_PORT: u16 = 1053;
const LATENCY_QUESTIONS: usize = 20_000;
const LOAD: Duration = Duration::from_secs(5);
const CLIENTS: usize = 16;
const UNDER_WAY: usize = 8;

/// Everything.
pub fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    let with = measure(&mut report)?;
    // The same cluster without the server: what DNS adds is the difference.
    let cluster = Cluster::start_with(1, &["--agent-flag=--external-dns"]);
    fill(&cluster);
    std::thread::sleep(Duration::from_secs(5));
    let without = resident(&cluster)?;
    report.add("agent's memory with DNS, after the load", with, "MB");
    report.add("agent's memory without DNS", without, "MB");
    report.add("memory added by DNS", with - without, "MB");
    Ok(report)
}

fn measure(report: &mut Report) -> anyhow::Result<f64> {
    let cluster = Cluster::start(1);
    fill(&cluster);
    let kubectl = cluster.kubectl();
    kubectl.run("run asker --image=busybox --command -- sleep 3600");
    kubectl.run("wait --for=condition=Ready pod/asker --timeout=240s");
    let ip = kubectl.run("get pod asker -o jsonpath={.status.podIP}");
    let netns = File::open(cluster.pod_netns("node-1", &ip))?;
    questions(report, &netns, SERVER, "")?;
    let resident_after = resident(&cluster)?;
    if let Some(program) = std::env::var_os("CORACLE_COREDNS") {
        let node = cluster.node("node-1");
        let peer = Peer::start(&program, &cluster)?;
        let server = format!("{}:{PEER_PORT}", node["address"].as_str().unwrap_or_default());
        questions(report, &netns, &server, "CoreDNS: ")?;
        report.add("CoreDNS: its memory, after the load", memory(peer.0.id())?, "MB");
    }
    Ok(resident_after)
}

/// A CoreDNS in the network of the first node, told of Services by our API server. Ends with its owner.
struct Peer(Child);

impl Peer {
    fn start(program: &std::ffi::OsStr, cluster: &Cluster) -> anyhow::Result<Self> {
        let corefile = cluster.data_dir().join("Corefile");
        let kubeconfig = cluster.data_dir().join("admin.kubeconfig");
        std::fs::write(
            &corefile,
            format!(
                ".:{PEER_PORT} {{\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    kubeconfig {}\n  }}\n}}\n",
                kubeconfig.display()
            ),
        )?;
        let holder = cluster.node("node-1")["holder"]["pid"].to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &holder, "-n", "--"]).arg(program).arg("-conf").arg(&corefile);
        Ok(Self(command.stdout(File::create(cluster.data_dir().join("coredns.log"))?).spawn()?))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks one server the three kinds of question, one at a time and with many clients.
fn questions(report: &mut Report, netns: &File, server: &str, whose: &str) -> anyhow::Result<()> {
    let socket = || {
        nix::sched::setns(netns, nix::sched::CloneFlags::CLONE_NEWNET).expect("the pod's network");
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect(server).expect("the way there");
        socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        socket
    };
    for (what, names) in [
        (
            "A of a Service",
            (0..SERVICES).map(|n| format!("s{n}.default.svc.cluster.local")).collect::<Vec<_>>(),
        ),
        ("no such name (search path)", vec!["www.example.org.default.svc.cluster.local".to_owned()]),
        ("PTR of a Service", (0..250).map(|n| format!("{}.100.96.10.in-addr.arpa", n + 1)).collect()),
    ] {
        let kind = if what.starts_with("PTR") { 12 } else { 1 };
        let questions: Vec<Vec<u8>> = names.iter().map(|name| question(name, kind)).collect();
        let mut samples = std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let socket = socket();
                eventually("DNS answers", Duration::from_secs(30), || ask(&socket, &questions[0]).is_some());
                let each = (0..LATENCY_QUESTIONS).map(|n| ask(&socket, &questions[n % questions.len()]));
                each.map(|taken| taken.map_or(f64::INFINITY, |t| t.as_secs_f64() * 1e6)).collect::<Vec<f64>>()
            });
            asking.join().expect("no panic")
        });
        report.add(&format!("{whose}{what}, one at a time: median"), percentile(&mut samples, 0.5), "µs");
        report.add(&format!("{whose}{what}, one at a time: p99"), percentile(&mut samples, 0.99), "µs");
        let mut samples: Vec<f64> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| load(&socket(), &questions))).collect();
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
        });
        let rate = samples.len() as f64 / LOAD.as_secs_f64();
        report.add(&format!("{whose}{what}, {CLIENTS} clients: answers"), rate, "/s");
        report.add(&format!("{whose}{what}, {CLIENTS} clients: p99"), percentile(&mut samples, 0.99), "µs");
    }
    Ok(())
}

fn fill(cluster: &Cluster) {
    let mut yaml = String::new();
    for n in 0..SERVICES {
        let _ = writeln!(
            yaml,
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: s{n}}}, spec: {{clusterIP: 10.96.{}.{}, ports: [{{name: p, port: 80}}]}}}}",
            100 + n / 250,
            1 + n % 250
        );
    }
    cluster.kubectl().run_with("create --validate=false -f -", &yaml);
}

fn ask(socket: &UdpSocket, question: &[u8]) -> Option<Duration> {
    let begun = Instant::now();
    socket.send(question).ok()?;
    socket.recv(&mut [0; 1500]).ok()?;
    Some(begun.elapsed())
}

/// Keeps some questions under way; how long each took, in microseconds.
fn load(socket: &UdpSocket, questions: &[Vec<u8>]) -> Vec<f64> {
    let (begun, mut next, mut samples) = (Instant::now(), 0, Vec::new());
    let mut sent = [begun; UNDER_WAY];
    let mut send = |slot: usize, sent: &mut [Instant; UNDER_WAY]| {
        next += 1;
        let mut question = questions[next % questions.len()].clone();
        question[..2].copy_from_slice(&(slot as u16).to_be_bytes());
        sent[slot] = Instant::now();
        let _ = socket.send(&question);
    };
    (0..UNDER_WAY).for_each(|slot| send(slot, &mut sent));
    let mut buffer = [0; 1500];
    while begun.elapsed() < LOAD {
        match socket.recv(&mut buffer) {
            Ok(_) => {
                let slot = usize::from(u16::from_be_bytes([buffer[0], buffer[1]])) % UNDER_WAY;
                samples.push(sent[slot].elapsed().as_secs_f64() * 1e6);
                send(slot, &mut sent);
            }
            // Everything under way was lost.
            Err(_) => (0..UNDER_WAY).for_each(|slot| send(slot, &mut sent)),
        }
    }
    samples
}

fn question(name: &str, kind: u8) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, kind, 0, 1]);
    bytes
}

/// What the agent holds in memory, in MB.
fn resident(cluster: &Cluster) -> anyhow::Result<f64> {
    memory(cluster.agent_pid("node-1"))
}

fn memory(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
