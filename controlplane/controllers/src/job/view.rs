//! Jobs and their pods as the plan sees them.

use crate::adoption::JOB_TRACKING;
use coracle_fields::batch::v1;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{IsEmpty, fields};
use coracle_informer::conditions::Condition;
use coracle_informer::pod::{Phase, Pod};
use coracle_informer::selector::Labels;
use coracle_informer::time;
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;

/// The annotation and label that carry a pod's index.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// How often an index failed before this pod.
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";

/// How often it failed without counting.
pub const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

fields! {
    /// A Job.
    pub struct Job: v1::Job {
        /// Wanted state.
        pub spec: Spec,
        /// Observed state.
        pub status: Status,
    }

    /// The wanted state.
    #[derive(Debug, Clone)]
    pub struct Spec: v1::JobSpec {
        /// How many pods at a time.
        pub parallelism: i32 = 1,
        /// How many must succeed; unset: one success ends the job.
        pub completions: Option<i32>,
        /// `NonIndexed` or `Indexed`.
        pub completion_mode: String,
        /// How many failures are allowed.
        pub backoff_limit: i32 = 6,
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

    /// What failures mean.
    #[derive(Debug, Clone)]
    pub struct FailurePolicy: v1::PodFailurePolicy {
        /// The first that matches counts.
        pub rules: Vec<FailureRule>,
    }

    /// One rule.
    #[derive(Debug, Clone)]
    pub struct FailureRule: v1::PodFailurePolicyRule {
        /// `FailJob`, `FailIndex`, `Ignore` or `Count`.
        pub action: String,
        /// By exit codes.
        pub on_exit_codes: Option<ExitCodes>,
        /// By conditions.
        pub on_pod_conditions: Vec<ConditionPattern>,
    }

    /// Exit codes of a container, or of any.
    #[derive(Debug, Clone)]
    pub struct ExitCodes: v1::PodFailurePolicyOnExitCodesRequirement {
        /// Only of this container.
        pub container_name: Option<String>,
        /// `In` or `NotIn`.
        pub operator: String,
        /// Codes.
        pub values: Vec<i64>,
    }

    /// A condition that must be there.
    #[derive(Debug, Clone)]
    pub struct ConditionPattern: v1::PodFailurePolicyOnPodConditionsPattern {
        /// Type.
        pub type_: String,
        /// Status, `True` when unset.
        pub status: String,
    }

    /// When a job has succeeded early.
    #[derive(Debug, Clone)]
    pub struct SuccessPolicy: v1::SuccessPolicy {
        /// Any of these.
        pub rules: Vec<SuccessRule>,
    }

    /// One rule.
    #[derive(Debug, Clone)]
    pub struct SuccessRule: v1::SuccessPolicyRule {
        /// Of these indexes …
        pub succeeded_indexes: Option<String>,
        /// … so many; all when unset.
        pub succeeded_count: Option<i32>,
    }

    /// Observed state.
    #[derive(Debug, Clone, PartialEq, Eq)]
    #[allow(missing_docs)] // the API's own names
    pub struct Status: v1::JobStatus, written {
        pub conditions: Vec<Condition>,
        pub start_time: Option<String>,
        pub completion_time: Option<String>,
        pub active: i32,
        pub succeeded: i32,
        pub failed: i32,
        pub terminating: Option<i32>,
        pub ready: Option<i32>,
        pub completed_indexes: String,
        pub failed_indexes: Option<String>,
        pub uncounted_terminated_pods: Uncounted,
    }

    /// Pods that ended and are not yet in the counts.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Uncounted: v1::UncountedTerminatedPods, written {
        /// Uids.
        pub succeeded: Vec<String>,
        /// Uids.
        pub failed: Vec<String>,
    }
}

impl IsEmpty for Uncounted {
    /// Never: it is written without pods, too.
    fn is_empty(&self) -> bool {
        false
    }
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
    /// How often that did not count.
    pub ignored_failures: i32,
    /// Its containers' ends: name and code.
    pub exits: Vec<(String, i64)>,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Restarts of all containers.
    pub restarts: i32,
}

fields! {
    struct PodFields: coracle_fields::core::v1::Pod {
        metadata: PodMetadata,
        spec: PodSpec,
        status: PodStatus,
    }

    struct PodMetadata: ObjectMeta {
        annotations: Labels,
        deletion_grace_period_seconds: i64,
    }

    struct PodSpec: coracle_fields::core::v1::PodSpec {
        init_containers: Vec<InitContainer>,
    }

    struct InitContainer: coracle_fields::core::v1::Container {
        name: String,
        restart_policy: String,
    }

    struct PodStatus: coracle_fields::core::v1::PodStatus {
        conditions: Vec<Condition>,
        container_statuses: Vec<Container>,
        init_container_statuses: Vec<Container>,
    }

    struct Container: coracle_fields::core::v1::ContainerStatus {
        name: String,
        restart_count: i32,
        state: State,
    }

    struct State: coracle_fields::core::v1::ContainerState {
        terminated: Option<Terminated>,
    }

    struct Terminated: coracle_fields::core::v1::ContainerStateTerminated {
        exit_code: i64,
        finished_at: Option<String>,
    }
}

impl JobPod {
    /// Reads a pod.
    pub fn read(pod: &Arc<Pod>) -> Self {
        let PodFields { metadata, spec, status } = pod.object.typed().unwrap_or_default();
        let number = |key: &str| metadata.annotations.get(key).and_then(|v| v.parse::<i32>().ok());
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let ends = || containers().filter_map(|c| Some((c, c.state.terminated.as_ref()?)));
        let sidecar = |c: &&Container| {
            spec.init_containers.iter().any(|i| i.name == c.name && i.restart_policy == "Always")
        };
        let lasting = status.init_container_statuses.iter().filter(sidecar).chain(&status.container_statuses);
        // The end of the last container, if all of them have ended.
        let end = |c: &Container| time::parse(c.state.terminated.as_ref()?.finished_at.as_deref());
        let ended =
            lasting.map(end).collect::<Option<Vec<Timestamp>>>().and_then(|all| all.into_iter().max());
        let not_ready = || {
            let ready = status.conditions.iter().find(|c| c.kind == "Ready" && c.status == "False")?;
            time::parse(ready.last_transition_time.as_deref())
        };
        let deleted = || {
            let at = time::parse(pod.object.meta.deletion_timestamp.as_deref())?;
            Some(time::after(at, -metadata.deletion_grace_period_seconds))
        };
        Self {
            pod: pod.clone(),
            index: number(INDEX),
            earlier_failures: number(INDEX_FAILURES).unwrap_or(0),
            ignored_failures: number(INDEX_IGNORED_FAILURES).unwrap_or(0),
            exits: ends().map(|(c, t)| (c.name.clone(), t.exit_code)).collect(),
            ended_at: ended.or_else(not_ready).or_else(deleted).or(pod.created),
            restarts: containers().map(|c| c.restart_count).sum(),
            conditions: status.conditions,
        }
    }

    /// Whether it is not yet in the counts.
    pub fn tracked(&self) -> bool {
        self.pod.object.meta.finalizers.iter().any(|f| f == JOB_TRACKING)
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
