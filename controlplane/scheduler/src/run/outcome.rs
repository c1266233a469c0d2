//! Results of a scheduling decision: binding, `PodScheduled` condition, or preemption.

use super::reports::{Report, Why};
use super::{Bound, Done, Runner, Written};
use crate::devices::ELSEWHERE;
use crate::diagnosis::Diagnosis;
use crate::metrics::{AttemptResult, Point, Status};
use crate::pod::PodInfo;
use crate::preempt::{Plan, PreemptionError};
use crate::queue::{Event, Millis};
use crate::rejection::{Plugin, Rejection};
use crate::writes::{Writes, is_gone};
use coracle_cli::causes;
use coracle_cli::supervise::catch_panic_async;
use coracle_proto::status::ApiError;
use coracle_trace::{Stage, tracked, within};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinError;

impl Runner {
    /// No node fits: updates the condition of the pod and starts a preemption if that helps.
    pub(super) fn mark_unschedulable(&mut self, pod: &Arc<PodInfo>, why: Arc<Diagnosis>, now: Millis) {
        let devices = self.give_up_devices(pod, &why);
        let budgets: Vec<_> = self.state.budgets.values().cloned().collect();
        let plan = if self.preempting.contains(&pod.key) {
            Err(PreemptionError::UnderWay)
        } else if self.consult_preemption(pod, &why, &budgets, now) {
            return;
        } else {
            let plan = self.state.placer.preempt(pod, &why, &budgets);
            self.metrics.preempted(plan.as_ref().ok().map(|plan| plan.victims.len()));
            plan
        };
        let tried = plan.as_ref().err().map(|error| tried(devices, &error.to_string())).unwrap_or_default();
        let message = why.message(&tried);
        self.pending.0.write().insert(pod.key.clone(), (why.clone(), message.clone()));
        let is_new = self.state.queue.why(&pod.key).is_none_or(|(_, before)| *before != message);
        let recorded = self.record_failure(pod, &why, &message, is_new || plan.is_ok());
        let news = self.state.queue.mark_unschedulable(&pod.key, why, message.clone(), now);
        match plan {
            Ok(plan) => self.start_preemption(pod, plan, message),
            Err(preemption_error) if news && !self.preempting.contains(&pod.key) => {
                // The nominated node does not fit any more.
                let giving_up = !pod.nominated.is_empty() && !preemption_error.is_ineligible();
                if giving_up {
                    self.state.placer.snapshot.nominate(pod, "");
                }
                let nominated = (!giving_up && !pod.nominated.is_empty()).then(|| pod.nominated.clone());
                self.report(pod.clone(), message, nominated, Vec::new());
            }
            Err(_) if recorded => self.attempt(&pod.key).end(Some(&message)),
            Err(_) => {}
        }
    }

    /// Evicts the victims and nominates the node for the pod.
    pub(super) fn start_preemption(&mut self, pod: &Arc<PodInfo>, plan: Plan, message: String) {
        let Some(node) = self.state.placer.snapshot.node(plan.node).map(|n| n.name.clone()) else {
            return self.attempt(&pod.key).end(Some(&message));
        };
        tracing::info!(pod = %pod.key, node, victims = plan.victims.len(), "preempting");
        self.state.placer.snapshot.nominate(pod, &node);
        self.preempting.insert(pod.key.clone());
        self.report(pod.clone(), message, Some(node), plan.victims);
    }

    pub(super) fn report(
        &mut self,
        pod: Arc<PodInfo>,
        message: String,
        nominated: Option<String>,
        victims: Vec<Arc<PodInfo>>,
    ) {
        let (why, attempt) = (Why::Unschedulable { nominated, victims }, self.attempt(&pod.key));
        self.tell(Report { pod, message, why, attempt });
    }

    /// Writes a report, after that of the pod that is being written.
    pub(super) fn tell(&mut self, report: Report) {
        if let Some(report) = self.reports.begin(report) {
            self.write_report(report);
        }
    }

    fn write_report(&mut self, report: Report) {
        let writes = self.writes.clone();
        self.under_way.spawn(async move {
            let preempts = report.preempts();
            let Report { pod, message, why, attempt } = report;
            let work = async {
                match &why {
                    Why::Unschedulable { nominated, victims } => {
                        explain(&writes, &pod, &message, nominated.as_deref(), victims).await
                    }
                    Why::Error => writes.explain_error(&pod, &message).await,
                }
            };
            // Reports of the pod that follow, and its binding, wait for the end of this one.
            let result = catch_panic_async(within(attempt.scope(), work)).await;
            let result = result.unwrap_or_else(|panicked| Err(ApiError::internal(panicked)));
            attempt.end(Some(&message));
            Done::Reported { pod, preempts, result }
        });
    }

    pub(super) fn finish(&mut self, done: Result<Done, JoinError>) {
        if let Ok(Done::Reported { pod, preempts, .. }) = &done {
            if *preempts && self.preempting.remove(&pod.key) {
                // The victims may have terminated in the meantime.
                let now = self.now();
                self.state.queue.activate(&pod.key, now);
            }
            if let Some(next) = self.reports.done(&pod.key) {
                self.write_report(next);
            }
        }
        match done {
            Ok(Done::Decided(pod, written)) => self.claims_written(&pod, written),
            Ok(Done::Deallocated(pod, Err(error))) if !error.is_not_found() && !error.is_conflict() => {
                tracing::warn!(pod = %pod.key, error = %causes::chain(&error), "cannot take devices from a claim");
            }
            Ok(Done::Reported { pod, result: Err(error), .. }) if !is_gone(&error) => {
                tracing::warn!(pod = %pod.key, error = %causes::chain(&error), "cannot update the PodScheduled condition");
            }
            Ok(Done::Deallocated(..) | Done::Reported { .. }) => {}
            Err(error) => tracing::error!(error = %causes::chain(&error), "write task failed"),
        }
    }

