//! The API server under load: ConfigMaps of 1 KiB, HTTP/1.1 over TLS on loopback, client and server on the same cores.

use crate::report::{Report, percentile, scaled};
use bytes::Bytes;
use coracle_tests::client::{Connection, Target};
use coracle_tests::server::Server;
use http_body_util::BodyExt;
use nix::unistd::Pid;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;
const WATCHERS: usize = 100;
const WATCHED: usize = 500;
/// Where the objects are.
pub const PATH: &str = "/api/v1/namespaces/default/configmaps";

/// Requests of a measurement.
pub fn objects() -> usize {
    scaled(2000)
}

/// Everything.
pub async fn run() -> anyhow::Result<Report> {
    let mut report = Report::default();
    // The whole server, with scheduler and controllers, on a disk that knows nothing of it yet.
    let begun = Instant::now();
    let mut server = Server::start();
    let target = Target::new(server.data_dir(), &server.url())?;
    let mut connection = target.connect().await?;
    connection.call("GET", "/readyz", Bytes::new()).await?;
    report.add("first start to readyz answered", begun.elapsed().as_secs_f64() * 1e3, "ms");
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.kill();
    let begun = Instant::now();
    server.restart();
    connection = target.connect().await?;
    connection.call("GET", "/readyz", Bytes::new()).await?;
    report.add("start to readyz answered", begun.elapsed().as_secs_f64() * 1e3, "ms");
    tokio::time::sleep(Duration::from_secs(10)).await;
    report.add("RSS idle", rss(server.pid()), "MiB");
    report.add("threads", threads(server.pid()), "");
    let (written, used, pause) = (disk(server.pid()), cpu(server.pid()), Duration::from_secs(30));
    tokio::time::sleep(pause).await;
    let per_minute = 60.0 / pause.as_secs_f64();
    report.add("disk writes idle", (disk(server.pid()) - written) * per_minute / 1024.0, "KiB/min");
    report.add("CPU idle", (cpu(server.pid()) - used) * per_minute * 1e3, "ms/min");
    report.add("floor: append + fdatasync of 1 KiB", floor(server.data_dir())?, "/s");

    let used = cpu(server.pid());
    let create = |i: usize| ("POST", PATH.to_owned(), object(&format!("c{i}"), "x"));
    rate(&mut report, "create", &target, create).await?;
    report.add("server CPU per create", (cpu(server.pid()) - used) / objects() as f64 * 1e6, "µs");
    let update = |i: usize| ("PUT", format!("{PATH}/c{i}"), object(&format!("c{i}"), "y"));
    rate(&mut report, "update", &target, update).await?;
    let get = |i: usize| ("GET", format!("{PATH}/c{i}"), Bytes::new());
    rate(&mut report, "get", &target, get).await?;
    // The first connection has been idle for longer than the server keeps one.
    connection = target.connect().await?;
    lists(&mut report, &mut connection).await?;
    watches(&mut report, &target).await?;
    let delete = |i: usize| ("DELETE", format!("{PATH}/c{i}"), Bytes::new());
    rate(&mut report, "delete", &target, delete).await?;
    report.add("RSS after", rss(server.pid()), "MiB");
    Ok(report)
}

/// A ConfigMap of 1 KiB.
pub fn object(name: &str, fill: &str) -> Bytes {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"{}"}}}}"#,
        fill.repeat(1024)
    )
    .into()
}

