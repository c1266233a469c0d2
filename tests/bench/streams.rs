//! Streams: what exec, logs and port-forward through server and agent cost over doing it on the node by hand, and what
//! exec probes cost the node.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams, LogParams, PostParams};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::pod;
use crate::report::{Report, percentile};
use coracle_tests::pods::{Cluster, IMAGE};

const EXECS: usize = 100;
const LOG_LINES: usize = 1_000_000;
const LINE: &str = "the quick brown fox jumps over the lazy dog, and again over the log of the lazy dog";
const FORWARDED: usize = 256 << 20;
const PROBED: usize = 100;
const WATCHED: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(180);

/// Measures everything; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One file, so that `cat` reads the same.
    let start = || Cluster::start_with("--container-log-max-size 1Gi");
    let cluster = tokio::task::spawn_blocking(start).await?;
    let file = kube::config::Kubeconfig::read_from(cluster.server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let client = kube::Client::try_from(config)?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let mut report = Report::default();
    exec(&mut report, &cluster, &pods).await?;
    logs(&mut report, &cluster, &pods).await?;
    ports(&mut report, &cluster, &pods).await?;
    probes(&mut report, &cluster, &client, &pods).await?;
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    Ok(report)
}

/// Makes a pod with a script and waits until it runs.
pub async fn start(pods: &Api<Pod>, name: &str, script: &str) -> anyhow::Result<Pod> {
    let pod = json!({"metadata": {"name": name}, "spec": {"terminationGracePeriodSeconds": 0, "containers": [
        {"name": "c", "image": IMAGE, "command": ["sh", "-c", script]}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let begun = Instant::now();
    loop {
        let pod = pods.get(name).await?;
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running") {
            return Ok(pod);
        }
        anyhow::ensure!(begun.elapsed() < PATIENCE, "{name} does not run");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The id that the runtime knows a pod's container by.
fn container_id(pod: &Pod) -> anyhow::Result<String> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let id = statuses.and_then(|all| all.first()?.container_id.clone()).context("a container's id")?;
    Ok(id.rsplit('/').next().unwrap_or_default().to_owned())
}

/// `true` through server and agent, and by the runtime alone, turn by turn.
async fn exec(report: &mut Report, cluster: &Cluster, pods: &Api<Pod>) -> anyhow::Result<()> {
    let id = container_id(&start(pods, "run", "exec sleep 100000").await?)?;
    let root = cluster.path("run").join("runtime");
    let (mut whole, mut alone) = (vec![], vec![]);
    // The first few warm caches up.
    for round in 0..EXECS + 5 {
        let begun = Instant::now();
        let params = AttachParams::default().stdin(false).stdout(true).stderr(true);
        let mut process = pods.exec("run", ["true"], &params).await?;
        let status = process.take_status().context("a status")?.await.context("an end")?;
        anyhow::ensure!(status.status.as_deref() == Some("Success"), "{status:?}");
        let took = begun.elapsed();
        let begun = Instant::now();
        let mut command = Command::new("runc");
        command.arg("--root").arg(&root).args(["exec", &id, "true"]);
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        anyhow::ensure!(output.status.success(), "runc exec: {}", String::from_utf8_lossy(&output.stderr));
        if round >= 5 {
            whole.push(took.as_secs_f64() * 1e3);
            alone.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        let (whole, alone) = (percentile(&mut whole, part), percentile(&mut alone, part));
        report.add(&format!("exec of true through the API, {name}"), whole, "ms");
        report.add(&format!("   by the OCI runtime alone, {name}"), alone, "ms");
        report.add(&format!("   on top of the runtime, {name}"), whole - alone, "ms");
    }
    Ok(())
}

/// A log of a million lines through server and agent, and by `cat`.
async fn logs(report: &mut Report, cluster: &Cluster, pods: &Api<Pod>) -> anyhow::Result<()> {
    let script = format!("yes '{LINE}' | head -n {LOG_LINES}; echo whole; exec sleep 100000");
    let begun = Instant::now();
    let pod = start(pods, "log", &script).await?;
    let uid = pod.metadata.uid.context("a uid")?;
    let path = cluster.path("logs").join(format!("default_log_{uid}/c/0.log"));
    let last = LogParams { tail_lines: Some(1), ..LogParams::default() };
    while pods.logs("log", &last).await? != "whole\n" {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "the log is not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let written = begun.elapsed();
    let payload = (LOG_LINES * (LINE.len() + 1)) as f64 / 1e6;
    report.add("log written by a container, from its create on", payload / written.as_secs_f64(), "MB/s");
    let both = [cluster.server.pid(), cluster.agent_pid()];
    let (mut speeds, mut costs, mut cats, mut cat_costs) = (vec![], vec![], vec![], vec![]);
    for _ in 0..3 {
        let (begun, before) = (Instant::now(), both.map(own_seconds));
        let mut stream = pods.log_stream("log", &LogParams::default()).await?;
        let (mut read, mut buffer) = (0, vec![0; 256 << 10]);
        loop {
            match stream.read(&mut buffer).await? {
                0 => break,
                n => read += n,
            }
        }
        anyhow::ensure!(read == LOG_LINES * (LINE.len() + 1) + "whole\n".len(), "{read} bytes of log");
        speeds.push(payload / begun.elapsed().as_secs_f64());
        let used: f64 = both.map(own_seconds).iter().zip(before).map(|(now, before)| now - before).sum();
        costs.push(used * 1e3 / payload);
        let (begun, before) = (Instant::now(), children_seconds("self"));
        let mut cat = Command::new("cat").arg(&path).stdout(Stdio::piped()).spawn()?;
        let mut out = cat.stdout.take().context("a pipe")?;
        let size = std::io::copy(&mut out, &mut std::io::sink())? as f64 / 1e6;
        cat.wait()?;
        cats.push(size / begun.elapsed().as_secs_f64());
        cat_costs.push((children_seconds("self") - before) * 1e3 / size);
    }
    report.add("logs through the API", percentile(&mut speeds, 0.5), "MB/s");
    report.add("   cat of the file", percentile(&mut cats, 0.5), "MB/s");
    report.add("logs through the API: cpu of server and agent", percentile(&mut costs, 0.5), "ms per MB");
    report.add("   cpu of cat of the file", percentile(&mut cat_costs, 0.5), "ms per MB");
    Ok(())
}

/// Bytes out of a pod through server and agent, and straight from its address.
async fn ports(report: &mut Report, cluster: &Cluster, pods: &Api<Pod>) -> anyhow::Result<()> {
    let script = format!("exec nc -ll -p 9000 -e head -c {FORWARDED} /dev/zero");
    let pod = start(pods, "port", &script).await?;
    let address = pod.status.and_then(|status| status.pod_ip).context("an address")?;
    let begun = Instant::now();
    while tokio::net::TcpStream::connect((address.as_str(), 9000)).await.is_err() {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "nobody listens");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let both = [cluster.server.pid(), cluster.agent_pid()];
    let (mut through, mut straight, mut costs) = (vec![], vec![], vec![]);
    for _ in 0..3 {
        let mut forwarder = pods.portforward("port", &[9000]).await?;
        let stream = forwarder.take_stream(9000).context("a stream")?;
        let before = both.map(own_seconds);
        through.push(drain(stream).await?);
        let used: f64 = both.map(own_seconds).iter().zip(before).map(|(now, before)| now - before).sum();
        costs.push(used * 1e9 / FORWARDED as f64);
        straight.push(drain(tokio::net::TcpStream::connect((address.as_str(), 9000)).await?).await?);
    }
    report.add("port-forward out of a pod", percentile(&mut through, 0.5), "MB/s");
    report.add("   straight from the pod's address", percentile(&mut straight, 0.5), "MB/s");
    report.add("port-forward: cpu of server and agent", percentile(&mut costs, 0.5), "ms per MB");
    Ok(())
}

/// Reads everything; MB/s.
async fn drain(mut stream: impl tokio::io::AsyncRead + Unpin) -> anyhow::Result<f64> {
    let (begun, mut read, mut buffer) = (Instant::now(), 0, vec![0; 256 << 10]);
    while read < FORWARDED {
        let n = stream.read(&mut buffer).await?;
        anyhow::ensure!(n > 0, "the connection ended after {read} bytes");
        read += n;
    }
    Ok(FORWARDED as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

/// A hundred pods with an exec probe every second against the same without: cpu of agent, keeper and runtime.
async fn probes(
    report: &mut Report,
    cluster: &Cluster,
    client: &kube::Client,
    pods: &Api<Pod>,
) -> anyhow::Result<()> {
    let names: Vec<String> = (0..PROBED).map(|n| format!("probed{n}")).collect();
    let mut used = vec![];
    for probe in ["", r#"{"exec": {"command": ["/bin/true"]}, "periodSeconds": 1, "timeoutSeconds": 5}"#] {
        pod::create(pods, &names, probe).await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let probed = total_probes(client).await?;
        let (agent, keeper) = (cluster.agent_pid(), cluster.keeper_pid());
        // The runtime and what it starts are the keeper's children.
        let now = || (own_seconds(agent), own_seconds(keeper) + children_seconds(&keeper.to_string()));
        let (begun, before) = (Instant::now(), now());
        tokio::time::sleep(WATCHED).await;
        let (after, span) = (now(), begun.elapsed().as_secs_f64());
        let count = (total_probes(client).await? - probed) / span;
        used.push(((after.0 - before.0) / span, (after.1 - before.1) / span, count));
        pod::remove(pods, &names).await?;
    }
    let (idle, busy) = (used[0], used[1]);
    report.add("100 pods without probes: agent", idle.0 * 100.0, "% of a cpu");
    report.add("100 exec probes a second: probes made", busy.2, "per second");
    report.add("100 exec probes a second: agent", busy.0 * 100.0, "% of a cpu");
    report.add("100 exec probes a second: keeper and OCI runtime", busy.1 * 100.0, "% of a cpu");
    report.add("exec probe: agent", (busy.0 - idle.0) * 1e3 / busy.2, "ms of cpu each");
    report.add(
        "exec probe: keeper, OCI runtime and /bin/true",
        (busy.1 - idle.1) * 1e3 / busy.2,
        "ms of cpu each",
    );
    Ok(())
}

/// Probes that the node has made so far.
async fn total_probes(client: &kube::Client) -> anyhow::Result<f64> {
    let request = http::Request::get("/api/v1/nodes/node1/proxy/metrics/probes").body(vec![])?;
    let page = client.request_text(request).await?;
    let lines = page.lines().filter(|line| line.starts_with("prober_probe_total{"));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
}

/// Of `/proc/PID/stat` behind the name, in seconds: a tick is a hundredth on every Linux.
fn seconds(pid: &str, fields: [usize; 2]) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = fields.map(|at| rest.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0));
    (ticks[0] + ticks[1]) / 100.0
}

/// Processor time of a process.
pub fn own_seconds(pid: u32) -> f64 {
    seconds(&pid.to_string(), [11, 12])
}

/// Of children that ended and were waited for.
fn children_seconds(pid: &str) -> f64 {
    seconds(pid, [13, 14])
}
