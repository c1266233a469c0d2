//! The command, as people run it.

use crate::case::Case;
use coracle_proto::time::parse_time;
use coracle_tests::program;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Times of the API are cut to seconds, and clocks of processes differ a little.
const BEFORE: Duration = Duration::from_secs(5);

/// `coracle why` with a kubeconfig.
pub struct Why {
    kubeconfig: PathBuf,
}

/// What it said.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// 0 when nothing is wrong, 1 when something is, 2 and 3 when it could not look.
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// A right answer.
#[derive(Debug, Clone)]
pub struct Named {
    pub cause: String,
    pub severity: String,
}

impl Why {
    pub fn new(kubeconfig: &Path) -> Self {
        Self { kubeconfig: kubeconfig.to_owned() }
    }

    /// The command with these arguments.
    pub fn command(&self, words: &[&str]) -> Command {
        self.coracle(&[&["why"][..], words].concat())
    }

    /// Another command of the program with the same kubeconfig.
    pub fn coracle(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("coracle"));
        command.args(words).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    pub fn run(&self, words: &[&str]) -> Answer {
        Answer::of(&mut self.command(words))
    }

    /// Asks as a case does.
    pub fn about(&self, case: &Case) -> Answer {
        let (line, namespace) = (case.ask.replace("$NS", &case.namespace()), case.namespace());
        let mut words: Vec<&str> = line.split(' ').collect();
        words.extend(["-n", namespace.as_str(), "-o", "json"]);
        self.run(&words)
    }
}

impl Answer {
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("coracle why can be started");
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The findings of `-o json`.
    pub fn findings(&self) -> Vec<Value> {
        let report: Value = serde_json::from_str(&self.out).unwrap_or_default();
        report["findings"].as_array().cloned().unwrap_or_default()
    }

    /// Troubles and objects, in one line.
    pub fn summary(&self) -> String {
        let findings = self.findings();
        if findings.is_empty() {
            return format!("nothing (exit code {}) {}", self.code, self.err.trim());
        }
        let each = findings.iter().map(|finding| {
            format!("{} of {}: {}", text(&finding["trouble"]), reference(finding), text(&finding["cause"]))
        });
        each.collect::<Vec<_>>().join(" | ")
    }

    /// Whether the answer is the right one; otherwise what is wrong with it. Nothing began before `begun`.
    pub fn check(&self, case: &Case, begun: SystemTime) -> Result<Named, String> {
        let findings = self.findings();
        let object = case.object.replace("$NS", &case.namespace());
        let found = findings
            .iter()
            .find(|finding| finding["trouble"] == case.trouble && reference(finding).starts_with(&object));
        let Some(found) = found else { return Err(self.summary()) };
        let others = findings.iter().map(|finding| text(&finding["trouble"]));
        let foreign: Vec<&str> =
            others.filter(|other| *other != case.trouble && !case.also.contains(other)).collect();
        if !foreign.is_empty() {
            return Err(format!("also {}: {}", foreign.join(", "), self.summary()));
        }
        let evidence = found["evidence"].as_array().cloned().unwrap_or_default();
        let facts: Vec<String> =
            evidence.iter().map(|fact| format!("{}: {}", text(&fact["what"]), text(&fact["text"]))).collect();
        let cause = text(&found["cause"]);
        if case.cause.is_empty() || !cause.contains(case.cause) {
            return Err(format!("the cause has no {:?}: {cause}", case.cause));
        }
        if !facts.iter().any(|fact| fact.contains(case.evidence)) {
            return Err(format!("no evidence with {:?}: {cause}\n{}", case.evidence, facts.join("\n")));
        }
        let since = text(&found["since"]);
        let is_given = found["since"].is_string();
        let is_new = || parse_time(since).is_some_and(|time| SystemTime::from(time) >= begun - BEFORE);
        if (case.dated || is_given) && !is_new() {
            return Err(format!("it is said to be so since {since:?}: {cause}"));
        }
        let remedy = text(&found["remedy"]);
        // Nobody knows what helps against what is not explained.
        let has_remedy = case.trouble != "unexplained";
        if remedy.is_empty() == has_remedy || !remedy.contains(case.remedy) {
            return Err(format!("the remedy has no {:?}: {remedy}", case.remedy));
        }
        if self.code != 1 {
            return Err(format!("exit code {}", self.code));
        }
        Ok(Named { cause: cause.to_owned(), severity: text(&found["severity"]).to_owned() })
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The object of a finding as KIND/NAME.
fn reference(finding: &Value) -> String {
    let object = &finding["object"];
    format!("{}/{}", text(&object["kind"]), text(&object["name"]))
}
