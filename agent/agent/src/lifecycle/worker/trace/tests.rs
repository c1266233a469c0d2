#![allow(clippy::unwrap_used)]
use super::*;
use coracle_trace::{Flags, Recorder};
use serde_json::{Value, json};
use std::sync::Arc;

const UID: &str = "11d6d9f2-7d9f-4a5b-8a54-0d7b6a1d0c11";

fn pod(version: &str, more: &Value, status: &Value) -> Arc<Pod> {
    let mut metadata = json!({"name": "web", "namespace": "default", "uid": UID, "resourceVersion": version});
    let fields = metadata.as_object_mut().unwrap();
    fields.extend(more.as_object().cloned().unwrap_or_default());
    let spec = json!({"initContainers": [{"name": "init"}], "containers": [{"name": "web"}]});
    Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
}

fn status(ready: &str) -> PodStatus {
    serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": ready}]})).unwrap()
}

fn exited(id: &str, name: &str, exit_code: i32, began: i64) -> Instance {
    let (state, reason) = (State::Exited, "Error".to_owned());
    let (started_at, finished_at) = (began + 1_000_000, began + 5_000_000);
    Instance {
        id: id.into(),
        name: name.into(),
        state,
        exit_code,
        reason,
        started_at,
        finished_at,
        ..Instance::default()
    }
}

/// Stage, parent, text, code and whether it failed, of everything that was recorded since the last call.
fn records(recorder: Recorder) -> Vec<(Stage, SpanId, String, u16, bool)> {
    let mut found = Vec::new();
    let read = recorder.read(&mut |record, _, text| {
        let failed = record.flags.contains(Flags::FAILED);
        found.push((record.stage, record.parent, text.to_owned(), record.code, failed));
    });
    recorder.release(read);
    found
}

fn stages(recorder: Recorder) -> Vec<Stage> {
    records(recorder).into_iter().map(|record| record.0).collect()
}

#[test]
fn a_pod_starts_once_and_what_follows_hangs_below_its_exit() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let new = pod("42", &json!({}), &json!({}));
    let uid = Uid::of(UID);
    let (bound, start) = (SpanId::of_write(uid, 42), SpanId::of_stage(uid, Stage::PodStart));
    let mut trace = PodTrace::new(&node, &Desired::Present(new.clone()), Some(Instant::now()));
    assert_eq!(records(recorder), [(Stage::Seen, bound, String::new(), 0, false)]);
    assert_eq!(trace.scope().span, start);

    // An init container, and a container that fails before the pod is ready.
    let before = Observed::default();
    let after = Observed {
        instances: vec![exited("2", "web", 1, trace.began), exited("1", "init", 0, trace.began)],
        ..before.clone()
    };
    let spec = spec::spec(&new);
    trace.observed(&spec, &before, &after);
    trace.observed(&spec, &after, &after);
    trace.waits("web", "back-off 10s");
    trace.waits("web", "back-off 10s");
    trace.starts("web");
    trace.starts("web");
    let expected = [
        (Stage::InitRun, start, "init".to_owned(), 0, false),
        (Stage::Exit, start, "web\nError".to_owned(), 1, false),
        (Stage::CrashBackoff, start, "web\nback-off 10s".to_owned(), 0, false),
    ];
    assert_eq!(records(recorder), expected);

    trace.status_held();
    trace.status_held();
    trace.status(&new, Phase::Pending, &status("False"), &after);
    trace.status_reported();
    trace.status(&new, Phase::Running, &status("True"), &after);
    trace.status(&new, Phase::Running, &status("True"), &after);
    trace.status_reported();
    assert_eq!(stages(recorder), [Stage::StatusHeld, Stage::Ready, Stage::PodStart]);

    // Later an exit is the root of what is done about it.
    let later = Observed { instances: vec![exited("3", "web", 137, trace.began)], ..before };
    trace.observed(&spec, &after, &later);
    let found = records(recorder);
    assert_eq!(found, [(Stage::Exit, SpanId::NONE, "web\nError".to_owned(), 137, false)]);
    let exit = trace.scope().span;
    assert_ne!(exit, start);
    // Until the pod is ready again, exits are part of that.
    let again = Observed { instances: vec![exited("4", "web", 1, trace.began)], ..Observed::default() };
    trace.observed(&spec, &later, &again);
    trace.status(&new, Phase::Running, &status("True"), &again);
    let parents: Vec<_> = records(recorder).into_iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(parents, [(Stage::Exit, exit), (Stage::Ready, exit)]);
}

