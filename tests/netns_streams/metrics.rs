//! Prometheus' pages of server and agent, in both forms, and the agent's checkpoints.

use crate::cluster::IMAGE;
use crate::tools::Stage;
use coracle_tests::client::Target;
use coracle_tests::eventually;
use http_body_util::BodyExt;
use std::time::Duration;

const OPEN: &str =
    "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
const NODE: &str = "/api/v1/nodes/node1/proxy";

/// Status, content type and text of an answer.
fn ask(stage: &Stage, method: &str, path: &str, accept: &str) -> (u16, String, String) {
    let target = Target::new(stage.cluster.server.data_dir(), &stage.cluster.server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = target.connect().await.unwrap();
        let answer = connection.open_accepting(method, path, accept).await.unwrap();
        let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, kind.unwrap_or_default(), String::from_utf8(text.to_vec()).unwrap())
    })
}

/// The sum of a family's values whose labels contain all of these.
fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
    let of_family = page.lines().filter(|line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
    });
    let matching = of_family.filter(|line| labels.iter().all(|label| line.contains(label)));
    matching.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

pub fn server(stage: &mut Stage) {
    stage
        .cluster
        .pod("unplaced", &format!("nodeSelector: {{no: such}}, containers: [{{name: c, image: {IMAGE}}}]"));
    let page = || ask(stage, "GET", "/metrics", "").2;
    eventually("a pod waits", Duration::from_secs(60), || {
        sum(&page(), "scheduler_pending_pods", &["queue=\"unschedulable\""]) >= 1.0
    });
    let text = page();
    for (name, labels) in [
        ("scheduler_schedule_attempts_total", &["profile=\"default-scheduler\"", "result=\"scheduled\""][..]),
        ("scheduler_schedule_attempts_total", &["result=\"unschedulable\""]),
        ("scheduler_scheduling_attempt_duration_seconds_count", &["result=\"scheduled\""]),
        ("scheduler_scheduling_algorithm_duration_seconds_count", &[]),
        ("scheduler_pod_scheduling_attempts_count", &[]),
        ("scheduler_pod_scheduling_sli_duration_seconds_count", &["attempts=\"1\""]),
        ("scheduler_cache_size", &["type=\"nodes\""]),
        ("workqueue_adds_total", &["name=\"deployment\""]),
        ("workqueue_queue_duration_seconds_count", &["name=\"replicaset\""]),
        ("workqueue_work_duration_seconds_count", &["name=\"endpoint_slice\""]),
        ("apiserver_request_total", &["code=\"201\"", "resource=\"pods\"", "verb=\"CREATE\""]),
        ("apiserver_request_duration_seconds_count", &["resource=\"pods\""]),
        ("apiserver_storage_objects", &["resource=\"pods\""]),
        ("process_resident_memory_bytes", &[]),
    ] {
        assert!(sum(&text, name, labels) > 0.0, "{name} {labels:?} in {text}");
    }
    for name in ["workqueue_depth", "workqueue_unfinished_work_seconds", "workqueue_retries_total"] {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
    }
    stage.cluster.delete("unplaced");
}

pub fn forms(stage: &mut Stage) {
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for path in ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"] {
        for path in [format!("{NODE}{path}"), path.to_owned()] {
            if path.starts_with("/metrics/") {
                continue;
            }
            assert_eq!(ask(stage, "GET", &path, "*/*").1, plain, "{path}");
            let (status, kind, text) = ask(stage, "GET", &path, OPEN);
            assert_eq!((status, kind.as_str()), (200, open), "{path}");
            assert!(text.ends_with("\n# EOF\n"), "{path}");
            well_formed(&path, &text);
        }
    }
    let agent = ask(stage, "GET", &format!("{NODE}/metrics"), "").2;
    for operation in ["run_podsandbox", "create_container", "start_container", "exec", "port_forward"] {
        let label = format!("operation_type=\"{operation}\"");
        assert!(sum(&agent, "kubelet_runtime_operations_total", &[&label]) > 0.0, "{operation} in {agent}");
    }
    for (name, labels) in [
        ("kubelet_pod_start_duration_seconds_count", &[][..]),
        ("kubelet_pod_start_sli_duration_seconds_count", &[]),
        ("kubelet_pod_worker_duration_seconds_count", &["operation_type=\"create\""]),
        ("kubelet_pod_worker_duration_seconds_count", &["operation_type=\"sync\""]),
    ] {
        assert!(sum(&agent, name, labels) > 0.0, "{name} {labels:?} in {agent}");
    }
}

/// Every series that the dashboard draws is served.
pub fn dashboard(stage: &mut Stage) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/grafana/coracle.json");
    let text = std::fs::read_to_string(file).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pages: String = ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"]
        .iter()
        .map(|path| ask(stage, "GET", &format!("{NODE}{path}"), "").2)
        .chain([ask(stage, "GET", "/metrics", "").2])
        .collect();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array());
    let mut drawn = 0;
    for target in targets.flatten() {
        let expression = target["expr"].as_str().unwrap();
        // What stands before a bracket or at the end and is neither a function nor a label.
        for (at, _) in expression.match_indices(['{', '[', ')']).chain([(expression.len(), "")]) {
            let from =
                expression[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |i| i + 1);
            let name = &expression[from..at];
            let before = expression[..from].rfind('(').map(|i| expression[..i].trim_end());
            let is_label = before.is_some_and(|before| before.ends_with(" by"));
            if name.contains('_') && !is_label {
                let family = ["_bucket", "_count", "_sum"].iter().find_map(|end| name.strip_suffix(end));
                let family = family.unwrap_or(name);
                assert!(pages.contains(&format!("# TYPE {family} ")), "{family} of {expression}");
                drawn += 1;
            }
        }
    }
    assert!(drawn > 15, "{drawn} series are drawn");
}

/// Every value is of the family that was begun last, families are begun once, and counters end with `_total`.
fn well_formed(path: &str, text: &str) {
    let mut begun = std::collections::BTreeSet::new();
    let (mut family, mut kind) = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            (family, kind) = rest.split_once(' ').unwrap();
            assert!(begun.insert(family), "{path}: {family} comes twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let ending = name.strip_prefix(family).unwrap_or_else(|| panic!("{path}: {name} under {family}"));
            let endings: &[&str] = match kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "summary" => &["", "_sum", "_count"],
                _ => &[""],
            };
            assert!(endings.contains(&ending), "{path}: {line} under {family} {kind}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{path}: {line}");
        }
    }
}

/// Where CRIU is not to be had, the answer says so; mistakes get the kubelet's answers in any case.
pub fn checkpoint(stage: &mut Stage) {
    let post = |path: &str| {
        let (status, _, text) = ask(stage, "POST", &format!("{NODE}/checkpoint/default/{path}"), "");
        (status, text)
    };
    assert_eq!(post("missing/c"), (404, "pod does not exist".into()));
    assert_eq!(post("talk/nobody"), (404, "container nobody does not exist".into()));
    assert_eq!(post("talk/c?timeout=soon"), (404, "cannot parse value of timeout parameter".into()));
    let (status, text) = post("talk/c");
    let has_criu = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("criu").is_file()));
    match has_criu {
        false => {
            let why = "checkpointing of default/talk/c failed (CRIU is not installed on this node)";
            assert_eq!((status, text.as_str()), (501, why));
        }
        // A kernel may be one that this CRIU cannot deal with.
        true if status == 200 => assert!(text.contains("checkpoint-talk_default-c-"), "{text}"),
        true => assert!(text.starts_with("checkpointing of default/talk/c failed ("), "{status} {text}"),
    }
}
