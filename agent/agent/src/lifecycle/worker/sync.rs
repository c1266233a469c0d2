//! Reconciles a running pod with its spec: admit, plan, apply, report.

use coracle_cli::causes;
use coracle_trace::within;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::now;
use super::stage::{EndReason, Stage, Volumes};
use super::task::{RETRY, Worker};
use crate::config::go_duration::go_duration;
use crate::devices::names::is_extended_resource;
use crate::events::{Kind, pod_reference};
use crate::lifecycle::execute::Job;
use crate::lifecycle::execute::outcome::Outcome;
use crate::lifecycle::stop::{self, Turn};
use crate::lifecycle::table::Message;
use crate::lifecycle::{instance_files, log_links};
use crate::pod::admit::{self, AdmitFacts, Rejection};
use crate::pod::observed::State;
use crate::pod::plan::{self, Facts, Plan};
use crate::pod::{security, spec, unsupported};
use crate::status::phase::Phase;

/// Least time that preempted pods have to end before the critical pod starts anyway.
const MIN_PREEMPTION: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) async fn sync(&mut self) {
        let api_phase =
            self.pod().status.as_ref().and_then(|status| status.phase.as_deref()).and_then(Phase::parse);
        if self.desired.is_deleting() {
            self.terminate(i64::try_from(self.deletion_grace().as_secs()).unwrap_or(30), None);
            return;
        }
        if api_phase.is_some_and(Phase::is_terminal) {
            self.terminate(spec::grace(self.pod()), None);
            return;
        }
        if matches!(self.stage, Stage::Pending) {
            // A pod that is running was admitted before a restart of the agent.
            if !self.is_alive() {
                let (pod, executor) = (self.desired.pod(), &self.executor);
                executor.resources.refresh_labels(pod, &executor.client).await;
            }
            if !self.admit() {
                return;
            }
        }
        if self.is_past_deadline() {
            return;
        }
        if matches!(self.stage, Stage::Preempting) {
            self.report_status(false);
            return;
        }
        if !self.has_devices && !self.take_devices().await {
            return;
        }
        let plan = self.plan();
        self.apply_plan(&plan).await;
        self.wait_for_backoff(&plan);
        self.resize().await;
        self.renew_tokens();
        let phase = self.report_status(false);
        if phase.is_terminal() && self.tasks.job.is_none() {
            self.terminate(spec::grace(self.pod()), None);
        }
    }

    /// Whether a container of the pod runs.
    fn is_alive(&self) -> bool {
        self.observed.get().alive().next().is_some()
    }

    /// Admits the pod, or rejects it permanently.
    fn admit(&mut self) -> bool {
        let mut span = coracle_trace::stage(coracle_trace::Stage::Admit);
        let executor = &self.executor;
        let mut facts = executor.resources.facts();
        executor.devices.admit_with(&mut facts.allocatable);
        let decision = self.parts.pods.admit(self.uid(), |others| {
            if self.is_alive() {
                return Ok(vec![]);
            }
            unsupported::check(self.pod(), facts.confinement)?;
            let facts = AdmitFacts {
                allocatable: &facts.allocatable,
                labels: &facts.labels,
                node: &executor.config.name,
                taints: &facts.taints,
                pressure: facts.pressure,
                allowed_sysctls: &executor.config.allowed_unsafe_sysctls,
            };
            if executor.resources.is_shutting_down() {
                let text = "Pod was rejected as the node is shutting down.";
                return Err(Rejection { reason: "NodeShutdown".into(), message: text.into() });
            }
            admit::admit(self.pod(), others, &facts)
        });
        // Cpus of its own, where the node gives them and the pod asks for them.
        let decision = decision.and_then(|victims| {
            let taken = executor
                .resources
                .take_cpus(self.pod())
                .map_err(|error| Rejection { reason: error.reason().into(), message: error.to_string() });
            taken.map(|()| victims)
        });
        match decision {
            Ok(victims) if victims.is_empty() => {
                self.stage = Stage::Running(Volumes::Unprepared);
                true
            }
            Ok(victims) => {
                self.preempt(&victims);
                self.stage = Stage::Preempting;
                true
            }
            Err(refusal) => {
                span.rename(&refusal.reason);
                span.failed();
                span.finish();
                self.reject(refusal);
                false
            }
        }
    }

    pub(super) fn reject(&mut self, refusal: Rejection) {
        let reason = event_reason(&refusal.reason);
        let about = pod_reference(self.pod(), None);
        self.executor.events.record(about, Kind::Warning, reason, refusal.message.clone());
        let message = format!("Pod was rejected: {}", refusal.message);
        self.terminate(0, Some(EndReason { reason: refusal.reason, message, disruption: None }));
    }

    /// Allocates the devices of the pod, with what is aligned with them, or rejects it permanently. Pods that it preempts have given theirs back by now.
    async fn take_devices(&mut self) -> bool {
        // Devices of a pod that an earlier agent started are recorded; what is not is allocated with the next start.
        let runs = self.is_alive();
        let survived = self.observed.get().ready_sandbox().is_some();
        if !runs {
            let (resources, devices) = (&self.executor.resources, &self.executor.devices);
            if let Err(error) = resources.allocate(self.desired.pod(), devices, survived).await {
                let (reason, message) = (error.reason().into(), error.to_string());
                self.reject(Rejection { reason, message });
                return false;
            }
        }
        self.has_devices = true;
        true
    }

    /// Ends pods to make room for this one, which waits for them.
    fn preempt(&self, victims: &[Arc<Pod>]) {
        const MESSAGE: &str = "Preempted in order to admit critical pod";
        const DISRUPTION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";
        let mut longest = Duration::ZERO;
        for pod in victims {
            tracing::info!(
                pod = spec::name(pod),
                namespace = spec::namespace(pod),
                uid = spec::uid(pod),
                by = self.uid(),
                "pod preempted"
            );
            self.executor.events.pod(pod, Kind::Warning, "Preempting", MESSAGE);
            let grace = spec::grace(pod);
            longest = longest.max(Duration::from_secs(u64::try_from(grace).unwrap_or(0)));
            let (reason, message) = ("Preempting".to_owned(), MESSAGE.to_owned());
            let disruption = Some(DISRUPTION.to_owned());
            self.parts.pods.send(spec::uid(pod), Message::Evict { reason, message, disruption, grace });
        }
        let uids: Vec<String> = victims.iter().map(|pod| spec::uid(pod).to_owned()).collect();
        let (pods, mailbox) = (self.parts.pods.clone(), self.tasks.mailbox.clone());
        // Pods that cannot be stopped must not keep a critical one out for ever.
        let limit = MIN_PREEMPTION.max(longest.saturating_mul(3) / 2);
        self.tasks.tracker.spawn(async move {
            let _ = tokio::time::timeout(limit, pods.wait_stopped(&uids)).await;
            let _ = mailbox.send(Message::Preempted);
        });
    }

    /// `activeDeadlineSeconds`, counted from the pod's start.
    fn is_past_deadline(&mut self) -> bool {
        let Some(limit) = spec::spec(self.pod()).active_deadline_seconds else { return false };
        let start = self.status.get().start_time.as_ref().map(|time| time.0.as_second());
        let age = start.map_or(0, |start| (now() / 1_000_000_000).saturating_sub(start));
        if age < limit {
            self.wake_in(Duration::from_secs(u64::try_from(limit.saturating_sub(age)).unwrap_or(1)));
            return false;
        }
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.executor.events.pod(self.pod(), Kind::Normal, "DeadlineExceeded", message.clone());
        let reason = EndReason { reason: "DeadlineExceeded".to_owned(), message, disruption: None };
        self.terminate(spec::grace(self.pod()), Some(reason));
        true
    }

    fn plan(&self) -> Plan {
        let health = self.health();
        let none = BTreeSet::new();
        plan::plan(&Facts {
            spec: &spec::spec(self.pod()),
            observed: self.observed.get(),
            verdicts: &health.verdicts,
            stopping: &self.tasks.stopping_ids(),
            starting: self.tasks.job.as_ref().unwrap_or(&none),
            replaced: &self.replaced,
            backoffs: &self.retries.backoffs,
            next_attempts: &next_attempts(self.status.get()),
            max_dead: self.executor.config.max_dead_containers,
            now: now(),
        })
    }

    async fn apply_plan(&mut self, plan: &Plan) {
        let grace = Duration::from_secs(u64::try_from(spec::grace(self.pod())).unwrap_or(30));
        for kill in &plan.kills {
            if kill.replace {
                self.replaced.insert(kill.id.clone());
            }
            self.kill(kill.clone(), stop::grace(self.pod(), kill, grace), Turn::now());
        }
        if self.tasks.job.is_some() {
            return;
        }
        for id in &plan.remove {
            self.remove_container(id).await;
        }
        if !plan.reset.is_empty() {
            // How they ended, and how often they were restarted, is known only from the status afterwards.
            self.report_status(false);
        }
        for id in &plan.reset {
            match self.executor.runtime.remove_container(id).await {
                Ok(()) => self.observed.get_mut().instances.retain(|instance| instance.id != *id),
                Err(error) => {
                    tracing::warn!(uid = self.uid(), id, error = %causes::chain(&error), "container not removed, will retry");
                    self.wake_in(RETRY);
                    return;
                }
            }
        }
        if !plan.reset.is_empty() {
            self.wake_in(Duration::ZERO);
        }
        for id in &plan.remove_sandboxes {
            let removed = match self.executor.runtime.stop_pod_sandbox(id).await {
                Ok(()) => self.executor.runtime.remove_pod_sandbox(id).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(()) => self.observed.get_mut().sandboxes.retain(|sandbox| sandbox.id != *id),
                Err(error) => {
                    tracing::warn!(uid = self.uid(), sandbox = id, error = %causes::chain(&error), "sandbox not removed, will retry");
                    self.wake_in(RETRY);
                }
            }
        }
        self.begin(plan);
    }

    async fn remove_container(&mut self, id: &str) {
        match self.executor.runtime.remove_container(id).await {
            Ok(()) => {
                let all = &mut self.observed.get_mut().instances;
                let removed = all.iter().position(|instance| instance.id == id).map(|at| all.remove(at));
                // The next attempt writes to the files of one that never ran.
                if let Some(instance) = removed.filter(|instance| instance.state == State::Exited) {
                    let config = &self.executor.config;
                    let message = config.termination_log(self.uid(), &instance.name, instance.attempt);
                    let link = log_links::name(self.pod(), &instance.name, &instance.id);
                    tokio::task::block_in_place(|| {
                        if let Some(links) = &config.log_link_dir {
                            log_links::remove(links, &link, Path::new(&instance.log_path));
                        }
                        instance_files::remove_log(Path::new(&instance.log_path));
                        instance_files::remove_file(&message);
                    });
                }
            }
            Err(error) => {
                tracing::warn!(uid = self.uid(), id, error = %causes::chain(&error), "container not removed, will retry");
                self.wake_in(RETRY);
            }
        }
    }

    /// Whether an attempt may be made now; if not, wakes when it may.
    fn may_try(&mut self, key: &str) -> bool {
        match self.retries.not_before.get(key).copied() {
            Some(at) if at > Instant::now() => {
                self.wake_in(at - Instant::now());
                false
            }
            _ => true,
        }
    }

    /// Starts a job for the sandbox and containers.
    fn begin(&mut self, plan: &Plan) {
        let create_sandbox = plan.create_sandbox.filter(|_| self.may_try(""));
        let mut starts = plan.starts.clone();
        starts.retain(|start| self.may_try(&start.name));
        let adopt_volumes = self.stage.volumes().is_some_and(|v| v.are_to_be_adopted(self.observed.get()))
            && self.may_try("");
        if create_sandbox.is_none() && starts.is_empty() && plan.stop_sandboxes.is_empty() && !adopt_volumes {
            return;
        }
        if create_sandbox.is_some_and(|attempt| attempt > 0) {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            self.executor.events.pod(self.pod(), Kind::Normal, "SandboxChanged", text);
        }
        for start in &starts {
            let spec = spec::spec(self.desired.pod());
            if let (Some(failed_at), Some((_, container))) =
                (start.failed_at, spec::container(&spec, &start.name))
            {
                self.retries.backoffs.retried(&plan::backoff_key(&container), failed_at, now());
            }
        }
        let names: BTreeSet<String> = starts.iter().map(|start| start.name.clone()).collect();
        let mut job = Job {
            executor: self.executor.clone(),
            pod: self.pod().clone(),
            observed: self.observed.get().clone(),
            prepared: self.stage.prepared().cloned(),
            stop_sandboxes: plan.stop_sandboxes.clone(),
            create_sandbox,
            starts,
            adopt_volumes,
            volumes_failed: matches!(self.stage, Stage::Running(Volumes::Failed)),
            addresses: None,
            hooks: self.tasks.hooks.clone(),
            cancel: self.tasks.cancel.clone(),
            spawned: None,
        };
        for start in &job.starts {
            self.trace.starts(&start.name);
        }
        self.trace.job_begins();
        self.tasks.job = Some(names.clone());
        let (mailbox, parts, pod) = (self.tasks.mailbox.clone(), self.parts.clone(), self.pod().clone());
        job.spawned = Some(Instant::now());
        let run = async move {
            let outcome = parts.catch_panic(&pod, job.run()).await;
            let names: Vec<String> = names.into_iter().collect();
            let outcome = outcome.unwrap_or_else(|panicked| Outcome::panicked(&names, &panicked.to_string()));
            let _ = mailbox.send(Message::Done(Box::new(outcome), Instant::now()));
        };
        self.tasks.tracker.spawn(within(self.trace.scope(), Box::pin(run)));
    }

    /// Records back-off events, once per exited instance, and schedules the next start.
    fn wait_for_backoff(&mut self, plan: &Plan) {
        for held in &plan.held {
            let left = u64::try_from(held.until - now()).unwrap_or(0);
            self.wake_in(Duration::from_nanos(left));
            let spec = spec::spec(self.desired.pod());
            let Some((_, container)) = spec::container(&spec, &held.name) else { continue };
            let delay = self.retries.backoffs.delay(&plan::backoff_key(&container));
            let pod = security::pod_text(self.pod());
            let message = format!(
                "back-off {} restarting failed container={} pod={pod}",
                go_duration(Duration::from_nanos(u64::try_from(delay).unwrap_or(0))),
                held.name
            );
            self.trace.waits(&held.name, &message);
            self.retries.waiting.insert(held.name.clone(), ("CrashLoopBackOff".to_owned(), message));
            let Some(instance) = self.observed.get().latest(&held.name) else { continue };
            if self.retries.told.insert(instance.id.clone()) {
                let text = format!("Back-off restarting failed container {} in pod {pod}", held.name);
                self.executor.events.container(self.pod(), &held.name, Kind::Warning, "BackOff", text);
            }
        }
    }
}

