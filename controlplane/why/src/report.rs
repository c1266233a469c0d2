//! Findings for people and for programs.

use crate::cluster::{Answer, Need};
use crate::finding::{Finding, ObjectRef};
use crate::trouble::{Severity, Trouble};
use crate::world::World;
use coracle_proto::time::parse_time;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Other objects with the same cause that are named.
const NAMED: usize = 5;

/// The result of an analysis.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The objects that were asked for; none for the whole cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectRef>,
    /// Causes, the worst first.
    pub findings: Vec<Finding>,
    /// Sentences about what is well, of that what was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub well: Vec<String>,
    /// What was read.
    pub looked_at: Vec<String>,
    /// What could not be read, and why.
    pub not_looked_at: Vec<String>,
    /// What was asked for and is neither explained nor well.
    #[serde(skip)]
    unclear: Vec<ObjectRef>,
    #[serde(skip)]
    now: Timestamp,
    /// Whether any object could be read.
    #[serde(skip)]
    has_read: bool,
    /// Resources that could not be read.
    #[serde(skip)]
    unread: BTreeSet<String>,
}

/// Findings without repetitions: the same cause of several objects is one finding, the worst come first.
fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = merged.iter_mut().find(|other| {
            let place = other.object.namespace == finding.object.namespace
                && other.object.kind == finding.object.kind;
            place && other.trouble == finding.trouble && other.cause == finding.cause
        });
        match same {
            None => merged.push(finding),
            Some(other) => {
                let time = |finding: &Finding| finding.since.as_deref().and_then(parse_time);
                // All of them together are as old as the oldest.
                if time(&finding).is_some_and(|earlier| time(other).is_none_or(|known| earlier < known)) {
                    other.since.clone_from(&finding.since);
                }
                if other.object != finding.object && !other.others.contains(&finding.object) {
                    other.others.push(finding.object);
                }
            }
        }
    }
    merged.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.since.cmp(&b.since)));
    merged
}

impl Report {
    /// The report of an analysis.
    pub fn new(world: &World, objects: Vec<ObjectRef>, findings: Vec<Finding>) -> Self {
        let (mut looked_at, mut not_looked_at) = (Vec::new(), Vec::new());
        for (need, answer) in world.answers() {
            match answer {
                Answer::Refused(why) => not_looked_at.push(refused(need, why)),
                Answer::Failed(why) => not_looked_at.push(format!("{need}: {why}")),
                Answer::Unavailable => {}
                Answer::Items(items, true) => {
                    looked_at.push(format!("{need} (only the first {})", items.len()))
                }
                _ => looked_at.push(need.to_string()),
            }
        }
        let unread = world
            .answers()
            .filter(|(_, answer)| matches!(answer, Answer::Refused(_) | Answer::Failed(_)))
            .filter_map(|(need, _)| need.resource().map(|resource| resource.plural.clone()));
        let has_read = world
            .answers()
            .any(|(_, answer)| matches!(answer, Answer::Items(..) | Answer::Object(_) | Answer::Text(_)));
        Self {
            objects,
            findings: merged(findings),
            well: Vec::new(),
            looked_at,
            not_looked_at,
            unclear: Vec::new(),
            now: world.now(),
            has_read,
            unread: unread.collect(),
        }
    }

    /// Adds what was asked for and has no findings: sentences about what is well, and what is not for no known cause.
    pub(crate) fn without_findings(mut self, well: Vec<String>, unclear: Vec<ObjectRef>) -> Self {
        (self.well, self.unclear) = (well, unclear);
        self
    }

    /// The exit code: whether there is a finding, or nothing could be read.
    pub fn exit_code(&self) -> u8 {
        match (self.findings.is_empty(), self.has_read) {
            (false, _) => 1,
            (true, true) => 0,
            (true, false) => 3,
        }
    }

