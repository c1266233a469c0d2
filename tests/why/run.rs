//! Produces the troubles of many cases at once, and asks about each until the answer is right or its time is over.

use crate::ask::{Answer, Named, Why};
use crate::case::Case;
use coracle_tests::eventually;
use coracle_tests::kubectl::Kubectl;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// How long a trouble may take to show; some are only named after two minutes.
pub const PATIENCE: Duration = Duration::from_secs(170);
/// How many commands run at a time: the machine is small.
const WORKERS: usize = 4;
/// Pauses between two questions about a case.
pub const PAUSE: (Duration, Duration) = (Duration::from_millis(300), Duration::from_secs(4));

/// A cluster on which troubles are produced.
pub struct Run {
    pub kubectl: Kubectl,
    pub why: Why,
    /// `host:port` of the registry for broken images.
    pub registry: String,
    /// Nothing is produced before.
    begun: SystemTime,
    rows: Mutex<Vec<Row>>,
}

/// A line of the table.
struct Row {
    trouble: String,
    seconds: f64,
    answer: String,
    failed: bool,
}

/// A case that has no right answer yet.
struct Open {
    case: Case,
    begun: Instant,
    due: Instant,
    pause: Duration,
    /// Wrong answers on the way.
    before: BTreeSet<String>,
}

/// Cases between production and answer.
#[derive(Default)]
struct Work {
    /// How many have neither a right answer nor failed.
    left: AtomicUsize,
    waiting: Mutex<Vec<Open>>,
    right: Mutex<Vec<(Case, Named)>>,
}

impl Run {
    pub fn new(kubectl: Kubectl, why: Why, registry: &str) -> Self {
        Self { kubectl, why, registry: registry.to_owned(), begun: SystemTime::now(), rows: Mutex::default() }
    }

    fn filled(&self, text: &str, case: &Case) -> String {
        text.replace("$NS", &case.namespace()).replace("$REGISTRY", &self.registry)
    }

    /// Runs kubectl in the namespace of a case.
    pub fn kubectl_in(&self, case: &Case, line: &str) {
        self.kubectl.run(&format!("-n {} {}", case.namespace(), self.filled(line, case)));
    }

    /// Makes the namespaces, and waits until pods can be created in them.
    fn namespaces(&self, cases: &[Case]) {
        let all: Vec<String> = cases
            .iter()
            .map(|case| {
                let (name, labels) = (case.namespace(), case.labels);
                format!(
                    "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{{labels}}}}}}}"
                )
            })
            .collect();
        self.kubectl.run_with("apply --validate=false -f -", &all.join("\n---\n"));
        let wanted: BTreeSet<String> = cases.iter().map(Case::namespace).collect();
        let line = "get serviceaccounts -A --field-selector metadata.name=default -o jsonpath={.items[*].metadata.namespace}";
        eventually("default service accounts", Duration::from_secs(60), || {
            let found = self.kubectl.try_with(line, "").out;
            let found: BTreeSet<String> = found.split_whitespace().map(str::to_owned).collect();
            wanted.is_subset(&found)
        });
    }

    /// Applies a manifest. Kinds that were defined a moment ago may not be served yet.
    fn apply(&self, case: &Case, manifest: &str) {
        let line = match manifest.contains(", namespace: ") {
            true => "apply --validate=false -f -".to_owned(),
            false => format!("-n {} apply --validate=false -f -", case.namespace()),
        };
        let begun = Instant::now();
        loop {
            let output = self.kubectl.try_with(&line, manifest);
            if output.ok {
                return;
            }
            let early =
                output.err.contains("no matches for kind") && begun.elapsed() < Duration::from_secs(30);
            assert!(early, "{}: {}", case.name, output.err);
            std::thread::sleep(PAUSE.0);
        }
    }

    fn produce(&self, case: &Case) {
        for manifest in &case.manifests {
            self.apply(case, &self.filled(manifest, case));
        }
        for line in &case.commands {
            let succeeds = |line: &str| {
                let line = format!("-n {} {}", case.namespace(), self.filled(line, case));
                self.kubectl.try_with(&line, "").ok
            };
            match line.split_once(' ') {
                Some(("?", line)) => {
                    succeeds(line);
                }
                Some(("!", line)) => eventually(line, Duration::from_secs(60), || !succeeds(line)),
                _ => self.kubectl_in(case, line),
            }
        }
    }

