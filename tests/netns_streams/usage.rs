//! `kubectl top`, and the node's own API.

use std::time::Duration;

use crate::cluster::IMAGE;
use crate::tools::Stage;
use coracle_tests::eventually;

pub fn top(stage: &mut Stage) {
    let script = "while true; do :; done";
    stage
        .cluster
        .pod("busy", &format!("containers: [{{name: c, image: {IMAGE}, command: [sh, -c, {script:?}]}}]"));
    stage.cluster.wait_ready("busy");
    for k in &stage.kubectls {
        eventually("the busy pod is in the figures", Duration::from_secs(15), || {
            let top = k.try_with("top pod busy --no-headers", "");
            let cpu = top
                .out
                .split_whitespace()
                .nth(1)
                .and_then(|c| c.strip_suffix('m'))
                .and_then(|c| c.parse::<u64>().ok());
            top.ok && cpu.is_some_and(|cpu| cpu > 50)
        });
        let nodes = k.run("top nodes --no-headers");
        assert!(nodes.starts_with("node1") && nodes.contains('%'), "{nodes}");
        let all = k.run("top pods --containers --no-headers");
        assert!(all.lines().any(|line| line.starts_with("pair") && line.contains(" b ")), "{all}");
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
