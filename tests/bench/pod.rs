//! Pods: from the client's create to Running as the client sees it, to gone again, one and a hundred at once, with where
//! the time goes; memory and cpu of the node.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

use crate::report::{Report, percentile};
use coracle_tests::pods::{Cluster, IMAGE};

const SINGLES: usize = 40;
const CROWD: usize = 100;
/// Time between two pods that are started alone.
const APART: Duration = Duration::from_millis(100);
/// After how long without work a node counts as idle.
const IDLE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures everything; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // With the node's own plugins, as it is installed.
    let plugins =
        coracle_tests::program("bridge").parent().map(std::path::Path::to_owned).unwrap_or_default();
    let flags = format!("--cni-bin-dir {}", plugins.display());
    let cluster = tokio::task::spawn_blocking(move || Cluster::start_with(&flags)).await?;
    let file = kube::config::Kubeconfig::read_from(cluster.server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config)?, "default");
    let mut report = Report::default();
    // The first makes the bridge and the network's tables.
    round(&pods, &["warm".to_owned()], "").await?;
    tokio::time::sleep(IDLE).await;
    report.add("agent, idle", resident_mib(cluster.agent_pid()), "MiB");

    let (mut running, mut gone, mut parts) = (vec![], vec![], HashMap::<&str, Vec<f64>>::new());
    for n in 0..SINGLES {
        // As a node really starts things: the kernel has ended with what was before.
        tokio::time::sleep(APART).await;
        let names = [format!("single{n}")];
        let times = round(&pods, &names, "").await?;
        running.extend(times.running.iter().map(|t| ms(*t)));
        gone.extend(times.gone.iter().map(|t| ms(*t)));
        for (part, time) in times.parts {
            parts.entry(part).or_default().push(ms(time));
        }
    }
    report.add("one pod: create to Running, p50", percentile(&mut running, 0.5), "ms");
    report.add("one pod: create to Running, p99", percentile(&mut running, 0.99), "ms");
    for part in ["create answered", "bound", "Running after bound"] {
        let times = parts.get_mut(part).map_or(f64::NAN, |times| percentile(times, 0.5));
        report.add(&format!("   of that, {part}, p50"), times, "ms");
    }
    for (stage, times) in &mut stages(&cluster.log()) {
        report.add(&format!("   on the node, {stage}, p50"), percentile(times, 0.5), "ms");
    }
    report.add("one pod: delete to gone, p50", percentile(&mut gone, 0.5), "ms");
    report.add("one pod: delete to gone, p99", percentile(&mut gone, 0.99), "ms");

    let names: Vec<String> = (0..CROWD).map(|n| format!("crowd{n}")).collect();
    let begun = Instant::now();
    let times = create(&pods, &names, "").await?;
    report.add("100 pods at once: all Running", begun.elapsed().as_secs_f64(), "s");
    let mut each: Vec<f64> = times.running.iter().map(|t| ms(*t)).collect();
    report.add("100 pods at once: create to Running, p50", percentile(&mut each, 0.5), "ms");
    report.add("100 pods at once: create to Running, p99", percentile(&mut each, 0.99), "ms");
    tokio::time::sleep(IDLE).await;
    report.add("agent, 100 pods", resident_mib(cluster.agent_pid()), "MiB");
    report.add("agent with 100 idle pods", cpu_percent(cluster.agent_pid()).await, "% of a cpu");
    let begun = Instant::now();
    remove(&pods, &names).await?;
    report.add("100 pods at once: all gone", begun.elapsed().as_secs_f64(), "s");

    // A hundred exec probes a second.
    let probe = r#"{"exec": {"command": ["true"]}, "periodSeconds": 1, "timeoutSeconds": 5}"#;
    create(&pods, &names, probe).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    report.add("agent with 100 exec probes a second", cpu_percent(cluster.agent_pid()).await, "% of a cpu");
    remove(&pods, &names).await?;
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    Ok(report)
}

/// What was measured of pods.
#[derive(Default)]
pub struct Times {
    /// From create to Running.
    pub running: Vec<Duration>,
    gone: Vec<Duration>,
    parts: Vec<(&'static str, Duration)>,
}

/// In milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Creates pods, waits until each is Running, and deletes them.
pub async fn round(pods: &Api<Pod>, names: &[String], probe: &str) -> anyhow::Result<Times> {
    let mut times = create(pods, names, probe).await?;
    times.gone = remove(pods, names).await?;
    Ok(times)
}

fn pod(name: &str, probe: &str) -> anyhow::Result<Pod> {
    let mut container = json!({"name": "c", "image": IMAGE, "command": ["sh", "-c",
        "trap 'exit 0' TERM; sleep 100000 & wait"]});
    if !probe.is_empty() {
        container["livenessProbe"] = serde_json::from_str(probe)?;
    }
    Ok(serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}))?)
}