    /// Produces the troubles and asks about them, at the same time; what goes wrong is in the table.
    pub fn all(&self, cases: &[Case]) -> Vec<(Case, Named)> {
        if cases.is_empty() {
            return Vec::new();
        }
        self.namespaces(cases);
        let work = Work { left: AtomicUsize::new(cases.len()), ..Work::default() };
        std::thread::scope(|scope| {
            for _ in 0..WORKERS / 2 {
                scope.spawn(|| self.ask_all(&work));
            }
            each(cases, |case| {
                let begun = Instant::now();
                let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.produce(case)));
                match made {
                    Ok(()) => work.waiting.lock().unwrap().push(Open::new(case)),
                    Err(panic) => {
                        self.row(case, begun, &format!("not produced: {}", message(&*panic)), true);
                        work.left.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        });
        work.right.into_inner().unwrap()
    }

    fn ask_all(&self, work: &Work) {
        while work.left.load(Ordering::Relaxed) > 0 {
            match next(&work.waiting) {
                Some(open) => self.ask(open, work),
                None => std::thread::sleep(PAUSE.0),
            }
        }
    }

    /// Asks once; a case without the right answer waits again, unless its time is over.
    fn ask(&self, mut open: Open, work: &Work) {
        let answer = self.why.about(&open.case);
        match answer.check(&open.case, self.begun) {
            Ok(named) => {
                let before: Vec<&str> = open.before.iter().map(String::as_str).collect();
                let note = if before.is_empty() {
                    String::new()
                } else {
                    format!(" (before: {})", before.join(", "))
                };
                self.row(&open.case, open.begun, &format!("{}{note}", named.cause), false);
                work.right.lock().unwrap().push((open.case, named));
                work.left.fetch_sub(1, Ordering::Relaxed);
            }
            Err(wrong) if open.begun.elapsed() > PATIENCE => {
                self.row(&open.case, open.begun, &wrong, true);
                work.left.fetch_sub(1, Ordering::Relaxed);
            }
            Err(_) => {
                open.before.extend(foreign(&open.case, &answer));
                open.due = Instant::now() + open.pause;
                open.pause = (open.pause * 2).min(PAUSE.1);
                work.waiting.lock().unwrap().push(open);
            }
        }
    }

    /// Asks until the answer to one case, whose trouble somebody else produces, is right.
    pub fn one(&self, case: &Case, within: Duration) {
        let begun = Instant::now();
        loop {
            match self.why.about(case).check(case, self.begun) {
                Ok(named) => return self.row(case, begun, &named.cause, false),
                Err(wrong) if begun.elapsed() > within => return self.row(case, begun, &wrong, true),
                Err(_) => std::thread::sleep(PAUSE.0),
            }
        }
    }

    /// Adds the line of a case to the table.
    pub fn row(&self, case: &Case, begun: Instant, answer: &str, failed: bool) {
        let trouble = match case.name == case.trouble {
            true => case.name.clone(),
            false => format!("{} ({})", case.trouble, case.name),
        };
        self.line(&trouble, begun, answer, failed);
    }

    /// Adds a line to the table.
    pub fn line(&self, trouble: &str, begun: Instant, answer: &str, failed: bool) {
        let answer = answer.replace('\n', " / ");
        let row = Row { trouble: trouble.to_owned(), seconds: begun.elapsed().as_secs_f64(), answer, failed };
        self.rows.lock().unwrap().push(row);
    }

    /// Prints the table, and fails when something in it is wrong.
    pub fn finish(self) {
        let rows = self.rows.into_inner().unwrap();
        let mut table = String::new();
        for row in &rows {
            let mark = if row.failed { "WRONG " } else { "" };
            let _ = writeln!(table, "{mark}{}: {:.1} s, {}", row.trouble, row.seconds, row.answer);
        }
        // Unlike println!, this is shown for tests that pass.
        let _ = std::io::stderr().write_all(table.as_bytes());
        let wrong: Vec<&str> = rows.iter().filter(|row| row.failed).map(|row| row.trouble.as_str()).collect();
        assert!(wrong.is_empty(), "{} of {} are wrong: {}", wrong.len(), rows.len(), wrong.join(", "));
    }
}

impl Open {
    fn new(case: &Case) -> Self {
        let (case, begun) = (case.clone(), Instant::now());
        Self { case, begun, due: begun, pause: PAUSE.0, before: BTreeSet::new() }
    }
}

/// The case that is due first, once it is; nothing when there is none.
fn next(waiting: &Mutex<Vec<Open>>) -> Option<Open> {
    let open = {
        let mut all = waiting.lock().unwrap();
        let first = (0..all.len()).min_by_key(|at| all[*at].due)?;
        all.swap_remove(first)
    };
    std::thread::sleep(open.due.saturating_duration_since(Instant::now()));
    Some(open)
}

/// Troubles of an answer that the case does not expect.
fn foreign(case: &Case, answer: &Answer) -> Vec<String> {
    let findings = answer.findings();
    let troubles = findings.iter().filter_map(|finding| finding["trouble"].as_str());
    troubles.filter(|other| *other != case.trouble && !case.also.contains(other)).map(str::to_owned).collect()
}

/// Does some work for each item, a few at a time.
pub fn each<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let at = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(at.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// The text of a panic.
pub fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
