//! Annotations that say where the time of a slow request went, as upstream names them.

use coracle_client::audit_annotations::AuditAnnotations;
use coracle_proto::time::format_duration;
use coracle_trace::{RequestMark, RequestTimes};
use std::time::Duration;

/// Requests that take longer are annotated.
const SLOW: Duration = Duration::from_millis(500);

/// Adds the times of a request that was slow; whether it was.
pub fn annotate(annotations: &AuditAnnotations, times: &RequestTimes) -> bool {
    if times.total < SLOW {
        return false;
    }
    let mark = |mark: RequestMark| times.marks[mark as usize];
    let before = [RequestMark::Seated, RequestMark::Filtered, RequestMark::Authenticated];
    let before = before.into_iter().find_map(mark).unwrap_or_default();
    let authorization = mark(RequestMark::Authorized).map(|at| at.saturating_sub(before));
    let spent = |time: Duration| Some(time).filter(|time| !time.is_zero());
    for (name, time) in [
        ("total", Some(times.total)),
        ("authentication", mark(RequestMark::Authenticated)),
        ("apf-queue-wait", spent(times.queued)),
        ("authorization", authorization),
        ("mutating-webhook", spent(times.mutating_webhooks)),
        ("validating-webhook", spent(times.validating_webhooks)),
        ("etcd", spent(times.store)),
        ("transform-response-object", spent(times.transform)),
        ("serialize-response-object", spent(times.serialize)),
    ] {
        if let Some(time) = time {
            add(annotations, name, time);
        }
    }
    true
}

/// Adds how long it took to send the answer.
pub fn written(annotations: &AuditAnnotations, time: Duration) {
    add(annotations, "response-write", time);
}

fn add(annotations: &AuditAnnotations, name: &str, time: Duration) {
    let nanos = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    annotations.add(format!("apiserver.latency.k8s.io/{name}"), format_duration(nanos));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_requests_say_where_their_time_went() {
        let annotations = AuditAnnotations::recorded();
        let mut times = RequestTimes { total: Duration::from_millis(499), ..RequestTimes::default() };
        assert!(!annotate(&annotations, &times));
        assert!(annotations.all().is_empty());
        times.total = Duration::from_millis(1500);
        times.marks[RequestMark::Authenticated as usize] = Some(Duration::from_millis(1));
        times.marks[RequestMark::Authorized as usize] = Some(Duration::from_millis(3));
        times.store = Duration::from_micros(1200);
        times.serialize = Duration::from_micros(300);
        assert!(annotate(&annotations, &times));
        written(&annotations, Duration::from_millis(4));
        let all: Vec<(String, String)> = annotations.all().into_iter().collect();
        let want = [
            ("authentication", "1ms"),
            ("authorization", "2ms"),
            ("etcd", "1.2ms"),
            ("response-write", "4ms"),
            ("serialize-response-object", "300µs"),
            ("total", "1.5s"),
        ];
        let want = want.map(|(name, time)| (format!("apiserver.latency.k8s.io/{name}"), time.to_owned()));
        assert_eq!(all, want);
    }
}