async fn version(pods: &Api<Pod>) -> anyhow::Result<String> {
    let list = pods.list(&ListParams::default().limit(1)).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Creates pods and waits until each is Running.
pub async fn create(pods: &Api<Pod>, names: &[String], probe: &str) -> anyhow::Result<Times> {
    create_all(pods, names.iter().map(|name| pod(name, probe)).collect::<anyhow::Result<_>>()?).await
}

/// Creates these pods and waits until each is Running.
pub async fn create_all(pods: &Api<Pod>, all: Vec<Pod>) -> anyhow::Result<Times> {
    let count = all.len();
    let version = version(pods).await?;
    let mut watch = pods.watch(&WatchParams::default(), &version).await?.boxed();
    let begun = Instant::now();
    let created = all.into_iter().map(|pod| async move {
        let at = Instant::now();
        pods.create(&PostParams::default(), &pod).await?;
        Ok::<_, anyhow::Error>((pod.metadata.name.unwrap_or_default(), (at, at.elapsed())))
    });
    let created = futures::stream::iter(created).buffer_unordered(32).try_collect::<HashMap<_, _>>();
    let mut created = std::pin::pin!(created);
    let (mut known, mut seen, mut bound) = (None, HashMap::new(), HashMap::new());
    let mut times = Times::default();
    while known.is_none() || seen.len() < count {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "{} of {count} pods run", seen.len());
        tokio::select! {
            done = &mut created, if known.is_none() => known = Some(done?),
            event = watch.next() => if let Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event.transpose()? {
                let name = pod.metadata.name.clone().unwrap_or_default();
                if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                    bound.entry(name.clone()).or_insert_with(Instant::now);
                }
                if pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running") {
                    seen.entry(name).or_insert_with(Instant::now);
                }
            },
        }
    }
    for (name, (at, answered)) in known.unwrap_or_default() {
        let (Some(seen), Some(bound)) = (seen.get(&name), bound.get(&name)) else { continue };
        times.running.push(*seen - at);
        times.parts.push(("create answered", answered));
        times.parts.push(("bound", bound.saturating_duration_since(at)));
        times.parts.push(("Running after bound", seen.saturating_duration_since(*bound)));
    }
    Ok(times)
}

/// Deletes pods and waits until each is gone.
pub async fn remove(pods: &Api<Pod>, names: &[String]) -> anyhow::Result<Vec<Duration>> {
    let version = version(pods).await?;
    let mut watch = pods.watch(&WatchParams::default(), &version).await?.boxed();
    let begun = Instant::now();
    let params = DeleteParams { grace_period_seconds: Some(1), ..Default::default() };
    let deleted = names.iter().map(|name| pods.delete(name, &params));
    futures::stream::iter(deleted).buffer_unordered(32).try_collect::<Vec<_>>().await?;
    let mut gone = vec![];
    while gone.len() < names.len() {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "{} of {} pods are gone", gone.len(), names.len());
        if let Some(WatchEvent::Deleted(_)) = watch.try_next().await? {
            gone.push(begun.elapsed());
        }
    }
    Ok(gone)
}

/// Times between the agent's own log lines of each pod, by what was done.
fn stages(log: &str) -> Vec<(&'static str, Vec<f64>)> {
    let mut at: HashMap<String, HashMap<&str, f64>> = HashMap::new();
    for line in log.lines() {
        let Some(uid) = line.split("uid=\"").nth(1).and_then(|rest| rest.split('"').next()) else { continue };
        let mark =
            ["pod arrives", "sandbox made", "container started"].into_iter().find(|mark| line.contains(mark));
        let time = line.split('T').nth(1).and_then(|rest| rest.split('Z').next());
        let (Some(mark), Some(time)) = (mark, time) else { continue };
        let seconds = time
            .split(':')
            .filter_map(|part| part.parse::<f64>().ok())
            .fold(0.0, |sum, part| sum * 60.0 + part);
        at.entry(uid.to_owned()).or_default().entry(mark).or_insert(seconds);
    }
    let between = |from: &str, to: &str| -> Vec<f64> {
        at.values().filter_map(|marks| Some((marks.get(to)? - marks.get(from)?) * 1e3)).collect()
    };
    vec![
        ("volumes, sandbox, first container made", between("pod arrives", "sandbox made")),
        ("container started", between("sandbox made", "container started")),
    ]
}

fn resident_mib(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0");
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// Of a process, over ten seconds.
async fn cpu_percent(pid: u32) -> f64 {
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(')').next().unwrap_or_default().to_owned();
        let fields: Vec<f64> = rest.split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect();
        fields.get(11).unwrap_or(&0.0) + fields.get(12).unwrap_or(&0.0)
    };
    let (before, begun) = (ticks(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A tick is a hundredth of a second on every Linux.
    (ticks() - before) / begun.elapsed().as_secs_f64()
}
