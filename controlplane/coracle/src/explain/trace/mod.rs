//! `coracle trace`: what happened to an object, or because of a command, as a waterfall of spans.

// Options.
mod args;
// The answer of the server.
mod answer;
// Questions to the server.
mod ask;
// Servers that record no spans.
mod evidence;
// Kinds of resources.
mod kind;
// Times and names for people.
mod names;
// A row of the waterfall.
mod row;
// From spans to rows.
mod nodes;
// Rows of requests.
mod requests;
// Rows of the scheduler.
mod scheduling;
// Rows of control loops.
mod turns;
// Rows that are alike.
mod shorten;
mod details;
// Pods of a trace.
mod pods;
// Lines above the waterfall.
mod headline;
// How it ended.
mod outcome;
// Lines below the waterfall.
mod summary;
// What the terminal can show.
mod width;
// The short form: stages of the critical path.
mod stages;
// The waterfall.
mod waterfall;
// A trace that goes on.
mod follow;
// What is shown of it.
mod display;
// Answers on standard output.
mod show;
// Whether an object is ready.
mod finish;
// Whether it stays so.
mod restarts;
// Whether all that was written is ready.
mod watch;
// Whether nodes have told everything.
mod delivered;
// Nodes that tell nothing.
mod silent;
// Requests that changed nothing.
mod reads;
// `-- COMMAND`.
mod run;

pub use args::{TraceArgs, plugin_arguments};

use super::connect::{Connected, connect, encode, failure};
use super::resources::{self, Resource};
use answer::Trace;
use args::Task;
use ask::{AskError, Question};
use coracle_why::target;
use follow::followed;
use show::{now, show, show_requests};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use watch::{Now, Verdict, Watch};

/// Spans of nodes are waited for so long, and asked for so often.
const DELIVERY: Duration = Duration::from_secs(5);
const BETWEEN: Duration = Duration::from_millis(250);
/// Nanoseconds after which nothing more is on its way.
const NEW: i128 = 15_000_000_000;
/// Trees that are asked for where no number is given.
const MOST_TREES: usize = 100;

/// Runs the command; its exit code. Errors are printed.
pub fn run(args: &TraceArgs) -> anyhow::Result<i32> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        trace(args).await.unwrap_or_else(|error| {
            eprintln!("coracle trace: {error}");
            error.exit_code()
        })
    });
    runtime.shutdown_background();
    Ok(code)
}

async fn trace(args: &TraceArgs) -> Result<i32, AskError> {
    let task = args.task()?;
    let connected = connect(&args.connect).await?;
    let mut question = Question {
        since: args.since.clone(),
        last: wanted(args),
        compare: args.compare,
        ..Question::default()
    };
    let (kind, name) = match task {
        Task::Command(command) => return run::run(args, &connected, command).await,
        Task::Trace(id) => {
            question.trace = Some(id.to_owned());
            question.last = args.last.unwrap_or(MOST_TREES);
            // Without them nothing is looked at, and nothing waited for.
            let resources = resources::discover(&connected).await.unwrap_or_default();
            return answered(args, &connected, &question, &resources).await;
        }
        Task::Object { kind, name } => (kind, name),
    };
    let resources = resources::discover(&connected).await.map_err(|error| {
        AskError::Away(format!("cannot read the resources of {}: {}", connected.server, failure(&error)))
    })?;
    let resource = resources::find(&resources, kind).ok_or_else(|| {
        let known = resources.iter().map(|resource| resource.kind.clone());
        AskError::Input(target::unknown_kind(kind, known).to_string())
    })?;
    question.resource = resource.key();
    question.name = name.to_owned();
    if resource.namespaced {
        question.namespace.clone_from(&connected.namespace);
    }
    match answered(args, &connected, &question, &resources).await {
        Err(AskError::Missing(_) | AskError::Expired(_)) if args.since.is_some() => {
            Err(before(&connected, question).await)
        }
        Err(AskError::Missing(text)) => {
            let path = format!("{}/{name}", resource.path(&connected.namespace));
            Err(match connected.get(&path).await.map_err(AskError::from) {
                Err(refused @ AskError::Refused(_)) => refused,
                _ => missing(&connected, resource, text).await,
            })
        }
        Err(error @ (AskError::Unsupported | AskError::Expired(_))) => {
            eprintln!("coracle trace: {error}; what follows is from the object and its Events");
            match by_evidence(args, &connected, &resources, resource, name).await {
                Err(AskError::Missing(text)) => Err(missing(&connected, resource, text).await),
                other => other,
            }
        }
        other => other,
    }
}

