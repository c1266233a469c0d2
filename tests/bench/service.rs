//! Services: how long a changed endpoint takes to be in the rules of every node, and what a connection through a service
//! costs, with few and with many services. On three nodes of its own.

use anyhow::Context;
use bytes::Bytes;
use coracle_tests::cluster::Cluster;
use serde_json::json;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::report::{Report, percentile};
use coracle_tests::client::{Connection, Target};

const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const ROUNDS: usize = 30;
const CONNECTIONS: usize = 500;
/// Connections that services are made through.
const WRITERS: usize = 8;
/// What the agent says of a change, with `RUST_LOG=coracle_agent::proxy=debug`.
const CHANGED: &str = "service rules changed";

/// Measures at 10, 1,000 and 10,000 services.
pub async fn run() -> anyhow::Result<Report> {
    let cluster = Cluster::start(NODES.len());
    let kubeconfig = std::fs::read_to_string(cluster.data_dir().join("admin.kubeconfig"))?;
    let url = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).context("a server")?;
    let target = Target::new(cluster.data_dir(), url)?;
    let mut api = target.connect().await?;
    let node = cluster.node(NODES[0]);
    let address = node["address"].as_str().context("an address")?.to_owned();
    let holders: Vec<String> =
        NODES.iter().map(|node| cluster.node(node)["holder"]["pid"].to_string()).collect();
    for (port, name) in [(9001, b'1'), (9002, b'2')] {
        let to = format!("{address}:{port}");
        std::thread::spawn(within(&holders[0], move || answer(TcpListener::bind(to), name)));
    }
    let mut report = Report::default();
    let vip = create(&mut api, "probe", &address).await?;
    let log = cluster.data_dir().join(NODES[0]).join("agent.log");
    let mut there = 0;
    for count in [10, 1_000, 10_000] {
        let begun = Instant::now();
        fill(&target, there..count).await?;
        there = count;
        // The server closes connections that are silent for long.
        api = target.connect().await?;
        report.add(&format!("{count} services: created"), begun.elapsed().as_secs_f64() * 1e3, "ms");
        // Watches keep order: when the last one is led, all are.
        let last = create(&mut api, &format!("last-{count}"), &address).await?;
        on_every_node(&holders, last, b'1')?;
        report.add(
            &format!("{count} services: in the rules of all nodes"),
            begun.elapsed().as_secs_f64() * 1e3,
            "ms",
        );
        let told = std::fs::read_to_string(&log)?.len();

        let mut changes = Vec::new();
        for round in 0..ROUNDS {
            let port = 9001 + (round as u16 + 1) % 2;
            put_slice(&mut api, "PUT", "probe", &address, port).await?;
            let begun = Instant::now();
            on_every_node(&holders, vip, if port == 9001 { b'1' } else { b'2' })?;
            changes.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let mut add =
            |what: &str, value: f64, unit| report.add(&format!("{count} services: {what}"), value, unit);
        add("endpoint in the rules of all nodes, median", percentile(&mut changes, 0.5), "ms");
        add("endpoint in the rules of all nodes, p99", percentile(&mut changes, 0.99), "ms");
        let text = std::fs::read_to_string(&log)?;
        let mut updates: Vec<f64> =
            text[told..].lines().filter(|line| line.contains(CHANGED)).filter_map(elapsed).collect();
        if !updates.is_empty() {
            add("the node's own part of it, median", percentile(&mut updates, 0.5), "ms");
        }

        // Connections one after the other, both ways in turn: what else the machine does meets both alike.
        let direct: SocketAddr = format!("{address}:9001").parse()?;
        put_slice(&mut api, "PUT", "probe", &address, 9001).await?;
        on_every_node(&holders, vip, b'1')?;
        let samples = std::thread::spawn(within(&holders[0], move || connect_times([direct, vip])));
        let samples = samples.join().map_err(|_| anyhow::anyhow!("a client failed"))?;
        for (what, mut samples) in ["direct", "through the service"].into_iter().zip(samples) {
            add(&format!("connection {what}, median"), percentile(&mut samples, 0.5), "µs");
            add(&format!("connection {what}, p99"), percentile(&mut samples, 0.99), "µs");
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.agent_pid(NODES[0])))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        let rss: f64 = rss.trim().trim_end_matches("kB").trim().parse()?;
        add("RSS of the agent", rss / 1024.0, "MiB");
    }
    Ok(report)
}

