//! Jobs run against a model of pods that end well, badly, or are taken away; the job crashes between any two writes.

#![allow(clippy::unwrap_used)]
use super::plan::{Plan, finished, plan};
use super::view::{INDEX, INDEX_FAILURES, JobPod, Spec, Status};
use crate::adoption::JOB_TRACKING;
use coracle_informer::pod::Pod;
use coracle_informer::{conditions, time};
use coracle_kinds::object::testing::object;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

struct Model {
    spec: Spec,
    status: Status,
    pods: BTreeMap<String, Value>,
    now: Timestamp,
    serial: usize,
    succeeded: usize,
}

impl Model {
    fn new(spec: Value) -> Self {
        Self {
            spec: serde_json::from_value(spec).unwrap(),
            status: Status::default(),
            pods: BTreeMap::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            serial: 0,
            succeeded: 0,
        }
    }

    fn plan(&self) -> Plan {
        let pods: Vec<JobPod> =
            self.pods.values().map(|p| JobPod::read(&Arc::new(Pod::read(&object(p.clone()))))).collect();
        plan("j", &self.spec, &self.status, &pods, self.now)
    }

    /// One turn that ends after so many kinds of writes: 0 none, 1 pods, 2 status, 3 finalizers.
    fn turn(&mut self, writes: u8) {
        if finished(&self.status) {
            return;
        }
        let plan = self.plan();
        if writes == 0 {
            return;
        }
        for new in plan.create {
            self.serial += 1;
            let name = format!("p{}", self.serial);
            let annotations = match new.index {
                Some(i) => json!({INDEX: i.to_string(), INDEX_FAILURES: new.failures.to_string()}),
                None => json!({}),
            };
            self.pods.insert(name.clone(), json!({"metadata": {"name": name, "uid": name, "finalizers": [JOB_TRACKING],
                "creationTimestamp": time::seconds(self.now), "annotations": annotations}, "status": {"phase": "Running"}}));
        }
        for pod in plan.delete {
            self.pods.get_mut(pod.pod.name()).unwrap()["metadata"]["deletionTimestamp"] =
                json!(time::seconds(self.now));
        }
        if writes == 1 {
            return;
        }
        self.status = plan.status;
        if writes == 2 {
            return;
        }
        for pod in plan.release {
            let value = self.pods.get_mut(pod.pod.name()).unwrap();
            value["metadata"]["finalizers"] = json!([]);
        }
        // Those without finalizer that were deleted are gone.
        self.pods.retain(|_, p| {
            p["metadata"]["deletionTimestamp"].is_null() || p["metadata"]["finalizers"] != json!([])
        });
    }

    fn end(&mut self, n: usize, ok: bool, code: i64) {
        let running: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, p)| p["status"]["phase"] == "Running")
            .map(|(k, _)| k.clone())
            .collect();
        if running.is_empty() {
            return;
        }
        let name = &running[n % running.len()];
        let value = self.pods.get_mut(name).unwrap();
        let gone = !value["metadata"]["deletionTimestamp"].is_null();
        let phase = if ok && !gone { "Succeeded" } else { "Failed" };
        self.succeeded += usize::from(ok && !gone);
        value["status"] = json!({"phase": phase, "containerStatuses": [{"name": "c", "state": {"terminated":
            {"exitCode": if ok { 0 } else { code }, "finishedAt": time::seconds(self.now)}}}]});
    }

    /// Runs on with pods ending as told until the job is finished.
    fn settle(&mut self, ok: bool) {
        for _ in 0..2000 {
            self.turn(3);
            if finished(&self.status) {
                return;
            }
            self.end(0, ok, 1);
            self.now = time::after(self.now, 700);
        }
        panic!("never finished: {:?} {:?}", self.status, self.pods);
    }

    fn ended(&self) -> (bool, String) {
        let ok = conditions::is_true(&self.status.conditions, "Complete");
        let kind = if ok { "Complete" } else { "Failed" };
        (ok, conditions::find(&self.status.conditions, kind).unwrap().reason.clone())
    }
}

#[test]
fn so_many_completions() {
    let mut job = Model::new(json!({"parallelism": 2, "completions": 5}));
    job.turn(3);
    assert_eq!((job.pods.len(), job.status.active), (2, 2));
    job.settle(true);
    assert_eq!(job.ended(), (true, "CompletionsReached".into()));
    assert_eq!((job.status.succeeded, job.status.failed), (5, 0));
    assert!(job.status.completion_time.is_some());
}