#[test]
fn what_happens_to_a_pod_after_it_was_ready_is_no_part_of_its_start() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let new = pod("42", &json!({}), &json!({}));
    let start = SpanId::of_stage(Uid::of(UID), Stage::PodStart);
    let mut trace = PodTrace::new(&node, &Desired::Present(new.clone()), None);
    trace.pass_begins();
    trace.status(&new, Phase::Running, &status("True"), &Observed::default());
    assert_eq!(trace.scope().span, start, "the report of the readiness is a part of it");
    trace.pass_ends();
    trace.pass_begins();
    assert_eq!(trace.scope().span, start, "it may not have been sent yet");
    trace.pass_ends();
    trace.settles = Some(Instant::now());
    trace.pass_begins();
    assert_eq!(trace.scope().span, SpanId::NONE, "a later report is not");
    trace.pass_ends();
    drop(records(recorder));
    trace.terminates(false, Some(&evicted()));
    let found = records(recorder);
    assert_eq!(found, [(Stage::Evicted, SpanId::NONE, "\nThe node was low on memory.".to_owned(), 0, false)]);
    assert!(!trace.scope().span.is_none() && trace.end.is_none(), "the object stays");
    // Somebody deletes the object later.
    let deleted = pod("50", &json!({"deletionTimestamp": "2026-11-17T04:00:00Z"}), &json!({}));
    trace.updated(&new, &deleted, Instant::now());
    trace.ends();
    trace.ended(UID);
    let written = SpanId::of_write(Uid::of(UID), 50);
    let parents: Vec<_> = records(recorder).into_iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(parents, [(Stage::Seen, written), (Stage::Terminate, written)]);
}

#[test]
fn the_exit_of_a_pod_that_runs_to_its_end_is_a_part_of_its_start() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let mut job = Arc::unwrap_or_clone(pod("42", &json!({}), &json!({})));
    job.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    let mut trace = PodTrace::new(&node, &Desired::Present(Arc::new(job.clone())), None);
    trace.status(&job, Phase::Running, &status("True"), &Observed::default());
    trace.pass_begins();
    trace.pass_ends();
    drop(records(recorder));
    let after = Observed { instances: vec![exited("1", "web", 0, trace.began)], ..Observed::default() };
    trace.observed(&spec::spec(&job), &Observed::default(), &after);
    let start = SpanId::of_stage(Uid::of(UID), Stage::PodStart);
    assert_eq!(records(recorder), [(Stage::Exit, start, "web\nError".to_owned(), 0, false)]);
    assert_eq!(trace.scope().span, start);
}

fn evicted() -> EndReason {
    EndReason { reason: "Evicted".into(), message: "The node was low on memory.".into(), disruption: None }
}

#[test]
fn what_an_earlier_worker_has_seen_is_not_recorded_again() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let running = pod("42", &json!({}), &json!({"phase": "Running"}));
    let mut trace = PodTrace::new(&node, &Desired::Present(running.clone()), Some(Instant::now()));
    let old = Observed {
        instances: vec![exited("1", "web", 1, trace.began - 1_000_000_000)],
        ..Observed::default()
    };
    trace.observed(&spec::spec(&running), &Observed::default(), &old);
    trace.status(&running, Phase::Running, &status("True"), &old);
    // Its own status, which comes back.
    trace.updated(&running, &pod("43", &json!({}), &json!({"phase": "Running"})), Instant::now());
    assert!(stages(recorder).is_empty());
    trace.updated(&running, &pod("44", &json!({"generation": 2}), &json!({})), Instant::now());
    let written = SpanId::of_write(Uid::of(UID), 44);
    assert_eq!(records(recorder), [(Stage::Seen, written, String::new(), 0, false)]);
}

#[test]
fn the_end_of_a_pod_hangs_below_its_deletion() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let new = pod("42", &json!({}), &json!({}));
    let mut trace = PodTrace::new(&node, &Desired::Present(new.clone()), None);
    let deleted = pod("50", &json!({"deletionTimestamp": "2026-11-17T04:00:00Z"}), &json!({}));
    trace.updated(&new, &deleted, Instant::now());
    // Its first status was held back, before the end began.
    trace.status_held();
    trace.terminates(true, None);
    let [start, end] = [Stage::PodStart, Stage::Terminate].map(|stage| SpanId::of_stage(Uid::of(UID), stage));
    assert_eq!(trace.scope().span, end);
    let (seen, bound) = (SpanId::of_write(Uid::of(UID), 50), SpanId::of_write(Uid::of(UID), 42));
    let found: Vec<_> = records(recorder).into_iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(found, [(Stage::Seen, seen), (Stage::StatusHeld, start), (Stage::PodStart, bound)]);
    trace.status_reported();
    trace.ends();
    trace.gone(Some(&pod("51", &json!({}), &json!({}))));
    trace.ended(UID);
    let written = SpanId::of_write(Uid::of(UID), 50);
    assert_eq!(records(recorder), [(Stage::Terminate, written, String::new(), 0, false)]);
}

#[test]
fn a_rejected_pod_has_failed_to_start_and_a_completed_one_has_not_ended_yet() {
    let rejected = EndReason { reason: "OutOfcpu".into(), message: String::new(), disruption: None };
    for (reason, expected) in
        [(Some(&rejected), vec![("\nOutOfcpu".to_owned(), true)]), (None, vec![(String::new(), false)])]
    {
        let recorder = Recorder::for_tests();
        let node = NodeTrace::new(recorder);
        let mut trace = PodTrace::new(&node, &Desired::Present(pod("42", &json!({}), &json!({}))), None);
        trace.terminates(false, reason);
        let found = records(recorder).into_iter().map(|(_, _, text, _, failed)| (text, failed));
        assert_eq!(found.collect::<Vec<_>>(), expected);
        assert!(trace.end.is_none(), "its object stays");
    }
}