    /// What was decided about a pod's claims was written, or could not be.
    fn claims_written(&mut self, pod: &Arc<PodInfo>, Written { devices, result }: Written) {
        let known = &mut self.state.placer.snapshot.devices;
        for (decided, reserved) in &devices {
            known.created(pod, decided, &reserved.claim);
            known.written(pod, &reserved.claim, reserved.revision);
        }
        known.forget(pod);
        let now = self.now();
        if !pod.device_claims.is_empty() || !devices.is_empty() {
            self.state.queue.on_event(Event::Devices, &self.state.placer.snapshot, now);
        }
        match result {
            Ok(()) => {
                if let Some(awaiting) = self.awaiting.get_mut(&pod.key) {
                    awaiting.is_writing = false;
                }
            }
            Err(error) => {
                self.awaiting.remove(&pod.key);
                self.attempt(&pod.key).end(Some(&error.message));
                self.undo_binding(pod, &error.message);
            }
        }
    }

    /// Gives up devices of a claim where the pod cannot run, if it may get others elsewhere. Tells what became of it.
    fn give_up_devices(&mut self, pod: &Arc<PodInfo>, why: &Diagnosis) -> &'static str {
        let is_elsewhere = |rejection: &Rejection| {
            rejection.plugin == Plugin::DynamicResources && rejection.reasons.iter().any(|r| r == ELSEWHERE)
        };
        if pod.rules.as_ref().is_some_and(|rules| rules.skipped.has(Plugin::DynamicResources)) {
            return "";
        }
        if pod.device_claims.is_empty() && pod.extended_uses.is_empty() {
            return "no new claims to deallocate";
        }
        let elsewhere = why.rejections.iter().any(|(_, rejection)| is_elsewhere(rejection));
        let releasable = elsewhere.then(|| self.state.placer.snapshot.devices.releasable(pod)).flatten();
        let Some((claim, uid)) = releasable else { return "still not schedulable" };
        let (writes, pod) = (self.writes.clone(), pod.clone());
        self.under_way.spawn(async move {
            let result = writes.deallocate(&pod, &claim, &uid).await;
            Done::Deallocated(pod, result)
        });
        "deallocation of ResourceClaim completed"
    }

    pub(super) fn bound(&mut self, bound: Result<Bound, JoinError>) {
        let Bound { pods, took } = bound.unwrap_or_else(|error| {
            tracing::error!(error = %causes::chain(&error), "binding task failed");
            Bound { pods: Vec::new(), took: Duration::ZERO }
        });
        for (pod, answer) in pods {
            let status = if answer.is_ok() { Status::Success } else { Status::Error };
            self.metrics.ran(&pod.scheduler, Point::Bind, status, took);
            if let Err(error) = answer {
                self.undo_binding(&pod, &error.message);
                continue;
            }
            if let Some(tries) = self.tries.remove(&pod.key) {
                self.metrics.attempted(&pod.scheduler, AttemptResult::Scheduled, tries.latest.elapsed());
                self.metrics.placed(tries.count, tries.first.elapsed());
            }
            self.pending.0.write().remove(&pod.key);
            // Another one of its name may be waiting by now.
            if self.state.queue.get(&pod.key).is_some_and(|waiting| waiting.uid == pod.uid) {
                self.state.queue.remove(&pod.key);
            }
        }
    }

    /// Undoes a placement that could not be written; the pod is retried with backoff.
    pub(super) fn undo_binding(&mut self, pod: &Arc<PodInfo>, why: &str) {
        tracing::warn!(pod = %pod.key, why, "cannot bind pod, will retry");
        let took = self.tries.get(&pod.key).map(|tries| tries.latest.elapsed()).unwrap_or_default();
        self.metrics.attempted(&pod.scheduler, AttemptResult::Error, took);
        let now = self.now();
        let node = self.state.placer.snapshot.pod_node(&pod.key);
        self.state.placer.snapshot.forget(&pod.key);
        self.state.queue.on_event(Event::Gone(pod, node), &self.state.placer.snapshot, now);
        self.state.queue.retry(&pod.key, now);
    }
}

/// What was tried to make room for a pod, as its message says it.
fn tried(devices: &str, preemption: &str) -> String {
    match (devices, preemption) {
        (devices, "") => devices.to_owned(),
        ("", preemption) => format!("preemption: {preemption}"),
        (devices, preemption) => format!("{devices}, preemption: {preemption}"),
    }
}

/// Tells a pod why it has no node, and evicts the victims of a preemption unless the pod is gone.
async fn explain(
    writes: &Writes,
    pod: &PodInfo,
    message: &str,
    nominated: Option<&str>,
    victims: &[Arc<PodInfo>],
) -> Result<(), ApiError> {
    let result = writes.explain(pod, message, nominated).await;
    if result.as_ref().is_err_and(is_gone) {
        return result;
    }
    result.and(evict(writes, pod, nominated.unwrap_or_default(), victims).await)
}

/// Evicts the victims of a preemption, all of them although one cannot be; the first error.
async fn evict(writes: &Writes, pod: &PodInfo, node: &str, victims: &[Arc<PodInfo>]) -> Result<(), ApiError> {
    if victims.is_empty() {
        return Ok(());
    }
    let evictions = async {
        let mut result = Ok(());
        for victim in victims {
            result = result.and(writes.evict(victim, pod, node).await);
        }
        result
    };
    tracked(Stage::Preempt, &format!("{node}\nvictims: {}", victims.len()), evictions).await
}
