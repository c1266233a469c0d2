//! Telling the API server and the prober what the pod is like now.

use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

use super::super::{spec, watchlist};
use super::{Stage, Worker};
use crate::status::generate::{StatusFacts, generate};
use crate::status::phase::Phase;

/// The first status of a pod that is being started waits this long: most pods run by then, and one report is enough.
const FIRST_REPORT: Duration = Duration::from_millis(250);

impl Worker {
    /// Generates the status, reports it if it is news, and sets the probes to match; the phase.
    pub(super) fn tell(&mut self, ended: bool) -> Phase {
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
        let targets = watchlist::targets(&spec::spec(&self.pod), &self.observed, verdicts, &ip, ending);
        self.context.probes.set(&self.pod, targets);
        let alive: BTreeSet<&str> = self.observed.alive().map(|instance| instance.id.as_str()).collect();
        self.context.probes.keep(self.uid(), &alive);
    }
}