/// Why there is no object: its namespace does not exist, either, or what the server said.
async fn missing(connected: &Connected, resource: &Resource, text: String) -> AskError {
    let namespace = &connected.namespace;
    let path = format!("/api/v1/namespaces/{}", encode(namespace));
    match connected.get(&path).await {
        Err(kube::Error::Api(status)) if resource.namespaced && status.code == 404 => {
            AskError::Missing(format!("namespace {namespace:?} does not exist, and nothing of it is kept"))
        }
        _ => AskError::Missing(text),
    }
}

/// How many trees are asked for; 0 means the last change.
fn wanted(args: &TraceArgs) -> usize {
    let all = if args.since.is_some() { MOST_TREES } else { 0 };
    match args.last {
        _ if args.follow => 0,
        Some(last) if last > 1 => last,
        Some(_) => 0,
        None => all,
    }
}

/// Asks the server that records spans, and shows its answer.
async fn answered(
    args: &TraceArgs,
    connected: &Connected,
    question: &Question,
    resources: &[Resource],
) -> Result<i32, AskError> {
    if !connected.is_coracle {
        return Err(AskError::Unsupported);
    }
    if args.follow
        && let Some(code) = followed(args, connected, question, resources).await?
    {
        return Ok(code);
    }
    let (asked, mut silent) = (Instant::now(), Vec::new());
    loop {
        let (answer, mut trees) = question.ask(connected).await?;
        let is_done = judge(connected, resources, question, &mut trees).await;
        let untold = if is_done { delivered::missing(&trees) } else { Vec::new() };
        if !untold.is_empty() {
            let is_first = silent.is_empty();
            silent = silent::nodes(connected, &untold).await;
            let may_come = trees.iter().any(is_new) && silent.iter().any(silent::Silent::may_come);
            if may_come && asked.elapsed() < DELIVERY {
                if is_first && std::io::stderr().is_terminal() {
                    eprintln!("coracle trace: waiting for the spans of {}", delivered::pods(&untold));
                }
                tokio::time::sleep(BETWEEN).await;
                continue;
            }
            note_untold(&mut trees, &silent);
        }
        if question.trace.is_some() && trees.len() > 1 {
            return show_requests(args, &answer, trees);
        }
        return show(args, &answer, &trees);
    }
}

/// Looks whether what was asked for is ready, by its state in the API, and notes what is not well. History is only drawn.
async fn judge(
    connected: &Connected,
    resources: &[Resource],
    question: &Question,
    trees: &mut [Trace],
) -> bool {
    if question.trace.is_some() {
        return Watch::default().look(connected, resources, trees).await == Verdict::Ready;
    }
    let is_last_change = question.since.is_none() && question.last == 0;
    let [tree] = trees else { return false };
    if !is_last_change || !matches!(tree.state.as_str(), "ready" | "running" | "failed") {
        return false;
    }
    match watch::trouble(connected, resources, tree).await {
        Now::Done => true,
        Now::Waiting => false,
        Now::Trouble(trouble) => {
            tree.trouble = Some(trouble);
            false
        }
    }
}

/// Says of which pods nothing is told, and why.
fn note_untold(trees: &mut [Trace], silent: &[silent::Silent]) {
    for tree in trees.iter_mut() {
        tree.untold = delivered::missing(std::slice::from_ref(tree)).len();
    }
    if let Some(last) = trees.last_mut() {
        last.notes.extend(silent.iter().map(silent::Silent::note));
    }
}

/// Whether something of it was recorded so lately that more may be on its way.
fn is_new(trace: &Trace) -> bool {
    let last = trace.spans.iter().filter_map(|span| span.end).max().unwrap_or_default();
    now() - trace.began() - i128::from(last) < NEW
}

/// Says that nothing was changed in the time that was asked for, and when something was.
async fn before(connected: &Connected, question: Question) -> AskError {
    let since = question.since.clone().unwrap_or_default();
    let question = Question { since: None, last: 0, ..question };
    let trees = match question.ask(connected).await {
        Ok((_, trees)) => trees,
        Err(error) => return error,
    };
    let ago = trees.first().map(|tree| u64::try_from(now() - tree.began()).unwrap_or_default());
    let last = ago.map(|ago| format!("; the last was {} ago", names::age(ago))).unwrap_or_default();
    AskError::Missing(format!("no change in the last {since}{last}"))
}

async fn by_evidence(
    args: &TraceArgs,
    connected: &Connected,
    resources: &[Resource],
    resource: &Resource,
    name: &str,
) -> Result<i32, AskError> {
    let at = u64::try_from(now()).unwrap_or_default();
    let (answer, trees) = evidence::trace(connected, resources, resource, name, at).await?;
    show(args, &answer, &trees)
}

#[cfg(test)]
mod tests;
