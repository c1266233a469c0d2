//! What operators see: metrics, the log of slow requests, ids of audit events.

use super::{MAPS, config_map};
use crate::webhooks::configuration;
use coracle_proto::time::parse_duration;
use coracle_tests::caller::Caller;
use coracle_tests::https::Https;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn metrics_count_what_is_recorded() {
    let server = Server::with(&["--api-only"]);
    let admin = Caller::admin(&server);
    admin.create(MAPS, &config_map("one"));
    // A question waits for everything before it.
    super::trace(&admin, "configmaps", "one");
    let page = admin.get("/metrics").1;
    let page = page.as_str().unwrap();
    let value = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is missing")).parse::<f64>().unwrap()
    };
    assert!(value("coracle_trace_records_total") > 1.0);
    assert!(value("coracle_trace_bytes") > 0.0);
    for name in [
        "coracle_trace_lost_total",
        "coracle_trace_oldest_seconds",
        "coracle_trace_rejected_spans_total",
        "coracle_trace_export_dropped_total",
    ] {
        assert!(value(name) >= 0.0, "{name}");
    }
    let summary = "apiserver_admission_step_admission_duration_seconds_summary";
    assert!(
        page.contains(&format!("# TYPE {summary} summary")) && page.contains(&format!("{summary}_count{{"))
    );
    for family in
        ["apiserver_request_sli_duration_seconds", "apiserver_admission_step_admission_duration_seconds"]
    {
        assert!(page.contains(&format!("# TYPE {family} histogram")), "{family}");
    }
}

/// A webhook that takes so long.
fn slow_webhook(server: &Server, takes: Duration) -> Https {
    let https = Https::start(move |asked| {
        std::thread::sleep(takes);
        let response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    let (url, ca) = (https.url("/"), https.authority());
    let hook = configuration("ValidatingWebhookConfiguration", "slow", &url, Some(ca), json!({}));
    newest(&server.kubeconfig()).run_with("apply -f -", &hook);
    https
}

/// The line about a request in the log of slow ones.
fn slow_line(server: &Server, id: &str) -> Option<String> {
    let log = server.log();
    let mut lines = log.lines().filter(|line| line.contains("slow request"));
    lines.find(|line| line.contains(id)).map(str::to_owned)
}

/// The stages of a line with their times in milliseconds, and the total.
fn stages(line: &str) -> (Vec<(String, f64)>, f64) {
    let millis = |text: &str| text.trim_end_matches("ms").parse::<f64>().unwrap();
    let field = |name: &str| {
        let (_, value) = line.split_once(name).unwrap_or_else(|| panic!("no {name} in {line}"));
        value.trim_start_matches('"')
    };
    let text = field("stages=").split('"').next().unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    let stages = words.chunks(2).map(|pair| (pair[0].to_owned(), millis(pair[1]))).collect();
    (stages, millis(field("total=").split(['"', ' ']).next().unwrap()))
}

#[test]
fn slow_requests_are_logged_with_where_their_time_went() {
    let server = Server::with(&["--api-only", "--slow-request-threshold", "200ms"]);
    let _https = slow_webhook(&server, Duration::from_millis(300));
    let admin = Caller::admin(&server);
    admin.header("Audit-ID: my-request-1").create(MAPS, &config_map("slow"));
    let mut line = None;
    coracle_tests::eventually("the request is in the log", Duration::from_secs(10), || {
        line = slow_line(&server, "my-request-1");
        line.is_some()
    });
    let line = line.unwrap();
    assert!(line.contains("validating-webhooks "), "{line}");
    let (stages, total) = stages(&line);
    let names: Vec<&str> = stages.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["authn", "authz", "decode", "handle", "respond", "other"], "{line}");
    assert!(stages[3].1 >= 300.0, "the webhook is a part of it: {line}");
    let sum: f64 = stages.iter().map(|(_, time)| time).sum();
    assert!((sum - total).abs() < 1.0, "{sum}: {line}");
}

/// Reads, too, and without a recorder.
#[test]
fn slow_reads_are_logged_with_their_stages() {
    for more in [&[][..], &["--trace-size", "0"][..]] {
        let flags = [&["--api-only", "--slow-request-threshold", "1us"][..], more].concat();
        let server = Server::with(&flags);
        let admin = Caller::admin(&server).header("Audit-ID: my-read");
        let mut line = None;
        // Only ten lines are written per second.
        coracle_tests::eventually("the read is in the log", Duration::from_secs(30), || {
            admin.get(MAPS);
            line = slow_line(&server, "my-read");
            line.is_some()
        });
        let line = line.unwrap();
        let (stages, _) = stages(&line);
        let names: Vec<&str> = stages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authn", "authz", "handle", "respond", "other"], "{line}");
    }
}

/// The id is the client's, in the answer and in the audit log, which says where the time of a slow request went. The metric for
/// objectives does without the webhook. Nothing of it needs timelines.
#[test]
fn the_audit_log_has_the_id_and_the_times_of_a_slow_request() {
    let dir = tempfile::tempdir().unwrap();
    let (log, head) = (dir.path().join("audit.log"), dir.path().join("head"));
    let log_path = log.display().to_string();
    let server = Server::with(&["--api-only", "--audit-log-path", &log_path, "--trace-size", "0"]);
    let _https = slow_webhook(&server, Duration::from_millis(600));
    let admin = Caller::admin(&server).header("Audit-ID: my-request-2");
    let admin = admin.header("Accept: application/json;as=Table;v=v1;g=meta.k8s.io");
    let made = admin.with(&["-D", &head.display().to_string()]).create(MAPS, &config_map("slow"));
    assert_eq!(made["kind"], "Table");
    let head = std::fs::read_to_string(&head).unwrap().to_lowercase();
    assert!(head.lines().any(|line| line.trim() == "audit-id: my-request-2"), "{head}");
    let mut event = Value::Null;
    coracle_tests::eventually("the request is in the audit log", Duration::from_secs(20), || {
        let events = std::fs::read_to_string(&log).unwrap_or_default();
        let mut events = events.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found =
            events.find(|event| event["auditID"] == "my-request-2" && event["stage"] == "ResponseComplete");
        event = found.unwrap_or_default();
        !event.is_null()
    });
    let time = |name: &str| {
        let text = event["annotations"][format!("apiserver.latency.k8s.io/{name}")].as_str();
        let text = text.unwrap_or_else(|| panic!("{name} is missing: {event:#}"));
        parse_duration(text).unwrap()
    };
    assert!(time("validating-webhook") >= 600_000_000 && time("total") >= time("validating-webhook"));
    for name in ["authentication", "authorization", "etcd", "transform-response-object"] {
        assert!(time(name) < time("total"), "{name}: {event:#}");
    }
    assert!(time("serialize-response-object") > 0 && time("response-write") > 0);
    let page = admin.get("/metrics").1;
    let sum = |name: &str| -> f64 {
        let lines = page.as_str().unwrap().lines().filter(|line| line.starts_with(&format!("{name}_sum{{")));
        let values = lines.filter(|line| line.contains("resource=\"configmaps\""));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    let (all, own) =
        (sum("apiserver_request_duration_seconds"), sum("apiserver_request_sli_duration_seconds"));
    assert!(all >= 0.6 && own > 0.0 && all - own >= 0.6, "{all} {own}");
}
