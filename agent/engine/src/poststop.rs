//! Hooks that run after the end of a container. An OCI runtime runs them when it deletes the container; here the engine deletes
//! containers, and runs them itself.
//!
//! A hook that has ended, with or without success, is not run again. One that was interrupted by the end of the engine is: the next
//! engine starts when the hook has ended, because hooks inherit the lock of the run directory (`run_lock`).

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use coracle_cli::causes;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use oci_spec::runtime::{Hook, Hooks, State};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

/// How long all hooks of a container may run together, whatever their own timeouts: whoever stops the container waits for them.
const LIMIT: Duration = Duration::from_secs(20);
/// How long to wait for a killed hook. It may hang in the kernel; it is reaped whenever it ends.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// What hooks need of `config.json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    oci_version: String,
    #[serde(default)]
    hooks: Option<Hooks>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("the hook cannot be run")]
    Run(#[from] io::Error),
    #[error("the hook ended with {0}")]
    Failed(ExitStatus),
    #[error("the hook did not end within {} seconds", .0.as_secs())]
    Timeout(Duration),
    #[error("the hooks before it took all of the time for hooks")]
    NoTimeLeft,
}

impl Config {
    fn read(bundle: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(bundle.join("config.json")).ok()?).ok()
    }

    fn poststop(&self) -> &[Hook] {
        self.hooks.as_ref().and_then(|hooks| hooks.poststop().as_deref()).unwrap_or_default()
    }
}

/// How many hooks of a container have ended: the length of a file in its bundle, which grows by a byte with each.
struct Progress(PathBuf);

impl Progress {
    fn of(bundle: &Path) -> Self {
        Self(bundle.join("poststop"))
    }

    fn ended(&self) -> usize {
        fs::metadata(&self.0).ok().and_then(|file| usize::try_from(file.len()).ok()).unwrap_or(0)
    }

    fn add(&self) -> io::Result<()> {
        fs::OpenOptions::new().append(true).create(true).open(&self.0)?.write_all(b".")
    }
}

/// A hook's process, which leads a process group. The group is killed if the hook is dropped before it has ended.
struct Running(Child);

impl Running {
    /// Gives the hook its input and waits for its end.
    async fn end(&mut self, state: &[u8]) -> io::Result<ExitStatus> {
        if let Some(mut stdin) = self.0.stdin.take() {
            // It need not be read.
            let _ = stdin.write_all(state).await;
        }
        self.0.wait().await
    }

