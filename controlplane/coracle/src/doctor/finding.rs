//! What was found, and how it is shown.

use serde::Serialize;
use std::fmt::Write as _;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// In order.
    Ok,
    /// A cluster runs, with less than it could have.
    Limited,
    /// No cluster without it.
    Missing,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The part of the machine.
    pub part: &'static str,
    /// What was looked at.
    pub name: String,
    /// How it is.
    pub outcome: Outcome,
    /// What was seen.
    pub seen: String,
    /// What to do; empty when there is nothing to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
}

impl Finding {
    /// In order.
    pub fn ok(part: &'static str, name: impl Into<String>, seen: impl Into<String>) -> Self {
        Self { part, name: name.into(), outcome: Outcome::Ok, seen: seen.into(), advice: String::new() }
    }

    /// Not in order, but a cluster runs.
    pub fn limited(
        part: &'static str,
        name: impl Into<String>,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (name, seen, advice) = (name.into(), seen.into(), advice.into());
        Self { part, name, outcome: Outcome::Limited, seen, advice }
    }

    /// Needed, and not there.
    pub fn missing(
        part: &'static str,
        name: impl Into<String>,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { outcome: Outcome::Missing, ..Self::limited(part, name, seen, advice) }
    }
}

/// The report: a line per finding, what to do under those that are not in order, and a verdict.
pub fn text(findings: &[Finding], quiet: bool) -> String {
    let mut text = String::new();
    let shown: Vec<&Finding> = findings.iter().filter(|f| !quiet || f.outcome != Outcome::Ok).collect();
    let width = shown.iter().map(|f| f.part.len() + f.name.len() + 1).max().unwrap_or(0);
    for finding in &shown {
        let word = match finding.outcome {
            Outcome::Ok => "OK",
            Outcome::Limited => "limited",
            Outcome::Missing => "MISSING",
        };
        let what = format!("{} {}", finding.part, finding.name);
        let _ = writeln!(text, "{word:<8} {what:<width$}  {}", finding.seen);
        if !finding.advice.is_empty() {
            let _ = writeln!(text, "{:8} → {}", "", finding.advice);
        }
    }
    let count = |outcome| findings.iter().filter(|f| f.outcome == outcome).count();
    let (limited, missing) = (count(Outcome::Limited), count(Outcome::Missing));
    match (missing, limited) {
        (0, 0) if quiet => {}
        (0, 0) => text.push_str("everything is in order\n"),
        (0, limited) => {
            let _ = writeln!(text, "a cluster can run here; {limited} of {} not in full", findings.len());
        }
        (missing, _) => {
            let _ = writeln!(text, "no cluster can run here yet: {missing} of {} missing", findings.len());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_to_do_and_ends_with_a_verdict() {
        let fine = Finding::ok("kernel", "version", "6.1");
        let less = Finding::limited("cgroup", "controllers", "no cpu", "boot with cgroup v2 alone");
        let gone = Finding::missing("program", "runc", "not found", "apt-get install runc");
        let cases: [(&[Finding], bool, &str); 4] = [
            (std::slice::from_ref(&fine), false, "OK       kernel version  6.1\neverything is in order\n"),
            (std::slice::from_ref(&fine), true, ""),
            (
                &[fine.clone(), less.clone()],
                true,
                "limited  cgroup controllers  no cpu\n         → boot with cgroup v2 alone\na cluster can run here; 1 of 2 not in full\n",
            ),
            (
                &[fine.clone(), less, gone],
                false,
                "OK       kernel version      6.1\nlimited  cgroup controllers  no cpu\n         → boot with cgroup v2 alone\nMISSING  program runc        not found\n         → apt-get install runc\nno cluster can run here yet: 1 of 3 missing\n",
            ),
        ];
        for (findings, quiet, want) in cases {
            assert_eq!(text(findings, quiet), want);
        }
    }
}
