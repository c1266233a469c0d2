#![allow(clippy::unwrap_used)]
//! Statuses as kubectl shows them.

use super::*;
use crate::config::cpu_quotas::CpuQuotas;
use crate::devices::inventory::{ContainerHealth, Health};
use crate::pod::observed::{Instance, Observed, Sandbox, State};
use crate::pod::plan::Verdict;
use crate::pod::pod_limits::PodLimits;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SECOND: i64 = 1_000_000_000;

struct Case {
    pod: Pod,
    previous: PodStatus,
    observed: Observed,
    waiting: BTreeMap<String, (String, String)>,
    verdicts: BTreeMap<String, Verdict>,
    ready: BTreeSet<String>,
    hooked: BTreeSet<String>,
    ended: bool,
    failure: Option<(&'static str, &'static str)>,
    disruption: Option<&'static str>,
    resize: Option<Resize>,
    devices: BTreeMap<String, ContainerHealth>,
}

impl Case {
    fn new(spec: Value) -> Self {
        let pod =
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 3}, "spec": spec});
        Case {
            pod: serde_json::from_value(pod).unwrap(),
            previous: PodStatus::default(),
            observed: Observed {
                sandboxes: vec![Sandbox {
                    id: "s".into(),
                    ready: true,
                    ips: vec!["10.1.0.2".into()],
                    ..Sandbox::default()
                }],
                instances: vec![],
            },
            waiting: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            ready: BTreeSet::new(),
            hooked: BTreeSet::new(),
            ended: false,
            failure: None,
            disruption: None,
            resize: None,
            devices: BTreeMap::new(),
        }
    }

    fn with(mut self, name: &str, state: State, code: i32, reason: &str) -> Self {
        let attempt = self.observed.instances.iter().filter(|i| i.name == name).count();
        self.observed.instances.insert(
            0,
            Instance {
                id: format!("{name}{attempt}"),
                sandbox: "s".into(),
                name: name.into(),
                attempt: u32::try_from(attempt).unwrap(),
                state,
                exit_code: code,
                reason: reason.into(),
                started_at: 5 * SECOND,
                finished_at: if state == State::Exited { 6 * SECOND } else { 0 },
                image: "img".into(),
                image_ref: "img@sha256:1".into(),
                ..Instance::default()
            },
        );
        self
    }

    fn generate(&self) -> PodStatus {
        let none = BTreeSet::new();
        generate(&StatusFacts {
            pod: &self.pod,
            spec: spec::spec(&self.pod),
            previous: &self.previous,
            observed: &self.observed,
            waiting: &self.waiting,
            verdicts: &self.verdicts,
            ready: &self.ready,
            hooked: &self.hooked,
            replaced: &none,
            ended: self.ended,
            failure: self.failure,
            disruption: self.disruption,
            resizes: self.resize.as_slice(),
            limits: PodLimits::default(),
            cpu_quotas: CpuQuotas::default(),
            devices: &self.devices,
            host_ips: &["192.0.2.1".to_owned()],
            runtime: "coracle",
            now: Timestamp::from_second(100).unwrap(),
        })
    }
}

