//! The page: its files as they are served, and what people see of it in a browser. Chromium for most of it, and root for
//! the cluster of the last step.
#![allow(missing_docs, clippy::unwrap_used)]

// Chromium by its DevTools protocol.
mod browser;
// A server with as many objects as are wanted, and timelines that are always the same.
mod stub;
// A Deployment of the stub.
mod workload;
// `coracle ui`.
mod ui;
// What is served.
mod files;
// Lists, search and keys.
mod lists;
// What made what.
mod map;
// Timelines.
mod timelines;
// Logs.
mod logs;
// The page of a real server.
mod real;
// The page of a cluster that runs pods.
mod pods;

use browser::Browser;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests of this suite, one after the other: some measure time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

type Step = (&'static str, fn(&mut Browser));

fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One browser for all: starting it costs more than any of the steps. Every step is tried; all that failed are named.
#[test]
fn in_a_browser() {
    let _turn = turn();
    let Some(program) = Browser::find() else {
        coracle_tests::skipped("page::in_a_browser", "Chromium is not installed: scripts/deps page");
        return;
    };
    let steps: &[Step] = &[
        ("10,000 objects are there at once", lists::many),
        ("a list is used by keys alone", lists::keys),
        ("search finds what it is asked for", lists::search),
        ("what may not be listed is said", lists::refused),
        ("what is not well comes first", lists::unwell),
        ("causes are those of the proxy", lists::causes),
        ("narrow pages wrap", lists::narrow),
        ("usage of nodes is for people", lists::nodes),
        ("usage of workloads is that of their pods", lists::usage),
        ("the map shows 10,000 objects below what made them", map::opened),
        ("changes say who made them", lists::changes),
        ("light and dark", lists::themes),
        ("everything has a name for screen readers", lists::names),
        ("a timeline is drawn", timelines::drawn),
        ("a timeline begins with its pods", timelines::folded),
        ("a timeline is used by keys alone", timelines::keys),
        ("a timeline is a tree for screen readers", timelines::tree),
        ("a timeline goes on", timelines::follows),
        ("a timeline says what is waited for", timelines::waits),
        ("a timeline says what is not known", timelines::untold),
        ("a placement is a sentence", timelines::placement),
        ("nodes that cannot run a pod are named", timelines::refused),
        ("what is missing is said", timelines::missing),
        ("a log is followed", logs::followed),
        ("a real server, as its administrator", real::administrator),
        ("a real server, and why a pod does not run", real::causes),
        ("a real server, as somebody without rights", real::nobody),
        ("a real server, as somebody with rights in one namespace", real::somebody),
        ("a whole cluster, while its pods come and go", pods::live),
    ];
    let only = std::env::var("CORACLE_ONLY").unwrap_or_default();
    let mut failed = Vec::new();
    let mut browser = Browser::start(&program);
    for (name, step) in steps.iter().filter(|(name, _)| name.contains(&only)) {
        let begun = std::time::Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| step(&mut browser)));
        browser.leave();
        println!("{}: {name} ({:.1?})", if outcome.is_ok() { "ok" } else { "FAILED" }, begun.elapsed());
        if outcome.is_err() {
            failed.push(*name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