/// Makes services through several connections.
async fn fill(target: &Target, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (target, numbers) = (target.clone(), numbers.clone());
        writers.spawn(async move {
            let mut api = target.connect().await?;
            for number in numbers.skip(writer).step_by(WRITERS) {
                create(&mut api, &format!("filler-{number}"), "10.244.250.1").await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

/// Returns once connections from every node are answered so.
fn on_every_node(holders: &[String], to: SocketAddr, wanted: u8) -> anyhow::Result<()> {
    let ask_until = move || {
        let begun = Instant::now();
        while ask(to).ok() != Some(wanted) {
            if begun.elapsed() > Duration::from_secs(120) {
                return false;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        true
    };
    let clients: Vec<_> =
        holders.iter().map(|holder| std::thread::spawn(within(holder, ask_until))).collect();
    for client in clients {
        anyhow::ensure!(client.join().is_ok_and(|met| met), "{to} is not led where it should be");
    }
    Ok(())
}

/// The time a line of the log tells, in milliseconds.
fn elapsed(line: &str) -> Option<f64> {
    let rest = line.split_once("elapsed=")?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (rest[..end].parse::<f64>().ok()?, &rest[end..]);
    let scale = [("ms", 1.0), ("µs", 1e-3), ("ns", 1e-6), ("s", 1e3)];
    scale.iter().find(|(name, _)| unit.starts_with(name)).map(|(_, scale)| number * scale)
}

/// Runs on a thread that enters a node's network first.
fn within<T, W: FnOnce() -> T>(holder: &str, work: W) -> impl FnOnce() -> T + use<T, W> {
    let netns = File::open(format!("/proc/{holder}/ns/net"));
    move || {
        let netns = netns.expect("the node is there");
        nix::sched::setns(&netns, nix::sched::CloneFlags::CLONE_NEWNET).expect("root");
        work()
    }
}

fn answer(listener: std::io::Result<TcpListener>, name: u8) {
    let listener = listener.expect("a free port");
    while let Ok((mut stream, _)) = listener.accept() {
        let _ = stream.write_all(&[name]);
    }
}

fn ask(to: SocketAddr) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(1))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn connect_times(to: [SocketAddr; 2]) -> [Vec<f64>; 2] {
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTIONS {
        for (to, samples) in to.iter().zip(&mut samples) {
            let begun = Instant::now();
            if let Ok(mut stream) = TcpStream::connect(to) {
                samples.push(begun.elapsed().as_secs_f64() * 1e6);
                // To the end: the listener's queue stays short.
                let _ = stream.read(&mut [0]);
            }
        }
    }
    samples
}

/// A service with an endpoint; its address.
async fn create(api: &mut Connection, name: &str, endpoint: &str) -> anyhow::Result<SocketAddr> {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80, "protocol": "TCP"}]}});
    let path = "/api/v1/namespaces/default/services";
    let made = api.call("POST", path, Bytes::from(service.to_string())).await?;
    let made: serde_json::Value = serde_json::from_slice(&made)?;
    put_slice(api, "POST", name, endpoint, 9001).await?;
    let ip = made["spec"]["clusterIP"].as_str().context("an address")?;
    Ok(format!("{ip}:80").parse()?)
}

async fn put_slice(api: &mut Connection, verb: &str, name: &str, ip: &str, port: u16) -> anyhow::Result<()> {
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": port, "protocol": "TCP"}], "endpoints": [{"addresses": [ip]}]});
    let mut path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned();
    if verb == "PUT" {
        path = format!("{path}/{name}");
    }
    api.call(verb, &path, Bytes::from(slice.to_string())).await?;
    Ok(())
}
