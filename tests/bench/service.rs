//! Services: how long a changed endpoint takes to be in the rules, and what a connection through a service costs, with few
//! and with many services. On a node of its own.

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

const ROUNDS: usize = 30;
const CONNECTIONS: usize = 500;

/// Measures at 10, 1,000 and 10,000 services.
pub async fn run() -> anyhow::Result<Report> {
    let cluster = Cluster::start(1);
    let kubeconfig = std::fs::read_to_string(cluster.data_dir().join("admin.kubeconfig"))?;
    let url = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).context("a server")?;
    let mut api = Target::new(cluster.data_dir(), url)?.connect().await?;
    let node = cluster.node("node-1");
    let address = node["address"].as_str().context("an address")?.to_owned();
    let holder = node["holder"]["pid"].to_string();
    for (port, name) in [(9001, b'1'), (9002, b'2')] {
        let to = format!("{address}:{port}");
        std::thread::spawn(within(&holder, move || answer(TcpListener::bind(to), name)));
    }
    let mut report = Report::default();
    let vip = create(&mut api, "probe", &address).await?;
    let mut there = 0;
    for count in [10, 1_000, 10_000] {
        let begun = Instant::now();
        for number in there..count {
            create(&mut api, &format!("filler-{number}"), "10.244.250.1").await?;
        }
        there = count;
        report.add(&format!("{count} services: created"), begun.elapsed().as_secs_f64() * 1e3, "ms");
        settle(&holder, vip)?;

        let mut changes = Vec::new();
        for round in 0..ROUNDS {
            let port = 9001 + (round as u16 + 1) % 2;
            put_slice(&mut api, "PUT", "probe", &address, port).await?;
            let begun = Instant::now();
            let wanted = if port == 9001 { b'1' } else { b'2' };
            std::thread::spawn(within(&holder, move || {
                while ask(vip).ok() != Some(wanted) && begun.elapsed() < Duration::from_secs(30) {}
            }))
            .join()
            .map_err(|_| anyhow::anyhow!("a client failed"))?;
            changes.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        report.add(
            &format!("{count} services: endpoint in the rules, median"),
            percentile(&mut changes, 0.5),
            "ms",
        );
        report.add(
            &format!("{count} services: endpoint in the rules, p99"),
            percentile(&mut changes, 0.99),
            "ms",
        );

        let direct: SocketAddr = format!("{address}:9001").parse()?;
        for (what, to) in [("direct", direct), ("through the service", vip)] {
            let samples = std::thread::spawn(within(&holder, move || connect_times(to)));
            let mut samples = samples.join().map_err(|_| anyhow::anyhow!("a client failed"))?;
            report.add(
                &format!("{count} services: connection {what}, median"),
                percentile(&mut samples, 0.5),
                "µs",
            );
        }
        let agent = node["agent"]["pid"].to_string();
        let status = std::fs::read_to_string(format!("/proc/{agent}/status"))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
        let rss: f64 = rss.trim().trim_end_matches("kB").trim().parse()?;
        report.add(&format!("{count} services: RSS of the agent"), rss / 1024.0, "MiB");
    }
    Ok(report)
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
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn connect_times(to: SocketAddr) -> Vec<f64> {
    let mut samples = Vec::new();
    for _ in 0..CONNECTIONS {
        let begun = Instant::now();
        if let Ok(mut stream) = TcpStream::connect(to) {
            samples.push(begun.elapsed().as_secs_f64() * 1e6);
            // To the end: the listener's queue stays short.
            let _ = stream.read(&mut [0]);
        }
    }
    samples
}

/// Waits until the agent has caught up: the newest service is led.
fn settle(holder: &str, vip: SocketAddr) -> anyhow::Result<()> {
    let wait = within(holder, move || {
        let begun = Instant::now();
        while ask(vip).is_err() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    std::thread::spawn(wait).join().map_err(|_| anyhow::anyhow!("a client failed"))?;
    std::thread::sleep(Duration::from_secs(3));
    Ok(())
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
