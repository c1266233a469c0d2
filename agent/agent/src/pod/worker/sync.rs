//! Reconciles a running pod with its spec: admit, plan, apply, report.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::super::admit::{self, AdmitFacts, Rejection};
use super::super::execute::{Job, Outcome};
use super::super::plan::{self, Facts, Kill, Plan};
use super::super::table::Message;
use super::super::{security, spec, stop, unsupported};
use super::{RETRY, Stage, Worker, from_now, now};
use crate::events::Kind;
use crate::status::phase::Phase;

/// Delay before stopping a container is retried after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) async fn sync(&mut self) {
        let api_phase =
            self.pod.status.as_ref().and_then(|status| status.phase.as_deref()).and_then(Phase::parse);
        if self.is_deleting() {
            self.terminate(i64::try_from(self.deletion_grace().as_secs()).unwrap_or(30));
            return;
        }
        if api_phase.is_some_and(Phase::is_terminal) {
            self.terminate(spec::grace(&self.pod));
            return;
        }
        if !self.admitted && !self.admit() {
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
        if phase.is_terminal() && !self.busy {
            self.terminate(spec::grace(&self.pod));
        }
    }

    /// Admits the pod, or rejects it permanently.
    fn admit(&mut self) -> bool {
        let facts = self.context.facts.read().clone();
        let decision = self.context.pods.admit(self.uid(), |others| {
            // A pod that is running was admitted before a restart of the agent.
            if self.observed.alive().next().is_some() {
                return Ok(());
            }
            unsupported::check(&self.pod, facts.confinement)?;
            if spec::is_critical(&self.pod) {
                return Ok(());
            }
            let facts = AdmitFacts {
                allocatable: &facts.allocatable,
                labels: &facts.labels,
                node: &self.context.config.name,
                taints: &facts.taints,
                pressure: facts.pressure,
                allowed_sysctls: &self.context.config.allowed_unsafe_sysctls,
            };
            if self.context.shutdown.has_begun() {
                let text = "Pod was rejected as the node is shutting down.";
                return Err(Rejection { reason: "NodeShutdown".into(), message: text.into() });
            }
            admit::admit(&self.pod, others, &facts)
        });
        let decision = decision.and_then(|()| self.take_cpus());
        match decision {
            Ok(()) => {
                self.admitted = true;
                true
            }
            Err(refusal) => {
                self.context.events.record(
                    crate::events::pod_reference(&self.pod, None),
                    Kind::Warning,
                    leak_reason(&refusal.reason),
                    refusal.message.clone(),
                );
                self.failure = Some((refusal.reason, format!("Pod was rejected: {}", refusal.message)));
                self.terminate(0);
                false
            }
        }
    }

    /// Cpus of its own, where the node gives them and the pod asks for them.
    fn take_cpus(&self) -> Result<(), Rejection> {
        let Some(cpus) = &self.context.cpus else { return Ok(()) };
        match cpus.admit(&self.pod) {
            Ok(changed) => {
                if changed {
                    self.context.refresh_shared_cpus();
                }
                Ok(())
            }
            Err(error) => {
                Err(Rejection { reason: "UnexpectedAdmissionError".into(), message: error.to_string() })
            }
        }
    }

    /// `activeDeadlineSeconds`, counted from the pod's start.
    fn is_past_deadline(&mut self) -> bool {
        let Some(limit) = spec::spec(&self.pod).active_deadline_seconds else { return false };
        let start = self.status.start_time.as_ref().map(|time| time.0.as_second());
        let age = start.map_or(0, |start| (now() / 1_000_000_000).saturating_sub(start));
        if age < limit {
            self.wake_in(Duration::from_secs(u64::try_from(limit.saturating_sub(age)).unwrap_or(1)));
            return false;
        }
        let message = "Pod was active on the node longer than the specified deadline".to_owned();
        self.context.events.pod(&self.pod, Kind::Normal, "DeadlineExceeded", message.clone());
        self.failure = Some(("DeadlineExceeded".to_owned(), message));
        self.terminate(spec::grace(&self.pod));
        true
    }

    fn plan(&self) -> Plan {
        let (verdicts, _) = self.context.probes.verdicts(self.uid());
        let stopping: BTreeSet<String> = self.stopping.keys().cloned().collect();
        plan::plan(&Facts {
            spec: &spec::spec(&self.pod),
            observed: &self.observed,
            verdicts: &verdicts,
            stopping: &stopping,
            starting: &self.starting,
            replaced: &self.replaced,
            backoffs: &self.backoffs,
            now: now(),
        })
    }

    async fn apply_plan(&mut self, plan: &Plan) {
        let grace = Duration::from_secs(u64::try_from(spec::grace(&self.pod)).unwrap_or(30));
        for kill in &plan.kills {
            if kill.replace {
                self.replaced.insert(kill.id.clone());
            }
            self.kill(kill.clone(), stop::grace(&self.pod, kill, grace));
        }
        if self.busy {
            return;
        }
        for id in &plan.remove {
            self.remove_container(id).await;
        }
        for id in &plan.remove_sandboxes {
            let removed = match self.context.runtime.stop_pod_sandbox(id).await {
                Ok(()) => self.context.runtime.remove_pod_sandbox(id).await,
                Err(error) => Err(error),
            };
            match removed {
                Ok(()) => self.observed.sandboxes.retain(|sandbox| sandbox.id != *id),
                Err(error) => {
                    tracing::warn!(uid = self.uid(), sandbox = id, %error, "sandbox not removed, will retry");
                    self.wake_in(RETRY);
                }
            }
        }
        self.begin(plan);
    }

    async fn remove_container(&mut self, id: &str) {
        match self.context.runtime.remove_container(id).await {
            Ok(()) => self.observed.instances.retain(|instance| instance.id != id),
            Err(error) => {
                tracing::warn!(uid = self.uid(), id, %error, "container not removed, will retry");
                self.wake_in(RETRY);
            }
        }
    }

    /// Whether an attempt may be made now; if not, wakes when it may.
    fn may_try(&mut self, key: &str) -> bool {
        match self.not_before.get(key).copied() {
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
        if create_sandbox.is_none() && starts.is_empty() && plan.stop_sandboxes.is_empty() {
            return;
        }
        if create_sandbox.is_some_and(|attempt| attempt > 0) {
            let text = "Pod sandbox changed, it will be killed and re-created.";
            self.context.events.pod(&self.pod, Kind::Normal, "SandboxChanged", text);
        }
        for start in &starts {
            let spec = spec::spec(&self.pod);
            if let (Some(failed_at), Some((_, container))) =
                (start.failed_at, spec::container(&spec, &start.name))
            {
                self.backoffs.retried(&plan::backoff_key(&container), failed_at, now());
            }
        }
        self.busy = true;
        self.starting = starts.iter().map(|start| start.name.clone()).collect();
        let job = Job {
            context: self.context.clone(),
            pod: self.pod.clone(),
            observed: self.observed.clone(),
            prepared: self.prepared.clone(),
            stop_sandboxes: plan.stop_sandboxes.clone(),
            create_sandbox,
            starts,
            volumes_failed: self.volumes_failed,
            addresses: None,
            cancel: self.cancel.clone(),
        };
        let (own, context, pod) = (self.own.clone(), self.context.clone(), self.pod.clone());
        let names: Vec<String> = self.starting.iter().cloned().collect();
        self.jobs.spawn(async move {
            let outcome = super::restart::catch_panic(&context, &pod, job.run()).await;
            let outcome = outcome.unwrap_or_else(|panicked| Outcome::panicked(&names, &panicked.to_string()));
            let _ = own.send(Message::Done(Box::new(outcome)));
        });
    }

    /// Wakes when a token of the pod is to be renewed, and renews it then.
    fn renew_tokens(&mut self) {
        let Some(at) = self.prepared.as_ref().and_then(|prepared| prepared.renew_at) else { return };
        let left = at.saturating_sub(now() / 1_000_000_000);
        if left <= 0 && !self.refreshing {
            self.refresh_volumes();
        }
        // A renewal that fails is tried again after a minute.
        self.wake_in(Duration::from_secs(u64::try_from(left).unwrap_or(0).max(60)));
    }

    /// Records back-off events, once per exited instance, and schedules the next start.
    fn wait_for_backoff(&mut self, plan: &Plan) {
        for held in &plan.held {
            let left = u64::try_from(held.until - now()).unwrap_or(0);
            self.wake_in(Duration::from_nanos(left));
            let spec = spec::spec(&self.pod);
            let Some((_, container)) = spec::container(&spec, &held.name) else { continue };
            let delay = self.backoffs.delay(&plan::backoff_key(&container)) / 1_000_000_000;
            let pod = security::pod_text(&self.pod);
            let message = format!(
                "back-off {} restarting failed container={} pod={pod}",
                go_duration(delay),
                held.name
            );
            self.waiting.insert(held.name.clone(), ("CrashLoopBackOff".to_owned(), message));
            let Some(instance) = self.observed.latest(&held.name) else { continue };
            if self.told_backoff.insert(instance.id.clone()) {
                let text = format!("Back-off restarting failed container {} in pod {pod}", held.name);
                self.context.events.container(&self.pod, &held.name, Kind::Warning, "BackOff", text);
            }
        }
    }

    /// Stops a container in a task of its own.
    pub(super) fn kill(&mut self, kill: Kill, grace: Duration) {
        if self.stopping.contains_key(&kill.id) {
            return;
        }
        let (context, pod, own, id) =
            (self.context.clone(), self.pod.clone(), self.own.clone(), kill.id.clone());
        let ip = self.ips().into_iter().next().unwrap_or_default();
        let done = id.clone();
        let task = tokio::spawn(async move {
            let stop = stop::stop(context.clone(), pod.clone(), kill, grace, ip);
            if super::restart::catch_panic(&context, &pod, stop).await.is_err() {
                tokio::time::sleep(AFTER_PANIC).await;
            }
            let _ = own.send(Message::Stopped(done));
        });
        self.stopping.insert(id, task.abort_handle());
    }

    /// Starts termination, which is final.
    pub(super) fn terminate(&mut self, grace: i64) {
        if self.stage == Stage::Syncing {
            tracing::info!(
                pod = spec::name(&self.pod),
                namespace = spec::namespace(&self.pod),
                uid = self.uid(),
                grace,
                "pod ends"
            );
            self.cancel.cancel();
            self.stage = Stage::Terminating(from_now(Duration::from_secs(u64::try_from(grace).unwrap_or(0))));
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
