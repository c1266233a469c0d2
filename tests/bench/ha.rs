//! Several servers: creates per second and latency with one server on the embedded store, one on an etcd, and three that run three
//! members of etcd; what they need of memory; and how long clients and control loops wait when a server is killed, and its member of
//! etcd with it. Beside it what etcd does alone, and kube-apiserver on etcd where `CORACLE_STOCK_APISERVER`,
//! `…_CONTROLLER_MANAGER` and `…_SCHEDULER` name its programs.

use crate::api::{PATH, object, objects, rss, send_all_to};
use crate::report::{Report, percentile};
use crate::stock::{Programs, Stock};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use coracle_tests::client::Target;
use coracle_tests::ha::failover::Failover;
use coracle_tests::ha::members::Members;
use coracle_tests::managed;
use coracle_tests::server::Server;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const SERVERS: usize = 3;
const CLIENTS: usize = 8;
/// Measurements of creates, of which the median counts.
const ROUNDS: usize = 5;
/// Servers that are killed, each with its member of etcd.
const KILLS: usize = 5;
const JSON: &str = "application/json";
/// A server at rest, before it is measured.
const REST: Duration = Duration::from_secs(5);

/// Everything.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    let embedded = embedded(&mut report).await?;
    let one = on_etcd(&mut report).await?;
    let three = on_members(&mut report).await?;
    report.add("one on etcd / one embedded", one / embedded, "");
    report.add("three on three / one on etcd", three / one, "");
    if let Some(programs) = Programs::given() {
        let peer = stock(&mut report, &programs).await?;
        report.add("one on etcd / kube-apiserver on etcd", one / peer, "");
        report.add("three on three / kube-apiserver on etcd", three / peer, "");
    }
    Ok(report)
}

async fn embedded(report: &mut Report) -> anyhow::Result<f64> {
    let server = Server::with(&["--datastore", "embedded"]);
    let target = Target::new(server.data_dir(), &server.url())?;
    let memory = Memory { servers: vec![server.pid()], members: Vec::new() };
    measured(report, "one embedded", &[target], &memory).await
}

/// One server on an etcd without TLS, as the peer has it.
async fn on_etcd(report: &mut Report) -> anyhow::Result<f64> {
    let floor = floor(report, 1).await?;
    let dir = tempfile::tempdir()?;
    let members = Members::on_loopback(1, dir.path());
    let server = Server::with(&["--datastore", &members.datastore(0)]);
    let target = Target::new(server.data_dir(), &server.url())?;
    let memory = Memory { servers: vec![server.pid()], members: members.pid(0).into_iter().collect() };
    let rate = measured(report, "one on etcd", &[target], &memory).await?;
    report.add("one on etcd: create / put", rate / floor, "");
    Ok(rate)
}

/// Three servers, each with its own member of etcd.
async fn on_members(report: &mut Report) -> anyhow::Result<f64> {
    let floor = floor(report, SERVERS).await?;
    let mut servers = vec![managed::start(&[])];
    while servers.len() < SERVERS {
        servers.push(managed::join(&servers[0], &[]));
    }
    let first = servers[0].data_dir().to_owned();
    let targets = servers.iter().map(|server| Target::new(&first, &server.url()));
    let targets = targets.collect::<anyhow::Result<Vec<_>>>()?;
    let memory = Memory {
        servers: servers.iter().map(Server::pid).collect(),
        members: servers.iter().filter_map(managed::etcd_pid).collect(),
    };
    let name = format!("{SERVERS} servers with {SERVERS} etcd");
    let rate = measured(report, &name, &targets, &memory).await?;
    report.add(&format!("{name}: create / put"), rate / floor, "");
    failover(report, &mut servers, &Arc::new(targets)).await?;
    Ok(rate)
}

/// What etcd does alone.
async fn floor(report: &mut Report, count: usize) -> anyhow::Result<f64> {
    let floor = puts(count).await?;
    report.add(&format!("floor: puts of 1 KiB into {count} etcd, over HTTP"), floor, "/s");
    Ok(floor)
}

/// Processes whose memory is measured.
struct Memory {
    servers: Vec<u32>,
    members: Vec<u32>,
}

impl Memory {
    /// The greatest of the servers, and of the members.
    fn report(&self, report: &mut Report, name: &str) {
        for (kind, pids) in [("server", &self.servers), ("etcd", &self.members)] {
            if !pids.is_empty() {
                let greatest = pids.iter().map(|pid| rss(*pid)).fold(0.0, f64::max);
                report.add(&format!("{name}, {kind}"), greatest, "MiB");
            }
        }
    }
}

async fn measured(
    report: &mut Report,
    name: &str,
    targets: &[Target],
    memory: &Memory,
) -> anyhow::Result<f64> {
    tokio::time::sleep(REST).await;
    memory.report(report, &format!("{name}: RSS idle"));
    let rate = creates(report, name, targets).await?;
    memory.report(report, &format!("{name}: RSS after"));
    Ok(rate)
}