fn condition(status: &PodStatus, kind: &str) -> (String, Option<String>, Option<String>) {
    let found = status.conditions.iter().flatten().find(|c| c.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

fn state(status: &PodStatus, index: usize) -> Value {
    serde_json::to_value(&status.container_statuses.as_ref().unwrap()[index].state).unwrap()
}

#[test]
fn devices_are_reported_with_their_health() {
    let mut case =
        Case::new(json!({"containers": [{"name": "a", "image": "img"}]})).with("a", State::Running, 0, "");
    let health = [("gpu0".to_owned(), Health::Healthy), ("gpu1".to_owned(), Health::Unhealthy)].into();
    case.devices.insert("a".into(), [("vendor.example/gpu".to_owned(), health)].into());
    let of = |status: &PodStatus| {
        serde_json::to_value(&status.container_statuses.as_ref().unwrap()[0].allocated_resources_status)
            .unwrap()
    };
    let want = json!([{"name": "vendor.example/gpu", "resources": [
        {"resourceID": "gpu0", "health": "Healthy"}, {"resourceID": "gpu1", "health": "Unhealthy"}]}]);
    let status = case.generate();
    assert_eq!(of(&status), want);
    // They are free now.
    case.devices.clear();
    case.previous = status;
    assert_eq!(of(&case.generate()), Value::Null);
    case.ended = true;
    assert_eq!(of(&case.generate()), want);
}

#[test]
fn a_running_pod() {
    let case =
        Case::new(json!({"containers": [{"name": "a", "image": "img"}]})).with("a", State::Running, 0, "");
    let status = case.generate();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.2"));
    assert_eq!(status.host_ips.as_ref().unwrap()[0].ip, "192.0.2.1");
    assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    assert_eq!(status.observed_generation, Some(3));
    for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
        assert_eq!(condition(&status, kind), ("True".into(), None, None), "{kind}");
    }
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!((container.ready, container.started), (true, Some(true)));
    assert_eq!(container.container_id.as_deref(), Some("coracle://a0"));
    assert_eq!((container.image.as_str(), container.image_id.as_str()), ("img", "img@sha256:1"));
}

#[test]
fn a_container_is_created_until_its_post_start_hook_has_ended() {
    let spec = json!({"containers": [{"name": "a", "image": "img"}]});
    let mut case = Case::new(spec.clone()).with("a", State::Running, 0, "");
    case.hooked.insert("a".into());
    let status = case.generate();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(state(&status, 0), json!({"waiting": {"reason": "ContainerCreating"}}));
    assert_eq!(condition(&status, "Ready").0, "False");
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!((container.ready, container.started, &container.container_id), (false, Some(false), &None));
    // The hook of a container that was restarted.
    let mut again = Case::new(spec).with("a", State::Exited, 1, "").with("a", State::Running, 0, "");
    again.hooked.insert("a".into());
    let status = again.generate();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.unwrap()[0];
    assert!(container.state.as_ref().unwrap().waiting.is_some());
    assert_eq!(container.last_state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, 1);
    again.hooked.clear();
    assert!(again.generate().container_statuses.unwrap()[0].ready);
}

#[test]
fn waiting_reasons() {
    let mut case = Case::new(json!({"containers": [{"name": "a", "image": "img"}]}));
    assert_eq!(state(&case.generate(), 0), json!({"waiting": {"reason": "ContainerCreating"}}));
    case.waiting.insert("a".into(), ("ImagePullBackOff".into(), "Back-off pulling image \"img\"".into()));
    let status = case.generate();
    assert_eq!(state(&status, 0)["waiting"]["reason"], "ImagePullBackOff");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(
        condition(&status, "Ready"),
        (
            "False".into(),
            Some("ContainersNotReady".into()),
            Some("containers with unready status: [a]".into())
        )
    );
    let with_init = Case::new(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    let status = with_init.generate();
    assert_eq!(state(&status, 0), json!({"waiting": {"reason": "PodInitializing"}}));
    assert_eq!(
        condition(&status, "Initialized"),
        (
            "False".into(),
            Some("ContainersNotInitialized".into()),
            Some("containers with incomplete status: [i]".into())
        )
    );
}

#[test]
fn crash_loop_shows_why_and_how_it_ended() {
    let mut case =
        Case::new(json!({"restartPolicy": "Always", "containers": [{"name": "a", "image": "img"}]}))
            .with("a", State::Exited, 1, "")
            .with("a", State::Exited, 137, "OOMKilled");
    let status = case.generate();
    assert_eq!(state(&status, 0)["terminated"]["reason"], "OOMKilled");
    case.waiting.insert("a".into(), ("CrashLoopBackOff".into(), "back-off 10s restarting".into()));
    let status = case.generate();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(state(&status, 0)["waiting"]["reason"], "CrashLoopBackOff");
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 1);
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.reason.as_deref(), last.exit_code), (Some("OOMKilled"), 137));
}

