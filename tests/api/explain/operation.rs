//! What operators see: metrics, the log of slow requests, ids of audit events.

use super::{MAPS, config_map};
use crate::webhooks::configuration;
use coracle_tests::caller::Caller;
use coracle_tests::https::Https;
use coracle_tests::kubectl::newest;
use coracle_tests::server::Server;
use serde_json::json;
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
    for family in
        ["apiserver_request_sli_duration_seconds", "apiserver_admission_step_admission_duration_seconds"]
    {
        assert!(page.contains(&format!("# TYPE {family} histogram")), "{family}");
    }
}

#[test]
fn slow_requests_are_logged_with_where_their_time_went() {
    let https = Https::start(|asked| {
        std::thread::sleep(Duration::from_millis(300));
        let response = json!({"uid": asked.body["request"]["uid"], "allowed": true});
        (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
    });
    let server = Server::with(&["--api-only", "--slow-request-threshold", "200ms"]);
    let (url, ca) = (https.url("/"), https.authority());
    let hook = configuration("ValidatingWebhookConfiguration", "slow", &url, Some(ca), json!({}));
    newest(&server.kubeconfig()).run_with("apply -f -", &hook);
    let admin = Caller::admin(&server);
    admin.header("Audit-ID: my-request-1").create(MAPS, &config_map("slow"));
    coracle_tests::eventually("the request is in the log", Duration::from_secs(10), || {
        let log = server.log();
        let mut lines = log.lines().filter(|line| line.contains("slow request"));
        lines.any(|line| line.contains("my-request-1") && line.contains("webhook"))
    });
}
