//! Starts containers with the OCI runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_proto::cri;

use crate::keeper;
use crate::record::{ContainerPhase, ContainerRecord, SandboxPhase};
use crate::runtime::{Result, RuntimeError};
use crate::{Container, Engine, now};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{Call, LaunchSpec};

/// An OCI runtime that runs longer is killed.
pub(super) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(120);
/// Exit code of a container that could not be started.
const START_FAILED: i32 = 128;

impl Engine {
    pub(crate) async fn start(&self, id: &str) -> Result<()> {
        let container = self.container(id)?;
        let _verb = container.verb.lock().await;
        let phase = container.phase();
        let waiting = container.waiting.lock().take();
        if phase != ContainerPhase::Created && waiting.is_none() {
            return Err(RuntimeError::FailedPrecondition(format!(
                "container {id:?} is in {phase:?} state, not created"
            )));
        }
        let sandbox = self.sandbox(&container.sandbox)?;
        if sandbox.phase() != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!(
                "sandbox container {:?} is not running",
                sandbox.id
            )));
        }
        self.change_container(&container, |record| record.phase = ContainerPhase::Starting)?;
        // Checks again: stopping a sandbox marks it first, then looks for starting containers.
        let launched = match sandbox.phase() {
            SandboxPhase::Ready => match waiting {
                Some(waiting) => self.start_precreated(&container, waiting).await,
                None => {
                    self.prepare_migration(&sandbox);
                    self.launch(&container).await
                }
            },
            _ => Err(RuntimeError::FailedPrecondition(format!("sandbox {:?} is being stopped", sandbox.id))),
        };
        match launched {
            Ok(()) => {
                self.emit_container(&container, cri::ContainerEventType::ContainerStartedEvent);
                Ok(())
            }
            Err(error) => {
                self.start_failed(&container, &error).await;
                Err(RuntimeError::Internal(format!("failed to start container {:?}: {error}", container.id)))
            }
        }
    }

    pub(super) async fn launch(&self, container: &Arc<Container>) -> Result<()> {
        let record = container.record.lock().clone();
        self.ensure_parent(&record)?;
        let started = self.begin(&container.id, self.launch_spec(&record)).await?;
        let started = started.map_err(|error| match error {
            keeper::Error::Failed(failure) => {
                RuntimeError::Internal(format!("OCI runtime run failed: {}", failure.message))
            }
            other => other.into(),
        })?;
        self.record_started(container, started)
    }

    /// Starts the OCI runtime through the keeper and waits for the result. After an error nothing is running.
    pub(super) async fn begin(
        &self,
        id: &str,
        spec: LaunchSpec,
    ) -> Result<std::result::Result<keeper::Started, keeper::Error>> {
        let call = self.inner.keeper.start(Call::Launch(spec), &[]);
        let Ok(started) = tokio::time::timeout(LAUNCH_TIMEOUT, call).await else {
            self.inner.keeper.abort(id).await?;
            return Err(RuntimeError::DeadlineExceeded("the OCI runtime takes too long".into()));
        };
        if matches!(started, Err(keeper::Error::Gone)) {
            // The runtime dies with its keeper, and a new keeper answers only after that.
            self.inner.keeper.wait_ready().await?;
        }
        self.remove_transient(id);
        Ok(started)
    }

    /// Delegates controllers down to the parent of the container's cgroup; the runtime makes the leaf.
    pub(super) fn ensure_parent(&self, record: &ContainerRecord) -> Result<()> {
        if let Some((parent, _)) = record.cgroup.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
            self.inner.hierarchy.ensure(parent)?;
        }
        Ok(())
    }

    pub(super) fn record_started(&self, container: &Container, started: keeper::Started) -> Result<()> {
        *container.held.lock() = started.held;
        self.change_container(container, |record| {
            // It may have exited, and the exit may be recorded already.
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Running;
                record.started_at = now();
            }
            record.pid = started.pid;
            record.start_time = pidfd::start_time(started.pid).unwrap_or(0);
            record.runtime = self.inner.options.runtime.clone();
        })
    }

    /// Command of the OCI runtime for a container.
    pub(crate) fn launch_spec(&self, record: &ContainerRecord) -> LaunchSpec {
        self.runtime_spec(record, &["run", "--detach"])
    }

    pub(super) fn runtime_spec(&self, record: &ContainerRecord, verb: &[&str]) -> LaunchSpec {
        let dir = self.inner.paths.bundle(&record.id);
        let pid_file = self.inner.paths.transient(&record.id, "pid");
        let runtime_log = self.inner.paths.transient(&record.id, "log");
        let mut argv = self.runtime_command(&self.inner.options.runtime, &runtime_log);
        argv.extend(verb.iter().map(|&word| word.to_owned()));
        argv.extend(["--bundle".to_owned(), dir.display().to_string()]);
        argv.extend(["--pid-file".to_owned(), pid_file.display().to_string(), record.id.clone()]);
        LaunchSpec {
            id: record.id.clone(),
            console_at: argv.len() - 1,
            argv,
            dir,
            pid_file,
            runtime_log,
            log: (!record.log.as_os_str().is_empty()).then(|| record.log.clone()),
            tty: record.config.tty,
            stdin: record.config.stdin,
            stdin_once: record.config.stdin_once,
        }
    }

    /// The OCI runtime that started the container; the configured one may have changed since.
    pub(crate) fn runtime_of(&self, container: &Container) -> PathBuf {
        let started = container.record.lock().runtime.clone();
        if started.as_os_str().is_empty() { self.inner.options.runtime.clone() } else { started }
    }

    /// A runtime with the options every verb needs.
    pub(crate) fn runtime_command(&self, runtime: &Path, log: &Path) -> Vec<String> {
        let state = self.inner.paths.runtime_state();
        let text = |path: &Path| path.display().to_string();
        let mut argv = vec![text(runtime)];
        argv.extend(["--root".to_owned(), text(&state), "--log".to_owned(), text(log)]);
        argv.extend(["--log-format", "json"].map(str::to_owned));
        argv
    }

    pub(crate) fn remove_transient(&self, id: &str) {
        for kind in ["pid", "log", "tty", "json"] {
            let _ = fs::remove_file(self.inner.paths.transient(id, kind));
        }
    }

    async fn start_failed(&self, container: &Arc<Container>, error: &RuntimeError) {
        self.remove_transient(&container.id);
        if let Err(error) = self.release_processes(container).await {
            tracing::warn!(container = container.id, %error, "failed start not cleaned up, removing the container will retry");
        }
        let written = self.change_container(container, |record| {
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Exited;
                record.finished_at = now();
                record.exit_code = START_FAILED;
                record.reason = "StartError".into();
                record.message = error.to_string();
            }
        });
        if let Err(error) = written {
            tracing::error!(container = container.id, %error, "failed start not recorded");
        }
        container.exited.send_replace(true);
    }
}
