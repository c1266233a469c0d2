//! Logs: how fast a container can write to its log, beside a plain copy of the same bytes from a pipe to a file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams};

use crate::report::{Report, percentile, scaled};
use crate::streams::{own_seconds, start};
use coracle_tests::pods::Cluster;

/// With its newline, 100 bytes.
const LINE: &str =
    "the quick brown fox jumps over the lazy dog and then again over its log, line after line after line";
/// Lines of the file that is written again and again: 64 MiB.
const LINES: usize = 671_088;
/// How often: 1 GiB.
const TIMES: usize = 16;
const ROUNDS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(300);

/// Measures it; in namespaces of its own.
pub async fn run() -> anyhow::Result<Report> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Nothing is rotated.
    let begin = || Cluster::start_with("--container-log-max-size 8Gi");
    let cluster = tokio::task::spawn_blocking(begin).await?;
    let file = kube::config::Kubeconfig::read_from(cluster.server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let pods: Api<Pod> = Api::namespaced(kube::Client::try_from(config)?, "default");
    let (lines, times) = (LINES, scaled(TIMES));
    let megabytes = (lines * times * (LINE.len() + 1)) as f64 / 1e6;
    let source = cluster.path("lines");
    fs::write(&source, format!("{LINE}\n").repeat(lines))?;
    let (mut logged, mut costs, mut floor, mut floor_costs) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let before = own_seconds(cluster.keeper_pid());
        let seconds = log(&cluster, &pods, &format!("log{round}"), times).await?;
        logged.push(megabytes / seconds);
        costs.push((own_seconds(cluster.keeper_pid()) - before) * 1e3 / megabytes);
        let (source, target) = (source.clone(), cluster.path("copy"));
        let (seconds, used) = tokio::task::spawn_blocking(move || copy(&source, &target, times)).await??;
        floor.push(megabytes / seconds);
        floor_costs.push(used * 1e3 / megabytes);
    }
    let (logged, floor) = (percentile(&mut logged, 0.5), percentile(&mut floor, 0.5));
    let mut report = Report::default();
    report.add("log written by one container, lines of 100 bytes", logged, "MB/s");
    report.add("   plain copy of the same bytes from a pipe to a file", floor, "MB/s");
    report.add("   part of the plain copy", logged / floor, "");
    report.add("cpu of the keeper", percentile(&mut costs, 0.5), "ms per MB");
    report.add("   cpu of the plain copy", percentile(&mut floor_costs, 0.5), "ms per MB");
    tokio::task::spawn_blocking(move || drop(cluster)).await?;
    Ok(report)
}

/// Writes a file to standard output so many times.
fn writer(file: &str, times: usize) -> String {
    format!("n=0; while [ $n -lt {times} ]; do dd if={file} bs=64k 2>/dev/null; n=$((n+1)); done")
}

/// A container writes its log: seconds from its first line to its last, by their times.
async fn log(cluster: &Cluster, pods: &Api<Pod>, name: &str, times: usize) -> anyhow::Result<f64> {
    let script = format!(
        "yes '{LINE}' | head -n {LINES} > /tmp/lines; echo begin; {}; echo whole; exec sleep 100000",
        writer("/tmp/lines", times)
    );
    nix::unistd::sync();
    let pod = start(pods, name, &script).await?;
    let uid = pod.metadata.uid.context("a uid")?;
    let path: PathBuf = cluster.path("logs").join(format!("default_{name}_{uid}/c/0.log"));
    let begun = Instant::now();
    while !end(&path)?.ends_with(" whole\n") {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "the log is not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut first = [0; 100];
    File::open(&path)?.read_exact(&mut first)?;
    let last = end(&path)?;
    let last = last.lines().last().context("a last line")?;
    let span = time(last)?.duration_since(time(&String::from_utf8_lossy(&first))?);
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    while pods.get_opt(name).await?.is_some() {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "{name} is not removed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(span.as_secs_f64())
}

/// The time of a log's line.
fn time(line: &str) -> anyhow::Result<Timestamp> {
    Ok(line.split(' ').next().unwrap_or_default().parse()?)
}

/// The last bytes of a file.
fn end(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(200)))?;
    let mut bytes = vec![];
    file.take(400).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The same bytes from the same program, copied to a file by this process: seconds, and those of cpu.
fn copy(source: &Path, target: &Path, times: usize) -> anyhow::Result<(f64, f64)> {
    nix::unistd::sync();
    let script = writer(&source.display().to_string(), times);
    let (begun, before) = (Instant::now(), own_seconds(std::process::id()));
    let mut child = Command::new("busybox").args(["sh", "-c", &script]).stdout(Stdio::piped()).spawn()?;
    let mut from = child.stdout.take().context("a pipe")?;
    let (mut to, mut buffer) = (File::create(target)?, vec![0; 64 << 10]);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => to.write_all(&buffer[..n])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let measured = (begun.elapsed().as_secs_f64(), own_seconds(std::process::id()) - before);
    anyhow::ensure!(child.wait()?.success(), "the writer failed");
    let size = (LINES * times * (LINE.len() + 1)) as u64;
    anyhow::ensure!(to.metadata()?.len() == size, "{} bytes were copied", to.metadata()?.len());
    fs::remove_file(target)?;
    Ok(measured)
}
