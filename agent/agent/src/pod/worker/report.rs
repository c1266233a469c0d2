//! Reports the pod's status and updates its probes.

use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

use super::super::{probe_targets, spec};
use super::{Stage, Worker};
use crate::status::generate::{StatusFacts, generate};
use crate::status::phase::Phase;

/// Delay of the first status of a new pod: most pods run by then, which saves a report.
const FIRST_REPORT: Duration = Duration::from_millis(250);

impl Worker {
    /// Generates the status, reports it if it changed, and updates the probes; returns the phase.
    pub(super) fn report_status(&mut self, ended: bool) -> Phase {
        let (verdicts, ready) = self.context.probes.verdicts(self.uid());
        let failure = self.failure.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
        let status = generate(&StatusFacts {
            pod: &self.pod,
            spec: spec::spec(&self.pod),
            previous: &self.status,
            observed: &self.observed,
            waiting: &self.waiting,
            verdicts: &verdicts,
            ready: &ready,
            replaced: &self.replaced,
            ended,
            failure,
            resize: self.resizing.as_ref(),
            host_ips: &self.context.config.ips,
            runtime: &self.context.runtime_name,
            now: Timestamp::now(),
        });
        let phase = status.phase.as_deref().and_then(Phase::parse).unwrap_or(Phase::Pending);
        let news = status != self.status || self.unsettled;
        self.status = status;
        let starting_up =
            phase == Phase::Pending && self.waiting.is_empty() && !ended && self.stage == Stage::Syncing;
        if starting_up && self.began.elapsed() < FIRST_REPORT {
            self.unsettled = true;
            self.wake_in(FIRST_REPORT - self.began.elapsed());
        } else if news && !self.gone {
            self.unsettled = false;
            self.context.reporter.report(self.uid(), self.status.clone());
        }
        if !ended {
            self.probe(&verdicts);
        }
        phase
    }

    fn probe(&self, verdicts: &std::collections::BTreeMap<String, super::super::plan::Verdict>) {
        let ending = self.stage != Stage::Syncing;
        let ip = self.ips().into_iter().next().unwrap_or_default();
        let targets = probe_targets::targets(&spec::spec(&self.pod), &self.observed, verdicts, &ip, ending);
        self.context.probes.set(&self.pod, targets);
        let alive: BTreeSet<&str> = self.observed.alive().map(|instance| instance.id.as_str()).collect();
        self.context.probes.retain(self.uid(), &alive);
    }
}
