//! Recovers containers after a restart of the engine.

use std::sync::Arc;
use std::time::Duration;

use coracle_cli::causes;

use super::{Containers, gate};
use crate::keeper::TaskFds;
use crate::objects::Container;
use crate::offload::blocking;
use crate::poststop;
use crate::record::{ContainerPhase, SandboxPhase};
use crate::runtime::{Result, RuntimeError};
use crate::stamp::now;
use crate::tasks::RecordedProcess;
use coracle_keeper::exits::Exit;
use coracle_keeper::pidfd;
use coracle_keeper::wire::Task;

/// A process that waits at its gate goes on at once.
const GATE_TIMEOUT: Duration = Duration::from_secs(5);

impl Containers {
    /// Adopts a container that runs; the exit of one that ended meanwhile. `logged` is its entry in the exit log.
    pub(crate) async fn recover(
        &self,
        container: &Container,
        task: Option<&Task>,
        logged: Option<&Exit>,
    ) -> Result<Option<Exit>> {
        if !container.is_live() {
            return Ok(None);
        }
        let record = container.record.lock().clone();
        let ended = task.and_then(|task| task.exit.as_ref()).or(logged);
        if let Some(exit) = ended {
            return Ok(Some(exit.clone()));
        }
        let launch = Some(self.launcher.oci.started_spec(&record));
        let process = RecordedProcess { id: &record.id, pid: record.pid, start_time: record.start_time };
        if let Some(held) = self.tasks.descriptors(process, task, launch).await {
            let sandbox = self.objects.sandbox(&container.sandbox);
            let is_ready = sandbox.is_ok_and(|sandbox| sandbox.phase() == SandboxPhase::Ready);
            // Before its process goes on: the exit clears it.
            *container.held.lock() = held.clone();
            if record.phase == ContainerPhase::Starting && is_ready {
                self.let_go(&record.id, &held).await;
            }
            self.objects.change_container(container, |record| {
                if record.phase == ContainerPhase::Starting {
                    record.phase = ContainerPhase::Running;
                    record.started_at = now();
                }
                if let Some(task) = task {
                    record.pid = task.pid;
                    record.start_time = pidfd::start_time(task.pid).unwrap_or(0);
                }
            })?;
            return Ok(None);
        }
        // Its exit status is unknown.
        Ok(Some(Exit { id: record.id, pid: record.pid, code: None, signal: None, at: now() }))
    }

    /// Releases the resources of containers whose exit is recorded, and reports it. Does not wait for those that have hooks: these
    /// count as running until their hooks have ended.
    pub(crate) async fn finish_exits(&self, containers: Vec<Arc<Container>>) {
        let mut finishing = Vec::new();
        for container in containers {
            let exits = self.exits.clone();
            let bundle = self.launcher.paths.bundle(&container.id);
            let finish = async move { exits.finish_exit(&container).await };
            match poststop::has_hooks(&bundle) {
                true => drop(tokio::spawn(finish)),
                false => finishing.push(finish),
            }
        }
        futures::future::join_all(finishing).await;
    }

    /// Starts a container whose process still waits: the engine was killed after it had recorded that it starts the container. No
    /// OCI runtime runs any more, which could be about to do the same.
    async fn let_go(&self, id: &str, held: &TaskFds) {
        let dir = self.launcher.paths.runtime_state().join(id);
        let (Some(left), Some(pidfd)) = (gate::remaining(&dir), held.pidfd.clone()) else { return };
        let pass = blocking(move || {
            let passed = gate::pass(left, &dir, &pidfd, GATE_TIMEOUT);
            passed.map_err(|error| RuntimeError::Internal(format!("OCI runtime start failed: {error}")))
        });
        match pass.await {
            Ok(()) => tracing::info!(container = id, "start of a container finished after a restart"),
            // It may have been let go just before.
            Err(error) => {
                tracing::warn!(container = id, error = %causes::chain(&error), "container may wait to be started");
            }
        }
    }
}
