//! Tasks of the keeper: its events, descriptors of running processes, and their hand-over to a new keeper.

use std::collections::HashSet;
use std::sync::Arc;

use coracle_cli::causes;
use tokio::sync::mpsc::UnboundedReceiver;

use super::exec_waiters::ExecWaiters;
use super::exit::Exits;
use super::keeper::{Keeper, KeeperEvent, Started, TaskFds};
use super::objects::Objects;
use super::oci_runtime::OciRuntime;
use super::record::{ContainerPhase, SandboxPhase};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{AdoptSpec, Call, Holds, LaunchSpec, Task};

/// The keeper's tasks.
pub(crate) struct Tasks {
    pub(crate) objects: Arc<Objects>,
    pub(crate) keeper: Keeper,
    pub(crate) exits: Arc<Exits>,
    pub(crate) waiters: Arc<ExecWaiters>,
    pub(crate) oci: Arc<OciRuntime>,
    /// Held during recovery.
    pub(crate) recovery: tokio::sync::Mutex<()>,
}

/// A process that an earlier engine recorded.
pub(crate) struct RecordedProcess<'a> {
    pub(crate) id: &'a str,
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
}

impl Tasks {
    /// Processes events of the keeper for as long as there is one.
    pub(crate) async fn listen(self: &Arc<Self>, notices: &mut UnboundedReceiver<KeeperEvent>) {
        while let Some(notice) = notices.recv().await {
            match notice {
                KeeperEvent::Exited(exit) => self.exits.task_exited(exit),
                KeeperEvent::StdinClosed(id) => {
                    if let Ok(container) = self.objects.container(&id) {
                        container.held.lock().stdin = None;
                    }
                }
                KeeperEvent::Replaced => {
                    // In a task of its own, because exits must be processed meanwhile.
                    let tasks = self.clone();
                    tokio::spawn(async move { tasks.hand_to_keeper().await });
                }
            }
        }
    }

    /// Makes the keeper forget execs of the earlier engine, whose clients are gone.
    pub(crate) async fn forget_unknown(&self, tasks: impl Iterator<Item = &Task>) {
        let known = self.objects.live_ids();
        for task in tasks.filter(|task| !known.contains(&task.id)) {
            if task.exit.is_none()
                && let Ok(Started { held: TaskFds { pidfd: Some(pidfd), .. }, .. }) =
                    self.keeper.start(Call::Descriptors { id: task.id.clone() }, &[]).await
            {
                let _ = pidfd::kill(&pidfd, libc::SIGKILL);
            }
            self.keeper.forget(&task.id).await;
        }
    }

    /// Descriptors of a running process: from the keeper, or by its pid if the keeper is new. `launch` is the command of a
    /// container.
    pub(crate) async fn descriptors(
        &self,
        process: RecordedProcess<'_>,
        task: Option<&Task>,
        launch: Option<LaunchSpec>,
    ) -> Option<TaskFds> {
        let RecordedProcess { id, pid, start_time } = process;
        if let Some(task) = task {
            if task.exit.is_some() {
                return None;
            }
            let started = self.keeper.start(Call::Descriptors { id: id.to_owned() }, &[]).await;
            if let Ok(started) = started {
                return Some(started.held);
            }
        }
        // The keeper died meanwhile; its successor gets the task by `hand_to_keeper`.
        if pid == 0 {
            return None;
        }
        let fd = pidfd::open(pid).ok()?;
        // Checked after the pidfd is open: it refers to this process, even if the pid is reused.
        if pidfd::start_time(pid) != Some(start_time) {
            return None;
        }
        let held = TaskFds { pidfd: Some(Arc::new(fd)), ..Default::default() };
        self.adopt(id, pid, launch, &held).await;
        Some(held)
    }

    async fn adopt(&self, id: &str, pid: i32, launch: Option<LaunchSpec>, held: &TaskFds) {
        let holds = Holds {
            pidfd: held.pidfd.is_some(),
            stdin: held.stdin.is_some(),
            terminal: held.terminal.is_some(),
        };
        let fds: Vec<_> =
            [&held.pidfd, &held.stdin, &held.terminal].into_iter().flatten().map(|fd| &**fd).collect();
        let spec = AdoptSpec { id: id.to_owned(), pid, launch, holds };
        if let Err(error) = self.keeper.call_ok(Call::Adopt(spec), &fds).await {
            tracing::error!(task = id, error = %causes::chain(&error), "task not handed to the new keeper");
        }
    }

    /// After a reconnect: hands all running tasks that the keeper does not know to it.
    pub(crate) async fn hand_to_keeper(&self) {
        // Waits for recovery, which finds the running processes.
        let _recovered = self.recovery.lock().await;
        let generation = self.keeper.generation();
        let tasks = match self.keeper.list().await {
            Ok(tasks) => tasks,
            // The next reconnect tries again.
            Err(error) => {
                return tracing::warn!(error = %causes::chain(&error), "tasks not handed to the keeper");
            }
        };
        let known: HashSet<String> = tasks.iter().map(|task| task.id.clone()).collect();
        // Execs died with their keeper: fails their waiters.
        self.waiters.fail_lost(generation, &known);
        // The exit may have been reported on the closed connection.
        tasks.into_iter().filter_map(|task| task.exit).for_each(|exit| self.exits.task_exited(exit));
        let (sandboxes, containers) = (self.objects.sandboxes(), self.objects.containers());
        let mut count = 0;
        for sandbox in sandboxes.iter().filter(|s| !known.contains(&s.id)) {
            if sandbox.phase() == SandboxPhase::Ready {
                let (pid, held) = (sandbox.record.lock().pid, sandbox.held.lock().clone());
                self.adopt(&sandbox.id, pid, None, &held).await;
                count += 1;
            }
        }
        for container in containers.iter().filter(|c| !known.contains(&c.id)) {
            if container.phase() == ContainerPhase::Running {
                let record = container.record.lock().clone();
                let held = container.held.lock().clone();
                self.adopt(&container.id, record.pid, Some(self.oci.started_spec(&record)), &held).await;
                count += 1;
            }
        }
        self.keeper.handed(generation);
        tracing::info!(processes = count, "tasks handed to the keeper");
    }
}