#[test]
fn failures_are_retried_later_and_later_up_to_the_limit() {
    let mut job = Model::new(json!({"completions": 1, "backoffLimit": 2}));
    job.turn(3);
    job.end(0, false, 1);
    job.turn(3);
    job.turn(3);
    assert_eq!(job.pods.len(), 1, "not before the delay is over");
    assert_eq!(job.plan().again, Some(time::after(job.now, 10)));
    job.settle(false);
    assert_eq!(job.ended(), (false, "BackoffLimitExceeded".into()));
    assert_eq!((job.status.failed, job.pods.len()), (3, 3));
}

#[test]
fn every_index_once() {
    let mut job = Model::new(json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed"}));
    job.settle(true);
    assert_eq!(job.status.completed_indexes, "0-3");
    assert_eq!(job.status.succeeded, 4);
}

#[test]
fn an_index_that_fails_too_often_fails_alone() {
    let mut job = Model::new(json!({"parallelism": 1, "completions": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 1, "backoffLimit": 100}));
    for _ in 0..2 {
        job.turn(3);
        job.end(0, false, 1);
        job.turn(3);
        job.now = time::after(job.now, 700);
    }
    job.turn(3);
    assert_eq!(job.status.failed_indexes.as_deref(), Some("0"));
    job.settle(true);
    assert_eq!(job.status.completed_indexes, "1");
    assert_eq!(job.ended(), (false, "FailedIndexes".into()));
}

#[test]
fn with_backoff_limit_per_index_each_index_waits_alone_and_its_last_failed_pod_is_held() {
    let mut job = Model::new(json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 5, "backoffLimit": 100}));
    let index = |p: &Value| p["metadata"]["annotations"][INDEX].clone();
    let tracked = |job: &Model, name: &str| job.pods[name]["metadata"]["finalizers"] == json!([JOB_TRACKING]);
    job.turn(3);
    job.end(0, false, 1);
    let failed = index(&job.pods["p1"]);
    job.turn(3);
    assert_eq!(job.plan().again, Some(time::after(job.now, 10)));
    assert!(tracked(&job, "p1"), "held until its replacement is there");
    assert_eq!((job.status.failed, job.pods.len()), (0, 2));
    // The other index fails later; it does not delay the first one.
    job.now = time::after(job.now, 8);
    job.end(0, false, 1);
    job.turn(3);
    job.now = time::after(job.now, 2);
    job.turn(3);
    assert_eq!(job.pods.len(), 3, "only the first index is due");
    let replaced = &job.pods["p3"];
    assert_eq!(
        (index(replaced), &replaced["metadata"]["annotations"][INDEX_FAILURES]),
        (failed, &json!("1"))
    );
    job.turn(3);
    job.turn(3);
    assert!(!tracked(&job, "p1") && tracked(&job, "p2"));
    assert_eq!(job.status.failed, 1);
    // The second failure of an index doubles its delay.
    job.end(0, false, 1);
    let plan = job.plan();
    assert_eq!(plan.again, Some(time::after(job.now, 8)), "the other index is due first");
    job.now = time::after(job.now, 8);
    job.turn(3);
    assert_eq!(job.plan().again, Some(time::after(job.now, 12)));
    job.settle(true);
    assert_eq!(job.ended(), (true, "CompletionsReached".into()));
    assert!(job.pods.keys().all(|name| !tracked(&job, name)));
    assert_eq!(job.status.failed, 3);
}

