//! Reports the pod's status and updates its probes.

use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

use super::known::Known;
use super::task::Worker;
use crate::lifecycle::probe_targets::{self, Health};
use crate::pod::spec;
use crate::status::facts::{Resize, StatusFacts};
use crate::status::generate::generate;
use crate::status::phase::Phase;

/// Delay of the first status of a new pod: most pods run by then, which saves a report.
const FIRST_REPORT: Duration = Duration::from_millis(250);

impl Worker {
    /// Generates the status, reports it if it changed, and updates the probes; returns the phase.
    pub(super) fn report_status(&mut self, ended: bool) -> Phase {
        let (health, hooked) = (self.health(), self.tasks.hooks.names());
        let devices = self.executor.devices.health(self.uid());
        let resizes: Vec<Resize> =
            [&self.resizes.pending, &self.resizes.failing].into_iter().flatten().cloned().collect();
        let status = generate(&StatusFacts {
            pod: self.pod(),
            spec: spec::spec(self.pod()),
            previous: self.status.get(),
            observed: self.observed.get(),
            waiting: &self.retries.waiting,
            verdicts: &health.verdicts,
            ready: &health.ready,
            hooked: &hooked,
            replaced: &self.replaced,
            ended,
            failure: self.stage.failure(),
            disruption: self.stage.disruption(),
            resizes: &resizes,
            limits: self.resizes.whole,
            cpu_quotas: self.executor.resources.cpu_quotas_of_pod(self.uid()),
            devices: &devices,
            host_ips: &self.executor.config.ips,
            runtime: &self.parts.runtime_name,
            now: Timestamp::now(),
        });
        let phase = status.phase.as_deref().and_then(Phase::parse).unwrap_or(Phase::Pending);
        let is_over = phase.is_terminal() && self.observed.get().alive().next().is_none();
        // A job may still create a container, with the pod's devices.
        let is_early = is_over && self.tasks.job.is_some();
        // When the API knows, the scheduler gives what it had to others.
        if is_over && !is_early {
            self.executor.devices.release(self.uid());
            self.parts.pods.mark_ended(self.uid());
        }
        let starting_up =
            phase == Phase::Pending && self.retries.waiting.is_empty() && !ended && !self.stage.is_ending();
        let outdated = self.status.is_outdated();
        let news = outdated || status != *self.status.get();
        self.trace.status(self.desired.pod(), phase, &status, self.observed.get());
        self.status = if starting_up && self.began.elapsed() < FIRST_REPORT {
            self.trace.status_held();
            self.wake_in(FIRST_REPORT.saturating_sub(self.began.elapsed()));
            Known::Outdated(status)
        } else if is_early {
            self.trace.status_held();
            Known::Outdated(status)
        } else if news && !self.desired.is_gone() {
            self.trace.status_reported();
            self.parts.reporter.report(self.uid(), status.clone());
            Known::Current(status)
        } else if outdated {
            Known::Outdated(status)
        } else {
            Known::Current(status)
        };
        if !ended {
            self.probe(&health, &hooked);
        }
        phase
    }

    /// What is known of the health of the containers.
    pub(super) fn health(&self) -> Health {
        let (verdicts, ready) = self.parts.probes.verdicts(self.uid());
        probe_targets::health(verdicts, ready, self.observed.get(), self.status.get())
    }

    fn probe(&self, health: &Health, hooked: &BTreeSet<String>) {
        let (observed, ending) = (self.observed.get(), self.stage.is_ending());
        let ip = self.ips().into_iter().next().unwrap_or_default();
        let spec = spec::spec(self.pod());
        let targets = probe_targets::targets(&spec, observed, health, hooked, &ip, ending);
        self.parts.probes.set(self.pod(), targets);
        let alive: BTreeSet<&str> = observed.alive().map(|instance| instance.id.as_str()).collect();
        self.parts.probes.retain(self.uid(), &alive);
    }
}
