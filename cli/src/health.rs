//! Health checks in the format of the `/livez` and `/readyz` pages of Kubernetes.

use crate::supervise::Supervisor;
use parking_lot::RwLock;
use std::sync::Arc;

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Liveness: a program that fails it should be restarted. On `/livez`, `/healthz` and `/readyz`.
    Live,
    /// Readiness: a program that fails it should get no requests. On `/readyz` only.
    Ready,
}

/// Why a check failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CheckError {
    /// A task keeps panicking; the message of the last panic.
    #[error("{0}")]
    Dead(String),
    /// The program is starting.
    #[error("the server is starting")]
    Starting,
    /// The program is shutting down.
    #[error("process is shutting down")]
    Stopping,
    /// The store takes too long.
    #[error("the store does not answer")]
    StoreSilent,
    /// What is checked has failed.
    #[error("{0}")]
    Failed(Arc<dyn std::error::Error + Send + Sync>),
}

/// The outcome of a check, with the reason of a failure.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Name of the check.
    pub name: String,
    /// Why it failed.
    pub result: Result<(), CheckError>,
}

impl Outcome {
    /// An outcome.
    pub fn new(name: impl Into<String>, result: Result<(), CheckError>) -> Self {
        Self { name: name.into(), result }
    }
}

type Ask = Box<dyn Fn() -> Vec<Outcome> + Send + Sync>;

/// The checks of a program; clones are the same ones. Parts register theirs when they are made.
#[derive(Clone, Default)]
pub struct Checks {
    asked: Arc<RwLock<Vec<(Scope, Ask)>>>,
    supervisors: Arc<RwLock<Vec<Supervisor>>>,
}

impl Checks {
    /// Adds a check.
    pub fn add(
        &self,
        name: &'static str,
        scope: Scope,
        check: impl Fn() -> Result<(), CheckError> + Send + Sync + 'static,
    ) {
        self.asked.write().push((scope, Box::new(move || vec![Outcome::new(name, check())])));
    }

    /// Adds the tasks of a supervisor: each dead one fails as `task/<name>`.
    pub fn add_tasks(&self, supervisor: Supervisor) {
        self.supervisors.write().push(supervisor.clone());
        let ask = move || {
            let dead = supervisor.dead();
            if dead.is_empty() {
                return vec![Outcome::new("tasks", Ok(()))];
            }
            let failed = |(task, why): (String, String)| {
                Outcome::new(format!("task/{task}"), Err(CheckError::Dead(why)))
            };
            dead.into_iter().map(failed).collect()
        };
        self.asked.write().push((Scope::Live, Box::new(ask)));
    }

    /// Whether a part of the program has begun to work here.
    pub fn has_begun(&self, part: &str) -> bool {
        self.supervisors.read().iter().any(|supervisor| supervisor.has_begun(part))
    }

    /// Which tasks of a part of the program are dead, and why; `None` when all of them run. The same tasks fail `/livez`.
    pub fn dead(&self, part: &str) -> Option<String> {
        let supervisors = self.supervisors.read();
        let dead = supervisors.iter().flat_map(|supervisor| supervisor.dead_of(part));
        let dead: Vec<String> = dead.map(|(task, why)| format!("task {task}: {why}")).collect();
        (!dead.is_empty()).then(|| dead.join(", "))
    }

    /// Asks all checks of a kind of page: `livez`, `healthz` or `readyz`.
    pub fn ask(&self, page: &str) -> Vec<Outcome> {
        let checks = self.asked.read();
        let asked = checks.iter().filter(|(scope, _)| page == "readyz" || *scope == Scope::Live);
        asked.flat_map(|(_, ask)| ask()).collect()
    }
}

/// A request for a health page.
#[derive(Debug, Clone, Default)]
pub struct HealthRequest<'a> {
    /// `livez`, `healthz` or `readyz`.
    pub page: &'a str,
    /// One check only.
    pub only: Option<&'a str>,
    /// `?verbose`.
    pub verbose: bool,
    /// `?exclude=`, any number of them.
    pub exclude: Vec<&'a str>,
    /// Whether the client may see why checks fail: the page is public, the reasons are not.
    pub trusted: bool,
    /// Additional lines for `?verbose`, which fail nothing.
    pub remarks: Vec<String>,
}

