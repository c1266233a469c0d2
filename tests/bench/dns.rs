//! Cluster DNS: questions from a pod's network about 1,000 Services; needs root.

use crate::report::{Report, percentile};
use coracle_tests::cluster::Cluster;
use coracle_tests::eventually;
use std::fmt::Write as _;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const SERVICES: usize = 1000;
const SERVER: &str = "10.96.0.10:53";
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
    let netns = std::fs::File::open(cluster.pod_netns("node-1", &ip))?;
    let socket = || {
        nix::sched::setns(&netns, nix::sched::CloneFlags::CLONE_NEWNET).expect("the pod's network");
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect(SERVER).expect("the way there");
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
        report.add(&format!("{what}, one at a time: median"), percentile(&mut samples, 0.5), "µs");
        report.add(&format!("{what}, one at a time: p99"), percentile(&mut samples, 0.99), "µs");
        let mut samples: Vec<f64> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| load(&socket(), &questions))).collect();
            clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect()
        });
        let rate = samples.len() as f64 / LOAD.as_secs_f64();
        report.add(&format!("{what}, {CLIENTS} clients: answers"), rate, "/s");
        report.add(&format!("{what}, {CLIENTS} clients: p99"), percentile(&mut samples, 0.99), "µs");
    }
    resident(&cluster)
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
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.node("node-1")["agent"]["pid"]))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
