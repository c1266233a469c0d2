//! `coracle trace -- COMMAND`: runs a command whose requests are one trace, and waits until what it wrote is ready.

use super::super::connect::{Connected, encode};
use super::super::proxy::{Mode, Proxy};
use super::super::resources;
use super::args::{Output, TraceArgs, duration};
use super::ask::{AskError, Question};
use super::delivered;
use super::display::Display;
use super::kind::kind;
use super::reads;
use super::show::{INTERRUPTED, now, print, show_requests};
use super::silent;
use super::watch::{Verdict, Watch};
use super::width::Screen;
use super::{DELIVERY, MOST_TREES};
use anyhow::Context as _;
use http::HeaderValue;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Between looks at what was written.
const PAUSE: Duration = Duration::from_millis(250);
/// Exit code of a command that cannot be started, as of shells.
const NOT_STARTED: i32 = 127;

/// Runs the command; the exit code is its own, or that of what it made.
pub(super) async fn run(
    args: &TraceArgs,
    connected: &Connected,
    command: &[OsString],
) -> Result<i32, AskError> {
    let [program, arguments @ ..] = command else {
        return Err(AskError::Input("the command is empty".to_owned()));
    };
    let id = uuid::Uuid::new_v4().simple().to_string();
    let began = jiff::Timestamp::now();
    let proxy = start(connected, &id).await.map_err(|error| AskError::Away(format!("{error:#}")))?;
    let directory = PrivateDirectory::new().map_err(|error| AskError::Away(format!("{error:#}")))?;
    let kubeconfig = directory.0.join("kubeconfig");
    let text = kubeconfig_text(&proxy.address(), &connected.namespace);
    coracle_cli::private_files::write(&kubeconfig, text.as_bytes())
        .map_err(|error| AskError::Away(format!("cannot write {}: {error}", kubeconfig.display())))?;
    // An interrupt is for the command.
    let _interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
    let mut child = tokio::process::Command::new(program);
    child.args(arguments).env("KUBECONFIG", &kubeconfig).env_remove("KUBERNETES_MASTER");
    // Standard output is for the answer.
    if matches!(args.output, Some(Output::Json | Output::Otlp)) {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        let stderr = stderr.map_err(|error| AskError::Away(format!("cannot use standard error: {error}")))?;
        child.stdout(stderr);
    }
    let status = match child.status().await {
        Ok(status) => status,
        Err(error) => {
            eprintln!("coracle trace: cannot start {}: {error}", Path::new(program).display());
            return Ok(NOT_STARTED);
        }
    };
    let (used, changes) = (proxy.forwarded() > 0, proxy.changes());
    drop(proxy);
    let code = if !connected.is_coracle {
        eprintln!(
            "coracle trace: the server records no spans; `coracle trace KIND/NAME` shows what objects and Events say"
        );
        0
    } else if used {
        wait(args, connected, id, changes).await?
    } else {
        eprintln!("coracle trace: the command did not use $KUBECONFIG; showing what changed meanwhile");
        meanwhile(connected, &began.to_string()).await?
    };
    Ok(if status.success() { code } else { exit_code(status) })
}

/// As a shell says it: 128 and the number of the signal that ended a command.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

async fn start(connected: &Connected, trace: &str) -> anyhow::Result<Proxy> {
    let span = &uuid::Uuid::new_v4().simple().to_string()[..16];
    let traceparent = HeaderValue::from_str(&format!("00-{trace}-{span}-01"))?;
    let mode = Mode::Command { traceparent };
    Proxy::start(connected.client.clone(), mode, 0).await.context("cannot listen on 127.0.0.1")
}

/// A kubeconfig for the proxy; JSON is YAML, too.
fn kubeconfig_text(server: &str, namespace: &str) -> String {
    let context = json!({"cluster": "trace", "user": "trace", "namespace": namespace});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "trace", "cluster": {"server": server}}],
        "users": [{"name": "trace", "user": {}}],
        "contexts": [{"name": "trace", "context": context}],
        "current-context": "trace",
    });
    format!("{config:#}\n")
}

/// A directory that only this user can read, removed at the end.
struct PrivateDirectory(PathBuf);

