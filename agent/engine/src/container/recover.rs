//! Recovers containers after a restart of the engine.

use super::Containers;
use crate::objects::Container;
use crate::record::ContainerPhase;
use crate::runtime::Result;
use crate::stamp::now;
use crate::tasks::RecordedProcess;
use coracle_keeper::exits::Exit;
use coracle_keeper::pidfd;
use coracle_keeper::wire::Task;

impl Containers {
    /// Adopts a container that runs; records the exit of one that ended meanwhile. `logged` is its entry in the exit log.
    pub(crate) async fn recover(
        &self,
        container: &Container,
        task: Option<&Task>,
        logged: Option<&Exit>,
    ) -> Result<()> {
        if !container.is_live() {
            return Ok(());
        }
        let record = container.record.lock().clone();
        let ended = task.and_then(|task| task.exit.as_ref()).or(logged);
        if let Some(exit) = ended {
            self.exits.container_exited(container, exit).await;
            return Ok(());
        }
        let launch = Some(self.launcher.oci.started_spec(&record));
        let process = RecordedProcess { id: &record.id, pid: record.pid, start_time: record.start_time };
        if let Some(held) = self.tasks.descriptors(process, task, launch).await {
            *container.held.lock() = held;
            return self.objects.change_container(container, |record| {
                if record.phase == ContainerPhase::Starting {
                    record.phase = ContainerPhase::Running;
                    record.started_at = now();
                }
                if let Some(task) = task {
                    record.pid = task.pid;
                    record.start_time = pidfd::start_time(task.pid).unwrap_or(0);
                }
            });
        }
        // Its exit status is unknown. Removes what a launch left behind.
        let exit = Exit { id: record.id.clone(), pid: record.pid, code: None, signal: None, at: now() };
        self.exits.container_exited(container, &exit).await;
        Ok(())
    }
}
