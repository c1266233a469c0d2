//! `kubectl top`, and the node's own API.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cluster::{IMAGE, run as shell};
use crate::tools::Stage;
use coracle_tests::eventually;
use serde_json::Value;

pub fn top(stage: &mut Stage) {
    let script = "while true; do :; done";
    stage
        .cluster
        .pod("busy", &format!("containers: [{{name: c, image: {IMAGE}, command: [sh, -c, {script:?}]}}]"));
    stage.cluster.wait_ready("busy");
    let begun = Instant::now();
    for k in &stage.kubectls {
        eventually("the busy pod is in the figures", Duration::from_secs(60), || {
            let top = k.try_with("top pod busy --no-headers", "");
            let cpu = top
                .out
                .split_whitespace()
                .nth(1)
                .and_then(|c| c.strip_suffix('m'))
                .and_then(|c| c.parse::<u64>().ok());
            top.ok && cpu.is_some_and(|cpu| cpu > 50)
        });
        eprintln!("the pod's figures are there {:.1?} after it was ready", begun.elapsed());
        let nodes = k.run("top nodes --no-headers");
        assert!(nodes.starts_with("node1") && nodes.contains('%'), "{nodes}");
        let all = k.run("top pods --containers --no-headers");
        assert!(all.lines().any(|line| line.starts_with("pair") && line.contains(" b ")), "{all}");
        for (asked, name) in [("-l app=web", "web "), ("--field-selector=metadata.name=pair", "pair ")] {
            let some = k.run(&format!("top pods {asked} --no-headers"));
            assert!(some.lines().count() == 1 && some.starts_with(name), "{asked}: {some}");
        }
    }
    stage.cluster.delete("busy");
}

pub fn node_api(stage: &mut Stage) {
    let k = stage.newest();
    let raw = |path: &str| k.run(&format!("get --raw /api/v1/nodes/node1/proxy/{path}"));
    assert!(raw("pods").contains(r#""name":"talk""#));
    assert!(raw("configz").contains("KubeletConfiguration"));
    let summary: serde_json::Value = serde_json::from_str(&raw("stats/summary")).unwrap();
    assert_eq!(summary["node"]["nodeName"], "node1");
    assert!(summary["node"]["memory"]["workingSetBytes"].as_u64() > Some(0));
    let pods = summary["pods"].as_array().unwrap();
    let talk = pods.iter().find(|p| p["podRef"]["name"] == "talk").unwrap();
    assert!(talk["containers"][0]["memory"]["workingSetBytes"].as_u64() > Some(0), "{talk}");
    for (path, series) in [
        ("metrics", "kubelet_running_pods "),
        (
            "metrics/resource",
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"talk\"}",
        ),
        ("metrics/cadvisor", "container_memory_working_set_bytes{"),
        ("metrics/probes", "prober_probe_total"),
    ] {
        let text = raw(path);
        assert!(text.contains(series), "{path}: {text}");
    }
}

/// The cgroup of a pod's only container.
fn cgroup(stage: &Stage, pod: &str) -> PathBuf {
    let status = stage.cluster.get(pod)["status"].clone();
    let id = status["containerStatuses"][0]["containerID"]
        .as_str()
        .unwrap()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    PathBuf::from(shell(&format!("find /sys/fs/cgroup -type d -name '*{id}*' | head -1")).trim())
}

fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// Nanoseconds of cpu that a cgroup has used.
fn used(cgroup: &Path) -> u64 {
    field(&cgroup.join("cpu.stat"), "usage_usec ").unwrap() * 1000
}

/// The working set by the cgroup, or by its processes where the kernel counts no memory.
fn working_set(cgroup: &Path) -> u64 {
    if let Ok(current) = fs::read_to_string(cgroup.join("memory.current")) {
        let inactive = field(&cgroup.join("memory.stat"), "inactive_file ").unwrap_or(0);
        return current.trim().parse::<u64>().unwrap() - inactive;
    }
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap();
    let resident = |pid: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().to_owned();
        line.trim_end_matches(" kB").parse::<u64>().ok()
    };
    pids.lines().filter_map(resident).sum::<u64>() * 1024
}

/// Checks that a figure is at most 5 % outside of what the cgroup says it can be.
fn close(what: &str, shown: f64, own: RangeInclusive<f64>) {
    let (low, high) = own.into_inner();
    eprintln!("{what}: {shown:.0} shown, {low:.0} to {high:.0} by the cgroup");
    assert!(
        shown > low * 0.95 && shown < high * 1.05,
        "{what}: {shown} shown, {low} to {high} by the cgroup"
    );
}

/// One look at a cgroup: what it had used at a moment between two times.
struct Look {
    begun: Instant,
    used: u64,
    ended: Instant,
}

/// Looks at a cgroup again and again until it is told to stop.
fn looks(cgroup: PathBuf, stop: Arc<AtomicBool>) -> JoinHandle<Vec<Look>> {
    std::thread::spawn(move || {
        let mut looks = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let used = used(&cgroup);
            looks.push(Look { begun, used, ended: Instant::now() });
            std::thread::sleep(Duration::from_millis(10));
        }
        looks
    })
}

