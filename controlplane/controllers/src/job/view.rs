//! Jobs and their pods as the plan sees them.

use coracle_informer::conditions::Condition;
use coracle_informer::pod::{Phase, Pod};
use coracle_informer::selector::Labels;
use coracle_informer::time;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The finalizer that keeps a pod until it is counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and label that carry a pod's index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often an index failed before this pod.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// The wanted state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// How many pods at a time.
    #[serde(default = "one")]
    pub parallelism: i32,
    /// How many must succeed; unset: one success ends the job.
    pub completions: Option<i32>,
    /// `NonIndexed` or `Indexed`.
    pub completion_mode: String,
    /// How many failures are allowed.
    #[serde(default = "six")]
    pub backoff_limit: i32,
    /// How many failures of one index are allowed.
    pub backoff_limit_per_index: Option<i32>,
    /// How many indexes may fail.
    pub max_failed_indexes: Option<i32>,
    /// How long the job may take.
    pub active_deadline_seconds: Option<i64>,
    /// Whether it waits.
    pub suspend: bool,
    /// What failures mean.
    pub pod_failure_policy: Option<FailurePolicy>,
    /// When it has succeeded early.
    pub success_policy: Option<SuccessPolicy>,
    /// `TerminatingOrFailed` or `Failed`.
    pub pod_replacement_policy: String,
    /// Who runs it, if not this controller.
    pub managed_by: Option<String>,
    /// What a pod looks like.
    pub template: Value,
    /// How long it is kept when finished.
    pub ttl_seconds_after_finished: Option<i64>,
}

fn one() -> i32 {
    1
}

fn six() -> i32 {
    6
}

/// What failures mean.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct FailurePolicy {
    /// The first that matches counts.
    pub rules: Vec<FailureRule>,
}

/// One rule.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureRule {
    /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
    pub action: String,
    /// By exit codes.
    pub on_exit_codes: Option<ExitCodes>,
    /// By conditions.
    pub on_pod_conditions: Vec<ConditionPattern>,
}

/// Exit codes of a container, or of any.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExitCodes {
    /// Only of this container.
    pub container_name: Option<String>,
    /// `In` or `NotIn`.
    pub operator: String,
    /// Codes.
    pub values: Vec<i64>,
}

/// A condition that must be there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ConditionPattern {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status, `True` when unset.
    pub status: String,
}

/// When a job has succeeded early.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// Any of these.
    pub rules: Vec<SuccessRule>,
}

/// One rule.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SuccessRule {
    /// Of these indexes …
    pub succeeded_indexes: Option<String>,
    /// … so many; all when unset.
    pub succeeded_count: Option<i32>,
}

/// Observed state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)] // the API's own names
pub struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    #[serde(skip_serializing_if = "zero")]
    pub active: i32,
    #[serde(skip_serializing_if = "zero")]
    pub succeeded: i32,
    #[serde(skip_serializing_if = "zero")]
    pub failed: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub completed_indexes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<String>,
    pub uncounted_terminated_pods: Uncounted,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn zero(n: &i32) -> bool {
    *n == 0
}

/// Pods that ended and are not yet in the counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Uids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub succeeded: Vec<String>,
    /// Uids.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
}

impl Spec {
    /// Whether pods have indexes.
    pub fn indexed(&self) -> bool {
        self.completion_mode == "Indexed"
    }

    /// Whether a pod that is ending is replaced only when it has ended.
    pub fn replaces_failed_only(&self) -> bool {
        self.pod_replacement_policy == "Failed"
    }
}

/// A pod of a job.
#[derive(Debug, Clone)]
pub struct JobPod {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its index.
    pub index: Option<i32>,
    /// How often its index failed before it.
    pub earlier_failures: i32,
    /// Its containers' ends: name and code.
    pub exits: Vec<(String, i64)>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Restarts of all containers.
    pub restarts: i32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: WireMeta,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireMeta {
    annotations: Labels,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    conditions: Vec<Condition>,
    container_statuses: Vec<Container>,
    init_container_statuses: Vec<Container>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_count: i32,
    state: State,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    exit_code: i64,
    finished_at: Option<String>,
}

impl JobPod {
    /// Reads a pod.
    pub fn read(pod: &Arc<Pod>) -> Self {
        let wire: Wire = pod.object.typed().unwrap_or_default();
        let number = |key: &str| wire.metadata.annotations.get(key).and_then(|v| v.parse::<i32>().ok());
        let status = &wire.status;
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let ends = || containers().filter_map(|c| Some((c, c.state.terminated.as_ref()?)));
        let ended = ends().filter_map(|(_, t)| time::parse(t.finished_at.as_deref())).max();
        let transition =
            || status.conditions.iter().filter_map(|c| time::parse(c.last_transition_time.as_deref())).max();
        let deleted = || time::parse(pod.object.meta.deletion_timestamp.as_deref());
        Self {
            pod: pod.clone(),
            index: number(INDEX),
            earlier_failures: number(INDEX_FAILURES).unwrap_or(0),
            exits: ends().map(|(c, t)| (c.name.clone(), t.exit_code)).collect(),
            ended_at: ended.or_else(transition).or_else(deleted),
            restarts: containers().map(|c| c.restart_count).sum(),
            conditions: wire.status.conditions,
        }
    }

    /// Whether it is not yet in the counts.
    pub fn tracked(&self) -> bool {
        self.pod.object.meta.finalizers.iter().any(|f| f == TRACKING)
    }

    /// Whether it ended well.
    pub fn succeeded(&self) -> bool {
        self.pod.phase == Phase::Succeeded
    }

    /// Whether it counts as failed: it ended badly, or is being taken away.
    pub fn failed(&self, spec: &Spec) -> bool {
        self.pod.phase == Phase::Failed
            || (!spec.replaces_failed_only() && self.pod.terminating() && !self.succeeded())
    }
}