/// Creates per second, and the latency.
async fn creates(report: &mut Report, name: &str, targets: &[Target]) -> anyhow::Result<f64> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let first = NEXT.fetch_add(objects(), Ordering::Relaxed);
        let create = move |i: usize| ("POST", PATH.to_owned(), object(&format!("c{}", first + i), "x"));
        let (took, each) = send_all_to(targets, create).await?;
        rates.push(objects() as f64 / took.as_secs_f64());
        times.extend(each);
    }
    let rate = percentile(&mut rates, 0.5);
    report.add(&format!("{name}: creates, {CLIENTS} connections"), rate, "/s");
    report.add(&format!("{name}: create p50"), percentile(&mut times, 0.5), "ms");
    report.add(&format!("{name}: create p99"), percentile(&mut times, 0.99), "ms");
    Ok(rate)
}

/// How long a client that tries all servers waits when its server is killed, and how long a Deployment for its ReplicaSet when
/// the leader of the controllers is.
async fn failover(
    report: &mut Report,
    servers: &mut [Server],
    targets: &Arc<Vec<Target>>,
) -> anyhow::Result<()> {
    let (mut waits, mut loops) = (Vec::new(), Vec::new());
    for round in 0..KILLS {
        let victim = leader(servers, targets).await?;
        let mut client = Failover::new(targets.clone(), victim);
        client.read("/version").await.map_err(|failure| anyhow::anyhow!("{failure:?}"))?;
        servers[victim].kill();
        let begun = Instant::now();
        for attempt in 0.. {
            let body = object(&format!("f{round}-{attempt}"), "x");
            match client.write("POST", PATH, JSON, body).await {
                Ok(answer) if answer.status.is_success() => break,
                _ => anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "no server answers"),
            }
        }
        waits.push(begun.elapsed().as_secs_f64() * 1e3);
        reconciled(&mut client, &format!("d{round}")).await?;
        loops.push(begun.elapsed().as_secs_f64());
        tokio::task::block_in_place(|| servers[victim].restart());
    }
    report.add("failover of a client, server killed, median", percentile(&mut waits, 0.5), "ms");
    report.add("failover of a client, server killed, worst", percentile(&mut waits, 1.0), "ms");
    report.add("failover of controllers, leader killed, median", percentile(&mut loops, 0.5), "s");
    report.add("failover of controllers, leader killed, worst", percentile(&mut loops, 1.0), "s");
    Ok(())
}

/// The server that runs the controllers: the only one whose log says last that it leads.
async fn leader(servers: &[Server], targets: &Arc<Vec<Target>>) -> anyhow::Result<usize> {
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";
    let begun = Instant::now();
    loop {
        if let Ok(answer) = Failover::new(targets.clone(), 0).read(path).await {
            let lease: Value = serde_json::from_slice(&answer.body)?;
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let leads = |server: &Server| !holder.is_empty() && server.log().contains(holder);
            if let Some(found) = servers.iter().position(leads) {
                return Ok(found);
            }
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "nobody leads");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Creates a Deployment and waits for its ReplicaSet.
async fn reconciled(client: &mut Failover, name: &str) -> anyhow::Result<()> {
    let labels = json!({"app": name});
    let body = json!({
        "metadata": {"name": name},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let base = "/apis/apps/v1/namespaces/default";
    let made = client.write("POST", &format!("{base}/deployments"), JSON, body.to_string().into()).await;
    anyhow::ensure!(made.as_ref().is_ok_and(|answer| answer.status.is_success()), "{made:?}");
    let begun = Instant::now();
    loop {
        let path = format!("{base}/replicasets?labelSelector=app%3D{name}");
        if let Ok(answer) = client.read(&path).await {
            let list: Value = serde_json::from_slice(&answer.body)?;
            if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
                return Ok(());
            }
        }
        anyhow::ensure!(begun.elapsed() < Duration::from_secs(60), "no ReplicaSet of {name}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What etcd does alone: puts per second by the same number of clients, spread over the members. It is one that no server uses.
async fn puts(count: usize) -> anyhow::Result<f64> {
    let dir = tempfile::tempdir()?;
    let members = Members::on_loopback(count, dir.path());
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let address = members.client(number % count);
        let stream = TcpStream::connect(&address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let next = next.clone();
        clients.push(tokio::spawn(async move {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= objects() {
                    return anyhow::Ok(());
                }
                let (key, value) = (STANDARD.encode(format!("floor/{i}")), STANDARD.encode([b'x'; 1024]));
                let body = Bytes::from(json!({"key": key, "value": value}).to_string());
                let request = Request::post("/v3/kv/put").header("host", &address).body(Full::new(body))?;
                sender.ready().await?;
                let answer = sender.send_request(request).await?;
                anyhow::ensure!(answer.status().is_success(), "etcd: {}", answer.status());
                answer.into_body().collect().await?;
            }
        }));
    }
    for client in clients {
        client.await??;
    }
    Ok(objects() as f64 / begun.elapsed().as_secs_f64())
}

async fn stock(report: &mut Report, programs: &Programs) -> anyhow::Result<f64> {
    let peer = tokio::task::block_in_place(|| Stock::start(programs));
    let (servers, member) = peer.pids();
    let memory = Memory { servers, members: vec![member] };
    measured(report, "kube-apiserver on etcd", &[peer.target()?], &memory).await
}