/// The earliest and the latest time at which the cgroup can have used this much. On a busy machine they are far apart.
fn when(looks: &[Look], total: u64) -> (Instant, Instant) {
    let not_before = looks.iter().rfind(|look| look.used <= total).expect("a look before the reading");
    let not_after = looks.iter().find(|look| look.used >= total).expect("a look after the reading");
    (not_before.begun, not_after.ended)
}

/// Figures of cpu and memory against the cgroup's own, read beside.
pub fn figures(stage: &mut Stage) {
    let hold = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); while true; do :; done";
    stage
        .cluster
        .pod("figures", &format!("containers: [{{name: c, image: {IMAGE}, command: [sh, -c, {hold:?}]}}]"));
    stage.cluster.wait_ready("figures");
    let cgroup = cgroup(stage, "figures");
    let k = stage.newest();
    // When the cgroup had used how much.
    let stop = Arc::new(AtomicBool::new(false));
    let watch = looks(cgroup.clone(), stop.clone());
    // Readings of the agent, each a total and a rate, and what the API serves of them.
    let (mut readings, mut served): (Vec<(u64, u64)>, Vec<u64>) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while readings.len() < 4 {
        assert!(begun.elapsed() < Duration::from_secs(180), "{readings:?}");
        let summary: Value =
            serde_json::from_str(&k.run("get --raw /api/v1/nodes/node1/proxy/stats/summary")).unwrap();
        let pod = summary["pods"].as_array().unwrap().iter().find(|pod| pod["podRef"]["name"] == "figures");
        let cpu = pod.map(|pod| pod["containers"][0]["cpu"].clone()).unwrap_or_default();
        if let (Some(total), Some(rate)) =
            (cpu["usageCoreNanoSeconds"].as_u64(), cpu["usageNanoCores"].as_u64())
            && readings.last().is_none_or(|(last, _)| *last != total)
        {
            readings.push((total, rate));
        }
        let metrics =
            k.try_with("get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods/figures", "");
        if let Ok(metrics) = serde_json::from_str::<Value>(&metrics.out) {
            let cpu = metrics["containers"][0]["usage"]["cpu"].as_str().unwrap_or_default().to_owned();
            served.extend(cpu.strip_suffix('n').and_then(|cpu| cpu.parse::<u64>().ok()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let top = k.run("top pod figures --no-headers");
    stop.store(true, Ordering::Relaxed);
    let looks = watch.join().unwrap();
    // The first may be from before the watch began.
    for pair in readings[1..].windows(2) {
        let [(before, _), (total, rate)] = [pair[0], pair[1]];
        let (from, to) = (when(&looks, before), when(&looks, total));
        let (longest, shortest) = (to.1 - from.0, to.0.saturating_duration_since(from.1));
        let over = |span: Duration| (total - before) as f64 / span.as_secs_f64();
        // A look may take so long on a busy machine that the two change places.
        let (one, other) = (over(longest), over(shortest));
        close("cpu, nanocores", rate as f64, one.min(other)..=one.max(other));
    }
    let known: Vec<u64> = readings.iter().map(|(_, rate)| *rate).collect();
    assert!(served.iter().any(|served| known[1..].contains(served)), "{served:?} of {known:?}");
    let shown: Vec<u64> = top
        .split_whitespace()
        .skip(1)
        .map(|text| text.trim_end_matches(['m', 'M', 'i']).parse().unwrap())
        .collect();
    let near = known.iter().chain(&served).any(|rate| rate.div_ceil(1_000_000).abs_diff(shown[0]) <= 1);
    assert!(near, "{top} of {known:?} {served:?}");

    // It holds what it holds.
    let metrics: Value = serde_json::from_str(
        &k.run("get --raw /apis/metrics.k8s.io/v1beta1/namespaces/default/pods/figures"),
    )
    .unwrap();
    let memory = metrics["containers"][0]["usage"]["memory"].as_str().unwrap().trim_end_matches("Ki");
    let memory = memory.parse::<f64>().unwrap() * 1024.0;
    assert!(memory > 20e6, "{metrics}");
    let own = working_set(&cgroup) as f64;
    close("memory, bytes", memory, own..=own);
    assert!((shown[1] as f64 * 1_048_576.0 - memory).abs() <= 1_048_576.0, "{top} of {memory}");
    stage.cluster.delete("figures");
}
