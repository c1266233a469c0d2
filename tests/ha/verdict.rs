//! All checkers over all that was recorded, as a table, and the violations.

use crate::evidence::{CONTROLLERS, Evidence, SCHEDULER};
use crate::load::Load;
use crate::nemesis::Rampage;
use coracle_tests::ha::checkers::availability::{Outage, outages};
use coracle_tests::ha::checkers::{
    Violation, addresses, availability, bindings, durable, leaders, linearizable, revisions,
    seen::{self, Count},
    watches,
};
use coracle_tests::ha::history::{Operation, Outcome, Sight, Version, Watcher};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// How long a client may wait while nothing is broken: a busy machine is no fault.
const QUIET: Duration = Duration::from_secs(3);
/// How long after a repair waits are still put down to the fault.
const SETTLING: Duration = Duration::from_secs(5);
/// Violations that are printed of each checker.
const SHOWN: usize = 10;

/// Everything that was recorded.
pub struct Recorded {
    pub operations: Vec<Operation>,
    pub watchers: Vec<Watcher>,
    pub at_the_end: BTreeMap<u32, Version>,
    pub rampage: Rampage,
}

impl Recorded {
    pub fn of(load: &Load, at_the_end: BTreeMap<u32, Version>, rampage: Rampage) -> Self {
        let (operations, watchers) = (load.recorder.operations(), load.watchers.lock().unwrap().clone());
        Self { operations, watchers, at_the_end, rampage }
    }

    /// Prints the table; the violations.
    pub fn check(&self, evidence: &Evidence) -> Vec<Violation> {
        let seen = watches::revisions(&self.watchers);
        let outages = outages(&self.operations, &self.rampage.faults, SETTLING);
        let acts = evidence.acts();
        let terms = evidence.terms.lock().unwrap();
        let (placements, holdings) = (evidence.placements.lock().unwrap(), evidence.holdings.lock().unwrap());
        let events: usize = self.watchers.iter().map(|watcher| watcher.sights.len()).sum();
        self.summary(&outages);
        let due = |what: String, found: usize, least: usize| Count { what, found, least };
        let mut counts = vec![
            due("pods on nodes".to_owned(), placements.iter().filter(|one| !one.node.is_empty()).count(), 1),
            due("addresses".to_owned(), holdings.iter().filter(|one| !one.addresses.is_empty()).count(), 1),
        ];
        for election in [CONTROLLERS, SCHEDULER] {
            let (terms, acts) = (
                terms.iter().filter(|term| term.election == election).count(),
                acts.iter().filter(|act| act.election == election).count(),
            );
            println!("{election}: {terms} terms, {acts} writes");
            let disturbed = self.rampage.disturbed.contains(election);
            counts.push(due(format!("terms of {election}"), terms, if disturbed { 2 } else { 1 }));
            counts.push(due(format!("writes of {election}"), acts, 1));
        }
        let checks = [
            (
                "reads and writes are linearizable",
                self.operations.len(),
                linearizable::check(&self.operations, &seen),
            ),
            ("revisions never go back", self.operations.len(), revisions::check(&self.operations)),
            (
                "acknowledged writes are there",
                self.at_the_end.len(),
                durable::check(&self.operations, &self.at_the_end),
            ),
            ("watches saw every revision once", events, watches::check(&self.operations, &self.watchers)),
            ("watchers listed once", self.watchers.len(), watches::listed_once(&self.watchers)),
            ("only leaders acted", acts.len(), leaders::check(&terms, &acts)),
            ("pods have one node", placements.len(), bindings::check(&placements)),
            ("addresses have one owner", holdings.len(), addresses::check(&holdings)),
            (
                "clients were answered in time",
                self.rampage.faults.len(),
                availability::check(&outages, QUIET),
            ),
            ("there was something to check", counts.len(), seen::check(&counts)),
        ];
        let mut all = Vec::new();
        for (name, looked_at, violations) in checks {
            let verdict = if violations.is_empty() { "ok" } else { "VIOLATED" };
            println!("{verdict:8} {name}: {looked_at} checked, {} violations", violations.len());
            violations.iter().take(SHOWN).for_each(|violation| println!("    {violation}"));
            all.extend(violations);
        }
        all
    }

    fn summary(&self, outages: &[Outage]) {
        let count =
            |wanted: fn(&Outcome) -> bool| self.operations.iter().filter(|op| wanted(&op.outcome)).count();
        let connected = self.watchers.iter().flat_map(|watcher| &watcher.sights);
        let connections = connected.filter(|sight| matches!(sight, Sight::Connected { .. }));
        println!(
            "{} operations: {} acknowledged writes, {} reads, {} conflicts, {} unknown, {} not sent; {} connections of {} watchers",
            self.operations.len(),
            count(|outcome| matches!(outcome, Outcome::Written(_) | Outcome::Deleted)),
            count(|outcome| matches!(outcome, Outcome::Found(_))),
            count(|outcome| matches!(outcome, Outcome::Conflict | Outcome::Missing)),
            count(|outcome| *outcome == Outcome::Unknown),
            count(|outcome| *outcome == Outcome::NotSent),
            connections.count(),
            self.watchers.len(),
        );
        let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("load of the machine, of which waits are a consequence too: {}", busy.trim());
        for outage in outages {
            let (name, lasted) = match &outage.fault {
                Some(fault) => (fault.name.as_str(), (fault.ended - fault.begun) as f64 / 1e9),
                None => ("nothing broken", 0.0),
            };
            println!(
                "{name:45} {lasted:6.1} s: longest wait {:5.2} s, {} unanswered",
                outage.worst.as_secs_f64(),
                outage.unanswered
            );
        }
    }

    /// Writes the history to files, one operation or sight per line.
    pub fn keep(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)?;
        let mut text = String::new();
        for operation in &self.operations {
            let _ = writeln!(text, "{operation}");
        }
        std::fs::write(dir.join("operations"), text)?;
        for watcher in &self.watchers {
            let lines: Vec<String> = watcher.sights.iter().map(|sight| format!("{sight:?}")).collect();
            std::fs::write(dir.join(format!("watcher-{}", watcher.name)), lines.join("\n"))?;
        }
        let faults: Vec<String> = self.rampage.faults.iter().map(|fault| format!("{fault:?}")).collect();
        std::fs::write(dir.join("faults"), faults.join("\n"))
    }
}
