//! Starts containers.

use std::path::{Path, PathBuf};

use coracle_cli::causes;
use coracle_proto::cri;
use coracle_trace::{Stage, tracked};

use super::Containers;
use crate::keeper::Started;
use crate::objects::Container;
use crate::record::{ContainerPhase, SandboxPhase};
use crate::runtime::{Result, RuntimeError};
use crate::stamp::now;
use coracle_keeper::pidfd;

/// Exit code of a container that could not be started.
const START_FAILED: i32 = 128;

impl Containers {
    /// Runs a created container.
    pub(crate) async fn start(&self, id: &str) -> Result<()> {
        let container = self.objects.container(id)?;
        let _verb = container.verb.lock().await;
        let phase = container.phase();
        let waiting = container.waiting.lock().take();
        if phase != ContainerPhase::Created && waiting.is_none() {
            return Err(RuntimeError::FailedPrecondition(format!(
                "container {id:?} is in {phase:?} state, not created"
            )));
        }
        let sandbox = self.objects.sandbox(&container.sandbox)?;
        if sandbox.phase() != SandboxPhase::Ready {
            return Err(RuntimeError::FailedPrecondition(format!(
                "sandbox container {:?} is not running",
                sandbox.id
            )));
        }
        let launch = async {
            // Recorded in the span: the engine after this one goes on with a container that starts, and has no span for that.
            self.objects.change_container(&container, |record| record.phase = ContainerPhase::Starting)?;
            // Checks again: stopping a sandbox marks it first, then looks for starting containers.
            match sandbox.phase() {
                SandboxPhase::Ready => match waiting {
                    Some(waiting) => self.start_precreated(&container, waiting).await,
                    None => {
                        self.migration.prepare(&sandbox);
                        self.launch(&container).await
                    }
                },
                _ => {
                    let text = format!("sandbox {:?} is being stopped", sandbox.id);
                    Err(RuntimeError::FailedPrecondition(text))
                }
            }
        };
        match tracked(Stage::OciStart, &container.name(), Box::pin(launch)).await {
            Ok(()) => {
                self.events.emit_container(&container, cri::ContainerEventType::ContainerStartedEvent);
                Ok(())
            }
            Err(error) => {
                self.start_failed(&container, &error).await;
                Err(RuntimeError::Internal(format!("failed to start container {:?}: {error}", container.id)))
            }
        }
    }

    pub(super) async fn launch(&self, container: &Container) -> Result<()> {
        let program = self.runtime_of(container)?;
        let record = container.record.lock().clone();
        let started = self.launcher.run(&record, &program).await?;
        self.record_started(container, started, program)
    }

    /// The OCI runtime for a container of this sandbox: that of the sandbox's handler.
    fn runtime_of(&self, container: &Container) -> Result<PathBuf> {
        let handler = self.objects.sandbox(&container.sandbox)?.record.lock().handler.clone();
        let program = self.launcher.oci.program_for(&handler).map(Path::to_owned);
        program.ok_or_else(|| {
            RuntimeError::FailedPrecondition(format!("no runtime for {handler:?} is configured"))
        })
    }

    pub(super) fn record_started(
        &self,
        container: &Container,
        started: Started,
        program: PathBuf,
    ) -> Result<()> {
        *container.held.lock() = started.held;
        self.objects.change_container(container, |record| {
            // It may have exited, and the exit may be recorded already.
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Running;
                record.started_at = now();
            }
            record.pid = started.pid;
            record.start_time = pidfd::start_time(started.pid).unwrap_or(0);
            record.runtime = program;
        })
    }

    async fn start_failed(&self, container: &Container, error: &RuntimeError) {
        self.launcher.paths.remove_transient(&container.id);
        if let Err(error) = self.exits.release_processes(container).await {
            tracing::warn!(container = container.id, error = %causes::chain(&error), "failed start not cleaned up, removing the container will retry");
        }
        let written = self.objects.change_container(container, |record| {
            if record.phase == ContainerPhase::Starting {
                record.phase = ContainerPhase::Exited;
                record.finished_at = now();
                record.exit_code = START_FAILED;
                record.reason = "StartError".into();
                record.message = error.to_string();
            }
        });
        if let Err(error) = written {
            tracing::error!(container = container.id, error = %causes::chain(&error), "failed start not recorded");
        }
        // Otherwise its process has exited, and that exit is reported.
        if !container.is_releasing() {
            container.exited.send_replace(true);
        }
    }
}