/// All objects once, shared by the clients: throughput, p50 and p99.
async fn rate(
    report: &mut Report,
    name: &str,
    target: &Target,
    request: impl Fn(usize) -> (&'static str, String, Bytes) + Copy + Send + 'static,
) -> anyhow::Result<()> {
    let (took, mut times) = send_all(target, request).await?;
    report.add(&format!("{name}, {CLIENTS} connections"), objects() as f64 / took.as_secs_f64(), "/s");
    report.add(&format!("{name} p50"), percentile(&mut times, 0.5), "ms");
    report.add(&format!("{name} p99"), percentile(&mut times, 0.99), "ms");
    Ok(())
}

/// Sends a request for each object, shared by the clients: how long all of them took, and each in milliseconds.
pub async fn send_all(
    target: &Target,
    request: impl Fn(usize) -> (&'static str, String, Bytes) + Copy + Send + 'static,
) -> anyhow::Result<(Duration, Vec<f64>)> {
    send_all_to(std::slice::from_ref(target), request).await
}

/// The same with clients on several servers.
pub async fn send_all_to(
    targets: &[Target],
    request: impl Fn(usize) -> (&'static str, String, Bytes) + Copy + Send + 'static,
) -> anyhow::Result<(Duration, Vec<f64>)> {
    let next = Arc::new(AtomicUsize::new(0));
    let begun = Instant::now();
    let mut clients = Vec::new();
    for target in targets.iter().cycle().take(CLIENTS) {
        let (next, mut connection) = (next.clone(), target.connect().await?);
        clients.push(tokio::spawn(async move {
            let mut times = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= objects() {
                    return anyhow::Ok(times);
                }
                let (method, path, body) = request(i);
                let begun = Instant::now();
                connection.call(method, &path, body).await?;
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }));
    }
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    Ok((begun.elapsed(), times))
}

async fn lists(report: &mut Report, connection: &mut Connection) -> anyhow::Result<()> {
    let mut times = Vec::new();
    let mut size = 0;
    for _ in 0..100 {
        let begun = Instant::now();
        size = connection.call("GET", PATH, Bytes::new()).await?.len();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    report.add(&format!("list of {} p50", objects()), percentile(&mut times, 0.5), "ms");
    report.add(&format!("list of {} p99", objects()), percentile(&mut times, 0.99), "ms");
    report.add("list size", size as f64 / 1e6, "MB");
    Ok(())
}

async fn watches(report: &mut Report, target: &Target) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    let list: serde_json::Value =
        serde_json::from_slice(&connection.call("GET", &format!("{PATH}?limit=1"), Bytes::new()).await?)?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let mut watchers = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = target.connect().await?;
        let path = format!("{PATH}?watch=true&resourceVersion={version}&timeoutSeconds=60");
        let mut body = connection.open("GET", &path, Bytes::new()).await?.into_body();
        watchers.push(tokio::spawn(async move {
            let _keep = connection;
            let mut seen = 0;
            while let Some(frame) = body.frame().await {
                seen += frame?.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
                if seen >= WATCHED {
                    return anyhow::Ok(());
                }
            }
            anyhow::bail!("a watch ended after {seen} events")
        }));
    }
    let begun = Instant::now();
    let create = |i: usize| ("POST", PATH.to_owned(), object(&format!("w{i}"), "z"));
    for i in 0..WATCHED {
        let (method, path, body) = create(i);
        connection.call(method, &path, body).await?;
    }
    for watcher in watchers {
        watcher.await??;
    }
    report.add(&format!("{WATCHERS} watchers saw {WATCHED} creates"), begun.elapsed().as_secs_f64(), "s");
    Ok(())
}

/// Resident memory of a process in MiB.
pub fn rss(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

fn threads(pid: u32) -> f64 {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(f64::NAN, |tasks| tasks.count() as f64)
}

/// Seconds of CPU that the process has used, those of threads that have ended included.
pub fn cpu(pid: u32) -> f64 {
    let used = || nix::time::clock_getcpuclockid(Pid::from_raw(pid.try_into().ok()?)).ok()?.now().ok();
    used().map_or(f64::NAN, |used| std::time::Duration::from(used).as_secs_f64())
}

/// Bytes that the process has had written to disk.
pub fn disk(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    text.lines()
        .find_map(|l| l.strip_prefix("write_bytes: "))
        .and_then(|n| n.parse().ok())
        .unwrap_or(f64::NAN)
}

fn floor(dir: &std::path::Path) -> anyhow::Result<f64> {
    let mut file = std::fs::File::create(dir.join("floor"))?;
    let begun = Instant::now();
    for _ in 0..objects() {
        file.write_all(&[b'x'; 1300])?;
        file.sync_data()?;
    }
    Ok(objects() as f64 / begun.elapsed().as_secs_f64())
}
