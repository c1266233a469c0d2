//! Reconciles a running pod with its spec: admit, plan, apply, report.

use coracle_cli::causes;
use coracle_trace::within;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::clock::now;
use super::stage::{EndReason, Stage, Volumes};
use super::task::{RETRY, Worker};
use crate::events::{Kind, pod_reference};
use crate::lifecycle::execute::Job;
use crate::lifecycle::execute::outcome::Outcome;
use crate::lifecycle::stop;
use crate::lifecycle::table::Message;
use crate::pod::admit::{self, AdmitFacts, Rejection};
use crate::pod::plan::{self, Facts, Plan};
use crate::pod::{security, spec, unsupported};
use crate::status::phase::Phase;

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
        if matches!(self.stage, Stage::Pending) && !self.admit() {
            return;
        }
        if self.is_past_deadline() {
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

    /// Admits the pod, or rejects it permanently.
    fn admit(&mut self) -> bool {
        let mut span = coracle_trace::stage(coracle_trace::Stage::Admit);
        let executor = &self.executor;
        let facts = executor.resources.facts();
        let decision = self.parts.pods.admit(self.uid(), |others| {
            // A pod that is running was admitted before a restart of the agent.
            if self.observed.get().alive().next().is_some() {
                return Ok(());
            }
            unsupported::check(self.pod(), facts.confinement)?;
            if spec::is_critical(self.pod()) {
                return Ok(());
            }
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
        let decision = decision.and_then(|()| {
            executor.resources.take_cpus(self.pod()).map_err(|error| Rejection {
                reason: "UnexpectedAdmissionError".into(),
                message: error.to_string(),
            })
        });
        match decision {
            Ok(()) => {
                self.stage = Stage::Running(Volumes::Unprepared);
                true
            }
            Err(refusal) => {
                span.rename(&refusal.reason);
                span.failed();
                span.finish();
                executor.events.record(
                    pod_reference(self.pod(), None),
                    Kind::Warning,
                    leak_reason(&refusal.reason),
                    refusal.message.clone(),
                );
                let message = format!("Pod was rejected: {}", refusal.message);
                self.terminate(0, Some(EndReason { reason: refusal.reason, message }));
                false
            }
        }
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
        let reason = EndReason { reason: "DeadlineExceeded".to_owned(), message };
        self.terminate(spec::grace(self.pod()), Some(reason));
        true
    }

    fn plan(&self) -> Plan {
        let (verdicts, _) = self.parts.probes.verdicts(self.uid());
        let none = BTreeSet::new();
        plan::plan(&Facts {
            spec: &spec::spec(self.pod()),
            observed: self.observed.get(),
            verdicts: &verdicts,
            stopping: &self.tasks.stopping_ids(),
            starting: self.tasks.job.as_ref().unwrap_or(&none),
            replaced: &self.replaced,
            backoffs: &self.retries.backoffs,
            now: now(),
        })
    }

    async fn apply_plan(&mut self, plan: &Plan) {
        let grace = Duration::from_secs(u64::try_from(spec::grace(self.pod())).unwrap_or(30));
        for kill in &plan.kills {
            if kill.replace {
                self.replaced.insert(kill.id.clone());
            }
            self.kill(kill.clone(), stop::grace(self.pod(), kill, grace));
        }
        if self.tasks.job.is_some() {
            return;
        }
        for id in &plan.remove {
            self.remove_container(id).await;
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
            Ok(()) => self.observed.get_mut().instances.retain(|instance| instance.id != id),
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
        let job = Job {
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
            cancel: self.tasks.cancel.clone(),
        };
        for start in &job.starts {
            self.trace.starts(&start.name);
        }
        self.trace.job_begins();
        self.tasks.job = Some(names.clone());
        let (mailbox, parts, pod) = (self.tasks.mailbox.clone(), self.parts.clone(), self.pod().clone());
        let run = async move {
            let outcome = parts.catch_panic(&pod, job.run()).await;
            let names: Vec<String> = names.into_iter().collect();
            let outcome = outcome.unwrap_or_else(|panicked| Outcome::panicked(&names, &panicked.to_string()));
            let _ = mailbox.send(Message::Done(Box::new(outcome)));
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
            let delay = self.retries.backoffs.delay(&plan::backoff_key(&container)) / 1_000_000_000;
            let pod = security::pod_text(self.pod());
            let message = format!(
                "back-off {} restarting failed container={} pod={pod}",
                go_duration(delay),
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

/// Seconds as Go prints them: `10s`, `2m40s`.
fn go_duration(seconds: i64) -> String {
    let (minutes, seconds) = (seconds / 60, seconds % 60);
    if minutes > 0 { format!("{minutes}m{seconds}s") } else { format!("{seconds}s") }
}

/// Event reasons are fixed names; refusals have a handful of them.
fn leak_reason(reason: &str) -> &'static str {
    const KNOWN: [&str; 19] = [
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
        "DynamicResources",
        "VolumeDevices",
        "ProcMount",
        "EmptyDirMedium",
        "EnvFiles",
    ];
    KNOWN.into_iter().find(|known| *known == reason).unwrap_or("UnexpectedAdmissionError")
}
