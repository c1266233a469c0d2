//! Lifecycle hooks: `postStart` and `preStop`.

use coracle_cli::causes;
use coracle_proto::version::LIFECYCLE_AGENT;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::probe::http::GetError;
use crate::probe::{check, http};
use coracle_engine::runtime::{Runtime, RuntimeError};

/// Timeout of `postStart`; `preStop` is limited by the grace period.
const POST_START_TIMEOUT: Duration = Duration::from_secs(3600);

/// Letters of an error that an event has.
const EVENT_TEXT: usize = 512;

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The runtime did not run the command.
    #[error(transparent)]
    Exec(#[from] RuntimeError),
    /// The command ran and failed.
    #[error("command '{command}' exited with {code}: {output}")]
    Exit {
        /// With its arguments.
        command: String,
        /// Its exit code.
        code: i32,
        /// What it wrote to stdout, then what it wrote to stderr.
        output: String,
    },
    /// The request was not answered.
    #[error(transparent)]
    Http(#[from] GetError),
    /// The handler has none of the actions that this node knows.
    #[error("invalid handler: no action")]
    NoAction,
    /// It ran for longer than the container has to stop.
    #[error("did not end in the grace period")]
    GracePeriod,
}

impl HookError {
    /// The text of the event about a hook that failed, bounded: the output of a command may be long.
    pub fn event(&self, hook: &str) -> String {
        let why = causes::chain(self);
        let text: String = why.trim().chars().take(EVENT_TEXT).collect();
        format!("{hook} failed: {text}")
    }
}

/// Containers of a pod whose postStart hook has not ended. Clones share them.
#[derive(Clone)]
pub struct RunningHooks {
    names: Arc<Mutex<BTreeSet<String>>>,
    ended: Arc<dyn Fn() + Send + Sync>,
}

impl RunningHooks {
    /// None runs; `ended` is called whenever one has ended.
    pub fn new(ended: impl Fn() + Send + Sync + 'static) -> Self {
        RunningHooks { names: Arc::default(), ended: Arc::new(ended) }
    }

    /// Names of the containers.
    pub fn names(&self) -> BTreeSet<String> {
        self.names.lock().clone()
    }

    /// The hook of a container runs as long as the guard is held.
    pub fn begin(&self, container: &str) -> RunningHook {
        self.names.lock().insert(container.to_owned());
        RunningHook { all: self.clone(), container: container.to_owned() }
    }
}

/// A postStart hook that runs.
pub struct RunningHook {
    all: RunningHooks,
    container: String,
}

impl Drop for RunningHook {
    fn drop(&mut self) {
        self.all.names.lock().remove(&self.container);
        (self.all.ended)();
    }
}

/// Runs a hook to its end.
pub async fn run(
    runtime: &dyn Runtime,
    handler: &LifecycleHandler,
    container: &Container,
    id: &str,
    ip: &str,
) -> Result<(), HookError> {
    if let Some(action) = &handler.exec {
        let command = action.command.clone().unwrap_or_default();
        let text = command.join(" ");
        let answer = runtime.exec_sync(id, command, Duration::ZERO).await?;
        if answer.exit_code != 0 {
            let output = String::from_utf8_lossy(&[answer.stdout, answer.stderr].concat()).into_owned();
            return Err(HookError::Exit { command: text, code: answer.exit_code, output });
        }
        return Ok(());
    }
    if let Some(action) = &handler.http_get {
        let port = check::port(&action.port, container).unwrap_or(80);
        let target = http::Target::new(action, port, ip, LIFECYCLE_AGENT);
        let answer = http::get(&target, POST_START_TIMEOUT).await;
        // Falls back from HTTPS to HTTP, as the kubelet does.
        let answer = match answer {
            Err(_) if target.scheme == "https" => {
                http::get(&http::Target { scheme: "http", ..target }, POST_START_TIMEOUT).await
            }
            other => other,
        };
        answer?;
        return Ok(());
    }
    if let Some(action) = &handler.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
        return Ok(());
    }
    Err(HookError::NoAction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_exit_code_and_the_output() {
        let failed = |output: &str| HookError::Exit {
            command: "sh -c setup".to_owned(),
            code: 4,
            output: output.to_owned(),
        };
        assert_eq!(
            failed("no database\n").event("PostStartHook"),
            "PostStartHook failed: command 'sh -c setup' exited with 4: no database"
        );
        assert!(failed(&"x".repeat(100_000)).event("PreStopHook").len() < 600);
    }
}
