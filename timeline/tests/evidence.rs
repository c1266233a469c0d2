//! Traces of clusters that record no spans.

use coracle_timeline::{State, Tree, evidence, parse_timestamp, state_of, view};
use coracle_trace::Stage;
use serde_json::{Value, json};

const NOW: &str = "2026-11-16T10:01:00Z";

fn now() -> u64 {
    parse_timestamp(NOW).map_or(0, |(unix, _)| unix)
}

fn replica_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "default", "uid": "rs",
        "creationTimestamp": "2026-11-16T09:59:58Z"}})
}

fn pod(status: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1-a", "namespace": "default", "uid": "pod",
        "creationTimestamp": "2026-11-16T10:00:00Z",
        "ownerReferences": [{"uid": "rs", "controller": true}],
        "managedFields": [{"manager": "kubectl-label", "operation": "Update", "time": "2026-11-16T10:00:30Z"},
            {"manager": "kubelet", "operation": "Update", "subresource": "status", "time": "2026-11-16T10:00:09Z"}]},
        "spec": {"nodeName": "node3"}, "status": status})
}

fn condition(name: &str, status: &str, second: u32) -> Value {
    json!({"type": name, "status": status, "lastTransitionTime": format!("2026-11-16T10:00:{second:02}Z"), "message": "why"})
}

fn stages(tree: &Tree) -> Vec<(Stage, &str)> {
    tree.spans.iter().map(|span| (span.stage, span.name.as_str())).collect()
}

#[test]
fn a_pod_that_became_ready() {
    let status = json!({"phase": "Running", "conditions": [condition("PodScheduled", "True", 1), condition("Ready", "True", 9)],
        "containerStatuses": [{"name": "web", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-16T10:00:08Z"}}}]});
    let events =
        [json!({"involvedObject": {"uid": "pod"}, "reason": "Pulled", "type": "Normal", "eventTime": null,
        "lastTimestamp": "2026-11-16T10:00:06Z",
        "message": "Successfully pulled image \"nginx\" in 4.2s (4.2s including waiting)"})];
    let tree = evidence::of_objects(&[pod(status), replica_set()], &events, now());
    let expected = [
        (Stage::Write, "create"),
        (Stage::Write, "create"),
        (Stage::Attempt, "node3"),
        (Stage::PodStart, ""),
        (Stage::Image, "nginx"),
        (Stage::Container, "web"),
        (Stage::Ready, ""),
        (Stage::Write, "update"),
    ];
    assert_eq!(stages(&tree), expected);
    assert_eq!(tree.root, 0);
    assert_eq!(tree.spans[1].parent, Some(0));
    assert!(tree.spans.iter().all(|span| span.uncertainty == 1_000_000_000));
    assert_eq!(state_of(&tree, None), State::Ready);
    let answer = view(&tree, None);
    assert_eq!(answer.summary.total, 11_000_000_000);
    assert_eq!(answer.objects[0].resource, "pods");
    assert_eq!(answer.objects[1].resource, "replicasets.apps");
    assert_eq!(tree.notes.len(), 1);
}

#[test]
fn pods_that_do_not_start() {
    let waiting = |reason: &str| {
        json!({"phase": "Pending", "conditions": [condition("PodScheduled", "True", 1)],
            "containerStatuses": [{"name": "web", "state": {"waiting": {"reason": reason, "message": "back-off"}}}]})
    };
    for (status, stage) in [
        (
            json!({"phase": "Pending", "conditions": [condition("PodScheduled", "False", 1)]}),
            Stage::Unschedulable,
        ),
        (waiting("ImagePullBackOff"), Stage::ImageBackoff),
        (waiting("CrashLoopBackOff"), Stage::CrashBackoff),
    ] {
        let tree = evidence::of_objects(&[pod(status)], &[], now());
        assert!(tree.spans.iter().any(|span| span.stage == stage && span.end.is_none()), "{stage:?}");
        assert_eq!(state_of(&tree, None), State::Stuck, "{stage:?}");
    }
}

#[test]
fn objects_may_have_any_form() {
    for object in [
        json!(null),
        json!({}),
        json!({"kind": "Pod", "metadata": {"creationTimestamp": "yesterday"}}),
        json!([1]),
    ] {
        let tree = evidence::of_objects(&[object], &[json!({}), json!(7)], now());
        assert_eq!(tree.spans.len(), 1);
        let _ = view(&tree, None);
    }
    let own = json!({"kind": "Pod", "metadata": {"uid": "a", "creationTimestamp": NOW, "ownerReferences": [{"uid": "a", "controller": true}]},
        "status": {"phase": "Failed", "conditions": "none"}});
    let tree = evidence::of_objects(&[own.clone(), own], &[], now());
    let _ = view(&tree, None);
}