impl PrivateDirectory {
    fn new() -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("coracle-trace-{}", uuid::Uuid::new_v4().simple()));
        let created = std::fs::DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until all objects of the trace are ready, one of them has failed, or the time is over; then draws it.
/// `changes`: how many requests of the command changed something.
async fn wait(
    args: &TraceArgs,
    connected: &Connected,
    trace: String,
    changes: usize,
) -> Result<i32, AskError> {
    let question =
        Question { trace: Some(trace), last: MOST_TREES, compare: args.compare, ..Question::default() };
    let deadline = Instant::now() + duration(&args.timeout)?;
    let resources = resources::discover(connected).await?;
    let is_drawing = args.output.is_none_or(|output| output == Output::Wide);
    let mut display = Display::new(Screen::of_stdout(), args.form(), std::io::stdout());
    let mut watch = Watch::default();
    // When everything was ready first.
    let mut ready = None;
    loop {
        let (answer, trees) = match question.ask(connected).await {
            Ok(answered) => answered,
            // Requests that only read leave nothing.
            Err(AskError::Missing(_)) => (json!({"kind": "TraceList", "items": []}), Vec::new()),
            Err(error) => return Err(error),
        };
        let mut verdict = watch.look(connected, &resources, &trees).await;
        let missing = delivered::missing(&trees);
        let lost = changes.saturating_sub(trees.iter().filter(|tree| reads::is_change(tree)).count());
        if verdict == Verdict::Ready {
            let since = *ready.get_or_insert_with(Instant::now);
            if missing.len() + lost > 0 && since.elapsed() < DELIVERY && Instant::now() < deadline {
                verdict = Verdict::Waiting;
            } else {
                // While spans were waited for, a container may have ended again.
                watch.forget();
                verdict = watch.look(connected, &resources, &trees).await;
            }
        }
        let is_over = match &verdict {
            Verdict::Ready | Verdict::Failed(_) => true,
            Verdict::Stuck(_) => !args.keep_going,
            Verdict::Waiting => false,
        };
        if is_over || Instant::now() >= deadline {
            let _ = display.erase();
            // What does not run has not told everything.
            if !missing.is_empty() && verdict == Verdict::Ready {
                for silent in silent::nodes(connected, &missing).await {
                    eprintln!("coracle trace: {}", silent.note());
                }
            }
            if lost > 0 {
                eprintln!("coracle trace: {}", delivered::lost_note(lost, changes));
            }
            let is_cut = lost > 0 && trees.len() >= MOST_TREES;
            show_requests(args, &answer, trees)?;
            let code = watch.conclude(&verdict);
            if is_cut && code == 0 {
                eprintln!("coracle trace: whether the objects of those changes are ready is not known");
                return Ok(1);
            }
            return Ok(code);
        }
        if is_drawing && Screen::of_stdout().terminal {
            let _ = display.show(&reads::split(trees).0, now());
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            _ = tokio::signal::ctrl_c() => return Ok(INTERRUPTED),
        }
    }
}

/// Prints what was changed since a time, by whomever.
async fn meanwhile(connected: &Connected, since: &str) -> Result<i32, AskError> {
    let roots = connected.get(&format!("/coracle/v1/traces?since={}", encode(since))).await?;
    let items = roots.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for item in items {
        let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = kind(field("resource"));
        let namespace = match field("namespace") {
            "" => String::new(),
            namespace => format!(" in {namespace}"),
        };
        let line = format!("{} {kind}/{}{namespace}: {}", field("verb"), field("name"), field("state"));
        text.push_str(&super::width::printable(&line));
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("nothing was changed\n");
    }
    print(&text)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_kubeconfig_names_the_proxy() {
        let text = kubeconfig_text("http://127.0.0.1:4000/0123", "shop");
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let context = config.contexts[0].context.as_ref().unwrap();
        assert_eq!(
            config.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
            Some("http://127.0.0.1:4000/0123")
        );
        assert_eq!(context.namespace.as_deref(), Some("shop"));
        assert_eq!(config.current_context.as_deref(), Some("trace"));
    }

    #[test]
    fn the_directory_is_private_and_removed() {
        let directory = PrivateDirectory::new().unwrap();
        let path = directory.0.clone();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(path.join("kubeconfig"), "x").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn exit_codes_of_commands() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
