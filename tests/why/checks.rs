//! What follows once the troubles are named: the list of the whole cluster has them, and they go away when they are mended.

use crate::ask::Named;
use crate::case::Case;
use crate::run::{PATIENCE, PAUSE, Run, each, message};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

impl Run {
    /// Runs a part of the suite; a panic in it is a line of the table.
    pub fn part(&self, name: &str, work: impl FnOnce()) {
        let begun = Instant::now();
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
            self.line(name, begun, &message(&*panic), true);
        }
    }

    /// Mends what can be mended, and asks until nothing is named any more.
    pub fn mend(&self, cases: &[(Case, Named)]) {
        let mendable: Vec<&Case> =
            cases.iter().map(|(case, _)| case).filter(|case| !case.mend.is_empty()).collect();
        each(&mendable, |case| {
            let begun = Instant::now();
            let mended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                case.mend.iter().for_each(|line| self.kubectl_in(case, line));
            }));
            if let Err(panic) = mended {
                return self.row(case, begun, &format!("not mended: {}", message(&*panic)), true);
            }
            let mut answer = self.why.about(case);
            while answer.code != 0 && begun.elapsed() < PATIENCE {
                std::thread::sleep(PAUSE.0);
                answer = self.why.about(case);
            }
            self.row(case, begun, &format!("after it is mended: {}", answer.summary()), answer.code != 0);
        });
    }

    /// Every trouble is in the list for the whole cluster.
    pub fn survey(&self, cases: &[(Case, Named)]) {
        let begun = Instant::now();
        let wanted: Vec<&Case> = cases
            .iter()
            .filter(|(case, named)| {
                case.surveyed && named.severity != "notice" && !case.ask.starts_with("--from")
            })
            .map(|(case, _)| case)
            .collect();
        let mut missing: BTreeSet<String> = wanted.iter().map(|case| case.name.clone()).collect();
        let mut took = Duration::ZERO;
        // Containers that are restarted run for a moment.
        while !missing.is_empty() && begun.elapsed() < Duration::from_secs(60) {
            let asked = Instant::now();
            let answer = self.why.run(&["-o", "json"]);
            took = asked.elapsed();
            let findings = answer.findings();
            for case in &wanted {
                if findings.iter().any(|finding| shows(finding, case)) {
                    missing.remove(&case.name);
                }
            }
        }
        let list: Vec<String> = missing.into_iter().collect();
        let text = format!("the list of the whole cluster takes {took:.1?}; missing: {}", list.join(", "));
        self.line("survey", begun, &text, !list.is_empty());
    }
}

/// Whether a finding of the whole cluster is about a case: in its namespace, or an object of the cluster that it names.
fn shows(finding: &Value, case: &Case) -> bool {
    let (object, namespace) = (&finding["object"], case.namespace());
    let name = case.object.split('/').nth(1).unwrap_or_default().replace("$NS", &namespace);
    let own = object["namespace"] == namespace.as_str() || object["name"] == name.as_str();
    finding["trouble"] == case.trouble && own
}