#[test]
fn a_pod_that_counted_as_failed_when_it_was_deleted_does_not_count_again_when_it_ends_well() {
    let ends_well = |job: &mut Model, name: &str| {
        job.pods.get_mut(name).unwrap()["status"] = json!({"phase": "Succeeded"});
    };
    let mut job = Model::new(json!({"parallelism": 2, "completions": 2, "completionMode": "Indexed",
        "backoffLimitPerIndex": 0, "maxFailedIndexes": 0, "backoffLimit": 100}));
    job.turn(3);
    job.end(0, false, 1);
    // The pod of the other index is deleted, counts, and ends well before its finalizer goes.
    job.turn(3);
    job.turn(2);
    assert_eq!(job.status.failed_indexes.as_deref(), Some("0,1"));
    ends_well(&mut job, "p2");
    job.settle(true);
    assert_eq!(job.ended(), (false, "MaxFailedIndexesExceeded".into()));
    assert_eq!((job.status.completed_indexes.as_str(), job.status.failed), ("", 2));

    // Without its finalizer it is still there until it has ended.
    let mut job = Model::new(json!({"completions": 1, "completionMode": "Indexed"}));
    job.turn(3);
    job.pods.get_mut("p1").unwrap()["metadata"]["deletionTimestamp"] = json!(time::seconds(job.now));
    let mut ending = job.pods["p1"].clone();
    job.turn(3);
    ending["metadata"]["finalizers"] = json!([]);
    ending["status"] = json!({"phase": "Succeeded"});
    job.pods.insert("p1".into(), ending);
    job.turn(3);
    assert_eq!(job.status.completed_indexes, "");
    job.settle(true);
    assert_eq!((job.status.succeeded, job.status.failed), (1, 1));

    let mut job = Model::new(json!({"completions": 1}));
    job.turn(3);
    job.pods.get_mut("p1").unwrap()["metadata"]["deletionTimestamp"] = json!(time::seconds(job.now));
    job.turn(2);
    ends_well(&mut job, "p1");
    // As earlier versions wrote it.
    job.status.uncounted_terminated_pods.succeeded.push("p1".into());
    assert_eq!(job.plan().status.uncounted_terminated_pods.succeeded, [""; 0]);
    job.settle(true);
    assert_eq!((job.status.succeeded, job.status.failed), (1, 1));
}

#[test]
fn rules_decide_what_a_failure_means() {
    let rules = |action: &str| {
        json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": {"rules": [
            {"action": action, "onExitCodes": {"operator": "In", "values": [42]}}]}})
    };
    let mut fail = Model::new(rules("FailJob"));
    fail.turn(3);
    fail.end(0, false, 42);
    fail.settle(true);
    assert_eq!(fail.ended(), (false, "PodFailurePolicy".into()));
    let mut ignore = Model::new(rules("Ignore"));
    ignore.turn(3);
    ignore.end(0, false, 42);
    ignore.settle(true);
    assert_eq!(ignore.ended(), (true, "CompletionsReached".into()));
    assert_eq!(ignore.status.failed, 0);
}

#[test]
fn success_policy_ends_early_and_takes_the_rest_away() {
    let mut job = Model::new(json!({"parallelism": 3, "completions": 3, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}));
    job.turn(3);
    job.end(0, true, 0);
    job.settle(false);
    assert_eq!(job.ended(), (true, "SuccessPolicy".into()));
    assert_eq!(job.status.active, 0);
}

#[test]
fn suspension_and_deadline() {
    let mut job = Model::new(json!({"completions": 1, "suspend": true, "activeDeadlineSeconds": 100}));
    job.turn(3);
    assert!(job.pods.is_empty());
    assert!(conditions::is_true(&job.status.conditions, "Suspended"));
    job.spec.suspend = false;
    job.turn(3);
    assert!(!conditions::is_true(&job.status.conditions, "Suspended"));
    job.now = time::after(job.now, 101);
    job.settle(false);
    assert_eq!(job.ended(), (false, "DeadlineExceeded".into()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Crashes after any write: each pod is counted exactly once, no index has two pods, the job ends.
    #[test]
    fn counts_are_exact_whenever_it_crashes(
        indexed in any::<bool>(), parallelism in 1..4i32, completions in 1..6i32,
        steps in prop::collection::vec((0..4u8, 0..4usize, any::<bool>(), any::<bool>()), 0..40),
    ) {
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let mut job = Model::new(json!({"parallelism": parallelism, "completions": completions,
            "completionMode": mode, "backoffLimit": 1000}));
        for (writes, n, ok, end) in steps {
            job.turn(writes);
            if end { job.end(n, ok, 1); }
            job.now = time::after(job.now, 700);
            let running: Vec<Value> = job.pods.values()
                .filter(|p| p["status"]["phase"] == "Running" && p["metadata"]["deletionTimestamp"].is_null())
                .map(|p| p["metadata"]["annotations"][INDEX].clone()).collect();
            prop_assert!(running.len() <= parallelism as usize);
            if indexed {
                let mut unique = running.clone();
                unique.sort_by_key(ToString::to_string);
                unique.dedup();
                prop_assert_eq!(unique.len(), running.len(), "an index runs twice");
            }
        }
        job.settle(true);
        prop_assert_eq!(job.ended().0, true);
        if indexed {
            prop_assert_eq!(job.status.succeeded, completions);
        } else {
            prop_assert_eq!(job.status.succeeded as usize, job.succeeded, "each success once");
        }
    }
}
