//! Hooks that run after the end of a container. An OCI runtime runs them when it deletes the container; here the engine deletes
//! containers, and runs them itself.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use coracle_cli::causes;
use oci_spec::runtime::{Hook, Hooks, State};
use serde::Deserialize;
use tokio::io::AsyncWriteExt;

/// How long all hooks of a container may run together, whatever their own timeouts: whoever stops the container waits for them.
const LIMIT: Duration = Duration::from_secs(20);

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

/// Runs the hooks of a container that has ended. A hook that fails is logged, and the next one runs.
pub(crate) async fn run(bundle: &Path, id: &str) {
    run_within(LIMIT, bundle, id).await;
}

async fn run_within(limit: Duration, bundle: &Path, id: &str) {
    let deadline = Instant::now() + limit;
    let Ok(text) = fs::read(bundle.join("config.json")) else { return };
    let Ok(config) = serde_json::from_slice::<Config>(&text) else { return };
    let hooks = config.hooks.and_then(|hooks| hooks.poststop().clone()).unwrap_or_default();
    if hooks.is_empty() {
        return;
    }
    let mut state = State::default();
    state
        .set_version(config.oci_version)
        .set_id(id.to_owned())
        .set_bundle(bundle.to_owned())
        .set_annotations(config.annotations);
    let Ok(state) = serde_json::to_vec(&state) else { return };
    for hook in &hooks {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(error) = run_hook_within(left, hook, bundle, &state).await {
            tracing::warn!(container = id, hook = %hook.path().display(), error = %causes::chain(&error), "poststop hook failed");
        }
    }
}

async fn run_hook_within(left: Duration, hook: &Hook, bundle: &Path, state: &[u8]) -> Result<(), HookError> {
    if left.is_zero() {
        return Err(HookError::NoTimeLeft);
    }
    let given = hook.timeout().and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let limit = given.map_or(left, |given| given.min(left));
    let ended = tokio::time::timeout(limit, run_hook(hook, bundle, state)).await;
    ended.unwrap_or(Err(HookError::Timeout(limit)))
}

async fn run_hook(hook: &Hook, bundle: &Path, state: &[u8]) -> Result<(), HookError> {
    let mut command = tokio::process::Command::new(hook.path());
    if let Some((name, args)) = hook.args().as_ref().and_then(|all| all.split_first()) {
        command.arg0(name).args(args);
    }
    let env = hook.env().iter().flatten().filter_map(|variable| variable.split_once('='));
    command.env_clear().envs(env).current_dir(bundle).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It need not be read.
        let _ = stdin.write_all(state).await;
    }
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(HookError::Failed(status)) }
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
            {"path": "/bin/sleep", "args": ["sleep", "1000"], "timeout": 1},
            {"path": "/bin/sh", "args": ["sh", "-c", "echo x > next"]}]}});
        fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        run(bundle.path(), "c1").await;
        assert!(bundle.path().join("next").exists());
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