/// Restart counts to go on with where instances are gone: from the status that was reported last.
fn next_attempts(status: &PodStatus) -> BTreeMap<String, u32> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let ended =
        |state: &Option<ContainerState>| state.as_ref().is_some_and(|state| state.terminated.is_some());
    let has_run = |status: &&ContainerStatus| {
        status.container_id.is_some() || ended(&status.state) || ended(&status.last_state)
    };
    let next = |status: &ContainerStatus| {
        (status.name.clone(), u32::try_from(status.restart_count).unwrap_or(0).saturating_add(1))
    };
    lists.into_iter().flatten().flatten().filter(has_run).map(next).collect()
}

/// Event reasons are fixed names; refusals have a handful of them.
fn event_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 19] = [
        "SMTAlignmentError",
        "VolumeAttachmentLimitExceeded",
        "TopologyAffinityError",
        "Evicted",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfmemory",
        "OutOfpods",
        "OutOfephemeral-storage",
        "NodeAffinity",
        "NodePorts",
        "TaintToleration",
        "SysctlForbidden",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "AppArmor",
        "SELinux",
        "ProcMount",
        "EmptyDirMedium",
    ];
    let known = KNOWN.into_iter().find(|known| *known == reason);
    known.or_else(|| out_of_extended_resource(reason)).unwrap_or("UnexpectedAdmissionError")
}

/// Refusals for an extended resource are named after it. Names are kept for ever, so that only so many are.
fn out_of_extended_resource(reason: &str) -> Option<&'static str> {
    const MAX_NAMES: usize = 256;
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if !reason.strip_prefix("OutOf").is_some_and(is_extended_resource) {
        return None;
    }
    let mut names = NAMES.lock();
    let known = names.get(reason).copied();
    if known.is_some() || names.len() >= MAX_NAMES {
        return known;
    }
    let name: &'static str = reason.to_owned().leak();
    names.insert(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_the_extended_resource_that_is_missing() {
        assert_eq!(event_reason("OutOfvendor.example/gpu"), "OutOfvendor.example/gpu");
        assert_eq!(event_reason("OutOfvendor.example/gpu"), "OutOfvendor.example/gpu");
        assert_eq!(event_reason("OutOfcpu"), "OutOfcpu");
        assert_eq!(event_reason("OutOf nonsense"), "UnexpectedAdmissionError");
    }
}