    /// As JSON.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self)
            .unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string()));
        format!("{text}\n")
    }

    /// One block per finding, for objects that were asked for.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (at, finding) in self.findings.iter().enumerate() {
            if at > 0 {
                out.push('\n');
            }
            self.block(&mut out, finding);
        }
        let nothing = self.findings.is_empty() && self.well.is_empty();
        let unclear = nothing || !self.unclear.is_empty();
        if !self.findings.is_empty() && (unclear || !self.well.is_empty()) {
            out.push('\n');
        }
        for sentence in &self.well {
            let _ = writeln!(out, "{sentence}");
        }
        if unclear {
            let names: Vec<String> = self.unclear.iter().map(ToString::to_string).collect();
            let names = if names.is_empty() { String::new() } else { format!("{}: ", names.join(", ")) };
            let _ = writeln!(out, "{names}no root cause found");
        }
        let unexplained = self.findings.iter().any(|finding| finding.trouble == Trouble::Unexplained);
        if unclear || unexplained {
            lines(&mut out, "looked at", &self.looked_at);
        }
        lines(&mut out, "not looked at", &self.not_looked_at);
        out
    }

    fn block(&self, out: &mut String, finding: &Finding) {
        let _ = writeln!(out, "{}: {}", place(&finding.object), finding.cause);
        let _ = writeln!(out, "  trouble   {}", finding.trouble);
        if let Some(since) = &finding.since {
            let _ = writeln!(out, "  since     {since}{}", self.ago(since));
        }
        for evidence in &finding.evidence {
            let text = evidence.text.replace('\n', "\n              ");
            let _ = writeln!(out, "  evidence  {}: {text}", evidence.what);
        }
        if !finding.remedy.is_empty() {
            let _ = writeln!(out, "  remedy    {}", finding.remedy);
        }
        if !finding.via.is_empty() {
            let steps: Vec<String> =
                finding.via.iter().chain([&finding.object]).map(ToString::to_string).collect();
            let _ = writeln!(out, "  via       {}", steps.join(" -> "));
        }
        if !finding.others.is_empty() {
            let _ = writeln!(out, "  also      {}", others(&finding.others));
        }
    }

    fn ago(&self, since: &str) -> String {
        match parse_time(since).map(|time| self.now.as_second() - time.as_second()) {
            Some(age) if age >= 0 => format!(" ({} ago)", duration(age)),
            _ => String::new(),
        }
    }

    /// One line per finding, for the whole cluster.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if self.findings.is_empty() && !self.has_read {
            let kinds: Vec<&str> = self.unread.iter().map(String::as_str).collect();
            let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
            let _ = writeln!(out, "nothing could be read, so nothing is known{kinds}");
        } else if self.findings.is_empty() {
            out.push_str("nothing is wrong as far as was looked\n");
        } else {
            let rows: Vec<[String; 4]> = self.findings.iter().map(|finding| self.row(finding)).collect();
            let head = ["SEVERITY", "SINCE", "OBJECT", "CAUSE"].map(str::to_owned);
            let all = || [&head].into_iter().chain(&rows);
            let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let (first, second, third) = (width(0), width(1), width(2));
            for [severity, since, object, cause] in all() {
                let _ = writeln!(out, "{severity:first$}  {since:second$}  {object:third$}  {cause}");
            }
        }
        lines(&mut out, "not looked at", &self.not_looked_at);
        out
    }

    fn row(&self, finding: &Finding) -> [String; 4] {
        let severity = match finding.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Critical => "critical",
        };
        let time = finding.since.as_deref().and_then(parse_time);
        let age = time.map_or_else(String::new, |time| duration(self.now.as_second() - time.as_second()));
        let more = match finding.others.len() {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let cause = finding.cause.lines().next().unwrap_or_default();
        [severity.to_owned(), age, place(&finding.object), format!("{cause}{more}")]
    }
}

/// An object with its namespace.
fn place(object: &ObjectRef) -> String {
    if object.namespace.is_empty() { object.to_string() } else { format!("{object} ({})", object.namespace) }
}

fn others(others: &[ObjectRef]) -> String {
    let named: Vec<String> = others.iter().take(NAMED).map(ToString::to_string).collect();
    let more = others.len().saturating_sub(NAMED);
    if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) }
}

fn refused(need: &Need, why: &str) -> String {
    match need {
        Need::List { .. } | Need::Names { .. } => format!("may not list {need}"),
        Need::Object { .. } | Need::Events { .. } | Need::Log { .. } => format!("may not read {need}"),
        _ => format!("{need}: {why}"),
    }
}

fn lines(out: &mut String, title: &str, texts: &[String]) {
    if !texts.is_empty() {
        let _ = writeln!(out, "{title}: {}", texts.join("; "));
    }
}

/// Seconds as kubectl shows ages.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{}s", seconds.max(0)),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