#[test]
fn terminal_phases_are_final_and_keep_their_reason() {
    let mut case = Case::new(json!({"restartPolicy": "Always", "containers": [{"name": "a"}]})).with(
        "a",
        State::Running,
        0,
        "",
    );
    case.failure = Some(("Evicted", "The node was low on resource: memory."));
    case.disruption = Some("The node was low on resource: memory.");
    case.previous = case.generate();
    assert_eq!(case.previous.phase.as_deref(), Some("Running"), "it has not ended yet");
    case.observed.instances[0].state = State::Exited;
    let failed = case.generate();
    assert_eq!((failed.phase.as_deref(), failed.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    assert_eq!(condition(&failed, "DisruptionTarget").1.as_deref(), Some("TerminationByKubelet"));
    (case.failure, case.disruption) = (None, None);
    case.previous = failed;
    let status = case.generate();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
    assert_eq!(condition(&status, "Ready").1.as_deref(), Some("PodFailed"));
    assert_eq!(condition(&status, "DisruptionTarget").0, "True", "it stays");
}

#[test]
fn only_pods_that_the_node_ends_for_its_own_sake_are_disrupted() {
    let mut case = Case::new(json!({"containers": [{"name": "a"}]}));
    let disrupted = |case: &Case| {
        let conditions = case.generate().conditions.unwrap_or_default();
        conditions.into_iter().find(|one| one.type_ == "DisruptionTarget").and_then(|one| one.message)
    };
    for reason in ["Evicted", "DeadlineExceeded", "OutOfcpu"] {
        case.failure = Some((reason, "a limit, or not admitted"));
        assert_eq!(disrupted(&case), None, "{reason}");
    }
    case.failure = Some(("Terminated", "shutdown"));
    case.disruption = Some("shutdown");
    assert_eq!(disrupted(&case).as_deref(), Some("shutdown"));
}

#[test]
fn probes_decide_started_and_ready() {
    let probe = json!({"exec": {"command": ["true"]}});
    let mut case =
        Case::new(json!({"containers": [{"name": "a", "startupProbe": probe, "readinessProbe": probe}]}))
            .with("a", State::Running, 0, "");
    let flags = |case: &Case| {
        let status = case.generate().container_statuses.unwrap()[0].clone();
        (status.started, status.ready)
    };
    assert_eq!(flags(&case), (Some(false), false));
    case.verdicts.insert("a0".into(), Verdict { started: Some(true), dead: false });
    assert_eq!(flags(&case), (Some(true), false));
    case.ready.insert("a0".into());
    assert_eq!(flags(&case), (Some(true), true));
}

#[test]
fn readiness_gates_read_other_owners_conditions() {
    let mut case =
        Case::new(json!({"readinessGates": [{"conditionType": "x/lb"}], "containers": [{"name": "a"}]}))
            .with("a", State::Running, 0, "");
    let (_, reason, message) = condition(&case.generate(), "Ready");
    assert_eq!(reason.as_deref(), Some("ReadinessGatesNotReady"));
    assert_eq!(
        message.as_deref(),
        Some("corresponding condition of pod readiness gate \"x/lb\" does not exist.")
    );
    case.pod.status =
        Some(serde_json::from_value(json!({"conditions": [{"type": "x/lb", "status": "True"}]})).unwrap());
    let status = case.generate();
    assert_eq!(condition(&status, "Ready").0, "True");
    assert_eq!(condition(&status, "x/lb").0, "True");
}

#[test]
fn a_lost_container_of_an_ended_pod_is_unknown() {
    let mut case = Case::new(json!({"containers": [{"name": "a"}]})).with("a", State::Running, 0, "");
    case.previous = case.generate();
    case.observed = Observed::default();
    case.ended = true;
    let status = case.generate();
    assert_eq!(state(&status, 0)["terminated"]["reason"], "ContainerStatusUnknown");
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.pod_ip.as_deref(), Some("10.1.0.2"), "the address stays on record");
}

#[test]
fn the_status_of_an_ended_pod_stays_when_its_containers_are_removed() {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    let mut case = Case::new(spec).with("i", State::Exited, 0, "").with("a", State::Exited, 3, "");
    case.ended = true;
    case.observed.sandboxes[0].ready = false;
    let status = case.generate();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    case.previous = status.clone();
    case.observed = Observed::default();
    assert_eq!(case.generate(), status);
}

#[test]
fn a_status_that_did_not_change_is_equal() {
    let mut case = Case::new(json!({"containers": [{"name": "a"}]})).with("a", State::Running, 0, "");
    let first = case.generate();
    case.previous = first.clone();
    assert_eq!(case.generate(), first);
}

#[test]
fn a_refused_pod_has_no_containers_now_and_later() {
    let mut case =
        Case::new(json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": "100"}}}]}));
    case.observed = Observed::default();
    case.failure = Some(("OutOfcpu", "Pod was rejected: no"));
    case.ended = true;
    let status = case.generate();
    assert_eq!((status.phase.as_deref(), status.container_statuses.is_none()), (Some("Failed"), true));
    case.failure = None;
    case.pod.status = Some(status.clone());
    case.previous = status.clone();
    assert_eq!(case.generate(), status);
}