    fn kill(&self) {
        // Without an id it has been reaped: what it has left in its group may go on.
        if let Some(pid) = self.0.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a container has hooks.
pub(crate) fn has_hooks(bundle: &Path) -> bool {
    Config::read(bundle).is_some_and(|config| !config.poststop().is_empty())
}

/// Runs the hooks of a container that has ended, except those that have run. A hook that fails is logged, and the next one runs.
pub(crate) async fn run(bundle: &Path, id: &str) {
    run_within(LIMIT, bundle, id).await;
}

async fn run_within(limit: Duration, bundle: &Path, id: &str) {
    let deadline = Instant::now() + limit;
    let Some(config) = Config::read(bundle) else { return };
    let mut state = State::default();
    state
        .set_version(config.oci_version.clone())
        .set_id(id.to_owned())
        .set_bundle(bundle.to_owned())
        .set_annotations(config.annotations.clone());
    let Ok(state) = serde_json::to_vec(&state) else { return };
    let progress = Progress::of(bundle);
    for hook in config.poststop().iter().skip(progress.ended()) {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = run_hook_within(left, hook, bundle, &state).await {
            tracing::warn!(container = id, hook = %hook.path().display(), error = %causes::chain(&error), "poststop hook failed");
        }
        if let Err(error) = progress.add() {
            tracing::warn!(container = id, hook = %hook.path().display(), error = %causes::chain(&error), "end of a poststop hook not recorded, it may run again");
        }
    }
}

async fn run_hook_within(left: Duration, hook: &Hook, bundle: &Path, state: &[u8]) -> Result<(), HookError> {
    if left.is_zero() {
        return Err(HookError::NoTimeLeft);
    }
    let given = hook.timeout().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let limit = given.map_or(left, |given| given.min(left));
    let mut running = start(hook, bundle)?;
    let Ok(status) = tokio::time::timeout(limit, running.end(state)).await else {
        running.kill();
        let _ = tokio::time::timeout(KILL_TIMEOUT, running.0.wait()).await;
        return Err(HookError::Timeout(limit));
    };
    let status = status?;
    if status.success() { Ok(()) } else { Err(HookError::Failed(status)) }
}

fn start(hook: &Hook, bundle: &Path) -> io::Result<Running> {
    let mut command = Command::new(hook.path());
    if let Some((name, args)) = hook.args().as_ref().and_then(|all| all.split_first()) {
        command.arg0(name).args(args);
    }
    let env = hook.env().iter().flatten().filter_map(|variable| variable.split_once('='));
    command.env_clear().envs(env).current_dir(bundle).process_group(0);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(Running(child))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn hooks_get_the_state_and_one_that_fails_is_not_the_last() {
        let bundle = tempfile::tempdir().unwrap();
        let script =
            |script: &str| json!({"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["FILE=state"]});
        let config = json!({"ociVersion": "1.2.0", "annotations": {"a": "b"}, "hooks": {
            "createRuntime": [script("echo wrong > early")],
            "poststop": [{"path": "/no/such"}, script("exit 3"), script("cat > $FILE")]}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        run(bundle.path(), "c1").await;
        let state: Value = serde_json::from_slice(&fs::read(bundle.path().join("state")).unwrap()).unwrap();
        assert_eq!((&state["id"], &state["status"]), (&json!("c1"), &json!("stopped")));
        assert_eq!((&state["annotations"]["a"], &state["bundle"]), (&json!("b"), &json!(bundle.path())));
        assert!(!bundle.path().join("early").exists());
    }

    #[tokio::test]
    async fn a_hook_that_hangs_is_killed() {
        let bundle = tempfile::tempdir().unwrap();
        let config = json!({"ociVersion": "1.2.0", "hooks": {"poststop": [
            {"path": "/bin/sh", "args": ["sh", "-c", "sleep 1000 & echo $! > child; wait"],
             "env": ["PATH=/usr/bin:/bin"], "timeout": 1},
            {"path": "/bin/sh", "args": ["sh", "-c", "echo x > next"]}]}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        run(bundle.path(), "c1").await;
        assert!(bundle.path().join("next").exists());
        let child = fs::read_to_string(bundle.path().join("child")).unwrap();
        let ended = async {
            while !has_ended(child.trim()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LIMIT, ended).await.expect("its child ends with it");
    }

    /// Whether a process is gone, or a zombie that nobody has reaped yet.
    fn has_ended(pid: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
    }

    #[tokio::test]
    async fn a_hook_that_has_ended_is_not_run_again() {
        let bundle = tempfile::tempdir().unwrap();
        let script = |script: &str| json!({"path": "/bin/sh", "args": ["sh", "-c", script]});
        let config = json!({"ociVersion": "1.2.0", "hooks": {"poststop": [
            script("echo first >> log"), script("echo second >> log; exit 1"), script("echo third >> log; exec sleep 1000")]}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        assert!(has_hooks(bundle.path()));
        let log = || fs::read_to_string(bundle.path().join("log")).unwrap_or_default();
        // The engine ends while the third one runs.
        let interrupted = async {
            while log().lines().count() < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::select! {
            () = run(bundle.path(), "c1") => panic!("the third hook has ended"),
            () = interrupted => {}
        }
        run_within(Duration::from_secs(1), bundle.path(), "c1").await;
        assert_eq!(log(), "first\nsecond\nthird\nthird\n");
        run(bundle.path(), "c1").await;
        assert_eq!(log(), "first\nsecond\nthird\nthird\n");
    }

    #[tokio::test]
    async fn the_time_is_for_all_hooks_together() {
        let bundle = tempfile::tempdir().unwrap();
        let config = json!({"ociVersion": "1.2.0", "hooks": {"poststop": [
            {"path": "/bin/sleep", "args": ["sleep", "1000"], "timeout": 1000},
            {"path": "/bin/sh", "args": ["sh", "-c", "echo x > next; exec sleep 1000"]}]}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        let limit = Duration::from_secs(1);
        let ended = tokio::time::timeout(2 * LIMIT, run_within(limit, bundle.path(), "c1")).await;
        assert!(ended.is_ok() && !bundle.path().join("next").exists());
    }
}