/// Status code and text.
pub fn answer(question: &HealthRequest<'_>, outcomes: &[Outcome]) -> (u16, String) {
    if let Some(only) = question.only {
        return answer_one(question, outcomes.iter().find(|outcome| outcome.name == only));
    }
    let (mut lines, mut failed) = (String::new(), Vec::new());
    for Outcome { name, result } in outcomes {
        match result {
            _ if question.exclude.contains(&name.as_str()) => {
                lines += &format!("[+]{name} excluded: ok\n");
            }
            Ok(()) => lines += &format!("[+]{name} ok\n"),
            Err(why) => {
                let shown = if question.trusted { why.to_string() } else { "reason withheld".to_owned() };
                lines += &format!("[-]{name} failed: {shown}\n");
                failed.push(format!("{name}: {why}"));
            }
        }
    }
    let unknown: Vec<String> = question
        .exclude
        .iter()
        .filter(|name| !outcomes.iter().any(|outcome| outcome.name == **name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(",");
        lines += &format!("warn: some health checks cannot be excluded: no matches for {unknown}\n");
    }
    let page = question.page;
    if !failed.is_empty() {
        tracing::warn!(page, failed = failed.join(", "), "a health check failed");
        return (500, format!("{lines}{page} check failed\n"));
    }
    if !question.verbose {
        return (200, "ok".to_owned());
    }
    question.remarks.iter().for_each(|remark| lines += &format!("{remark}\n"));
    (200, format!("{lines}{page} check passed\n"))
}

fn answer_one(question: &HealthRequest<'_>, outcome: Option<&Outcome>) -> (u16, String) {
    match outcome.map(|outcome| &outcome.result) {
        None => (404, "404 page not found\n".to_owned()),
        Some(Ok(())) => (200, "ok".to_owned()),
        Some(Err(why)) if question.trusted => (500, format!("internal server error: {why}\n")),
        Some(Err(_)) => (500, "internal server error: reason withheld\n".to_owned()),
    }
}

/// The lines about quarantined objects; clients that are not trusted see only their number.
pub fn quarantine_remarks(supervisor: &Supervisor, trusted: bool) -> Vec<String> {
    const SHOWN: usize = 100;
    let all = supervisor.quarantined();
    if !trusted {
        let count = all.len();
        return if count == 0 { Vec::new() } else { vec![format!("[!]quarantine holds {count} objects")] };
    }
    let mut lines: Vec<String> = all
        .iter()
        .take(SHOWN)
        // A panic's text may hold anything; a line stays a line.
        .map(|q| format!("[!]quarantine {} ({}): {}", q.subject, q.task, q.why.escape_debug()))
        .collect();
    if all.len() > SHOWN {
        lines.push(format!("[!]quarantine holds {} more", all.len() - SHOWN));
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::supervise::{RestartBackoff, Subject};
    use std::time::Duration;

    fn ask<'a>(page: &'a str) -> HealthRequest<'a> {
        HealthRequest { page, ..HealthRequest::default() }
    }

    #[test]
    fn pages_are_worded_as_upstreams() {
        let checks = Checks::default();
        checks.add("ping", Scope::Live, || Ok(()));
        checks.add("etcd", Scope::Live, || Err(CheckError::Dead("disk on fire".to_owned())));
        checks.add("informer-sync", Scope::Ready, || Ok(()));
        let outcomes = checks.ask("livez");
        assert_eq!(outcomes.len(), 2);
        let (code, text) = answer(&ask("livez"), &outcomes);
        assert_eq!(
            (code, text.as_str()),
            (500, "[+]ping ok\n[-]etcd failed: reason withheld\nlivez check failed\n")
        );
        let trusted = HealthRequest { trusted: true, ..ask("livez") };
        assert!(answer(&trusted, &outcomes).1.contains("[-]etcd failed: disk on fire\n"));
        let excluded = HealthRequest { exclude: vec!["etcd", "other"], verbose: true, ..ask("readyz") };
        let text = "[+]ping ok\n[+]etcd excluded: ok\n[+]informer-sync ok\n\
            warn: some health checks cannot be excluded: no matches for \"other\"\nreadyz check passed\n";
        assert_eq!(answer(&excluded, &checks.ask("readyz")), (200, text.to_owned()));
        let quiet = HealthRequest { exclude: vec!["etcd"], ..ask("livez") };
        assert_eq!(answer(&quiet, &outcomes), (200, "ok".to_owned()));
        let one = |name| answer(&HealthRequest { only: Some(name), ..ask("livez") }, &outcomes);
        assert_eq!(one("ping"), (200, "ok".to_owned()));
        assert_eq!(one("etcd").0, 500);
        assert!(!one("etcd").1.contains("fire"));
        assert_eq!(one("none").0, 404);
    }

    #[tokio::test]
    async fn a_dead_task_fails_by_name_and_a_bad_object_is_only_named() {
        let backoff =
            RestartBackoff { first: Duration::from_millis(1), most: 2, ..RestartBackoff::default() };
        let supervisor = Supervisor::with_backoff(backoff);
        let checks = Checks::default();
        checks.add_tasks(supervisor.clone());
        let _ =
            supervisor.isolate_sync("scheduler", || Subject::new("pods", "a", "b"), || panic!("odd\nend"));
        let verbose = |trusted| {
            let remarks = quarantine_remarks(&supervisor, trusted);
            answer(&HealthRequest { verbose: true, trusted, remarks, ..ask("readyz") }, &checks.ask("readyz"))
        };
        let (code, text) = verbose(true);
        assert_eq!(code, 200);
        assert!(
            text.starts_with("[+]tasks ok\n[!]quarantine pods a/b (scheduler): odd\\nend (at "),
            "{text}"
        );
        assert!(verbose(false).1.contains("[!]quarantine holds 1 objects\n"));
        let task = supervisor.spawn("informer pods", || async { panic!("never works") });
        for _ in 0..1000 {
            if !supervisor.dead().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (code, text) = verbose(false);
        assert_eq!(
            (code, text.as_str()),
            (500, "[-]task/informer pods failed: reason withheld\nreadyz check failed\n")
        );
        task.abort();
    }

    #[tokio::test]
    async fn a_dead_task_is_told_of_its_part_only() {
        let backoff =
            RestartBackoff { first: Duration::from_millis(1), most: 2, ..RestartBackoff::default() };
        let supervisor = Supervisor::with_backoff(backoff);
        let checks = Checks::default();
        checks.add_tasks(supervisor.clone());
        assert!(!checks.has_begun("scheduler"));
        let well = supervisor.of_part("controllers").spawn("gc", std::future::pending::<()>);
        let bad = supervisor.of_part("scheduler").spawn("binder", || async { panic!("never works") });
        for _ in 0..1000 {
            if !supervisor.dead().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(checks.has_begun("scheduler") && checks.has_begun("controllers") && !checks.has_begun("x"));
        assert!(checks.dead("scheduler").unwrap().starts_with("task binder: never works"));
        assert_eq!(checks.dead("controllers"), None);
        assert_eq!(checks.ask("livez")[0].name, "task/binder", "the page says the same");
        bad.abort();
        let _ = bad.await;
        assert_eq!(checks.dead("scheduler"), None);
        well.abort();
    }
}