#[test]
fn spans_of_a_pod_that_goes_on_stay_open() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let mut trace = PodTrace::new(&node, &Desired::Present(pod("42", &json!({}), &json!({}))), None);
    trace.waits("web", "back-off 10s");
    drop(trace);
    assert!(stages(recorder).is_empty());
    let mut open: Vec<_> = recorder.open().into_iter().map(|span| span.record.stage.key()).collect();
    open.sort_unstable();
    assert_eq!(open, ["crash-backoff", "pod-start"]);
}

#[test]
fn a_short_pass_without_a_job_is_not_recorded() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let lasted = |trace: &mut PodTrace, time: Duration| {
        trace.pass_begins();
        // Later than now: none of the time of this test counts.
        let begun = Instant::now() + Duration::from_secs(3600);
        trace.pass.as_mut().unwrap().1 = begun.checked_sub(time).unwrap();
        trace.pass_ends();
        stages(recorder)
    };
    let long = Duration::from_secs(3600) + SHORT_PASS_OF_RUNNING;
    let running = pod("42", &json!({}), &json!({"phase": "Running"}));
    let mut trace = PodTrace::new(&node, &Desired::Present(running), None);
    assert!(lasted(&mut trace, Duration::ZERO).is_empty());
    assert_eq!(lasted(&mut trace, long), [Stage::Sync]);
    trace.pass_begins();
    trace.job_begins();
    trace.pass_ends();
    assert_eq!(stages(recorder), [Stage::Sync]);
    // Of a pod that starts, shorter ones are.
    let mut trace = PodTrace::new(&node, &Desired::Present(pod("42", &json!({}), &json!({}))), None);
    assert!(lasted(&mut trace, Duration::ZERO).is_empty());
    assert_eq!(lasted(&mut trace, Duration::from_secs(3600) + SHORT_PASS), [Stage::Sync]);
}

#[test]
fn a_worker_that_panicked_leaves_no_open_span() {
    let recorder = Recorder::for_tests();
    let node = NodeTrace::new(recorder);
    let mut trace = PodTrace::new(&node, &Desired::Present(pod("42", &json!({}), &json!({}))), None);
    trace.waits("web", "back-off 10s");
    trace.pass_begins();
    trace.abandon();
    drop(trace);
    assert!(recorder.open().is_empty() && stages(recorder).is_empty());
}

#[test]
fn the_start_that_an_agent_was_killed_in_goes_on_with_its_revision() {
    let (recorder, uid) = (Recorder::for_tests(), Uid::of(UID));
    let node = NodeTrace::new(recorder).after([((uid, Stage::PodStart), 42)].into());
    // It runs since, but was never ready.
    let running = pod("50", &json!({}), &json!({"phase": "Running"}));
    let mut trace = PodTrace::new(&node, &Desired::Present(running.clone()), Some(Instant::now()));
    trace.status(&running, Phase::Running, &status("True"), &Observed::default());
    let (bound, start) = (SpanId::of_write(uid, 42), SpanId::of_stage(uid, Stage::PodStart));
    let found: Vec<_> = records(recorder).into_iter().map(|record| (record.0, record.1)).collect();
    assert_eq!(found, [(Stage::Ready, start), (Stage::PodStart, bound)], "seen once, and ready once");
    // Another worker of the same pod begins nothing.
    let again = PodTrace::new(&node, &Desired::Present(running), None);
    assert!(again.start.is_none() && again.scope().span.is_none());
}

/// The first agent is killed when the pod is ready, before its report has arrived: the next one finds a pod that is pending, with the
/// revision of an earlier report.
#[test]
fn the_next_agent_tells_the_same_under_the_same_ids() {
    let told = |version: &str| {
        let recorder = Recorder::for_tests();
        let node = NodeTrace::new(recorder);
        let new = pod(version, &json!({}), &json!({"phase": "Pending"}));
        let mut trace = PodTrace::new(&node, &Desired::Present(new.clone()), Some(Instant::now()));
        trace.status(&new, Phase::Running, &status("True"), &Observed::default());
        let deleted = pod("60", &json!({"deletionTimestamp": "2026-11-17T04:00:00Z"}), &json!({}));
        trace.updated(&new, &deleted, Instant::now());
        let mut ids = Vec::new();
        drop(recorder.read(&mut |record, _, _| ids.push((record.stage, record.span))));
        ids
    };
    let ids = told("42");
    let stages: Vec<Stage> = ids.iter().map(|(stage, _)| *stage).collect();
    assert_eq!(stages, [Stage::Seen, Stage::Ready, Stage::PodStart, Stage::Seen]);
    assert_eq!(ids, told("45"));
    assert_ne!(ids[0], ids[3], "its deletion is seen for itself");
}
