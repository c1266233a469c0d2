//! Recovery after a restart: running sandboxes and containers are adopted, partially created or removed ones are cleaned up.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use coracle_proto::causes;

use super::error::internal;
use super::keeper::{Started, TaskFds};
use super::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use super::{Container, Engine, Sandbox, now, paths, sandbox_files};
use crate::runtime::Result;
use coracle_keeper::exits::{self, Exit};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{AdoptSpec, Call, Holds, LaunchSpec, Task};

/// Changes with every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Engine {
    /// Loads the records of the earlier engine.
    pub(super) fn load_records(&self) -> Result<()> {
        let mut sandboxes: HashMap<String, SandboxRecord> =
            self.inner.sandbox_records.load().map_err(internal("sandbox records"))?;
        let mut containers: HashMap<String, ContainerRecord> =
            self.inner.container_records.load().map_err(internal("container records"))?;
        if has_rebooted(&self.inner.paths.boot(), Path::new(BOOT_ID)) {
            // Start times are relative to the boot: after a reboot another process may have the same pid and start time.
            sandboxes.values_mut().for_each(|record| record.pid = 0);
            containers.values_mut().for_each(|record| record.pid = 0);
        }
        {
            let mut objects = self.inner.objects.lock();
            objects.sandboxes = sandboxes.into_iter().map(|(id, r)| (id, Sandbox::new(r))).collect();
            objects.containers = containers.into_iter().map(|(id, r)| (id, Container::new(r))).collect();
        }
        Ok(())
    }

    pub(super) async fn recover(&self) -> Result<()> {
        let tasks: HashMap<String, Task> =
            self.inner.keeper.list_settled().await?.into_iter().map(|task| (task.id.clone(), task)).collect();
        let logged = exits::read(&coracle_keeper::server::Paths::under(self.inner.paths.run()).exits);
        let logged = logged.map_err(internal("exit log"))?;
        let (sandboxes, containers) = {
            let objects = self.inner.objects.lock();
            let sandboxes: Vec<_> = objects.sandboxes.values().cloned().collect();
            (sandboxes, objects.containers.values().cloned().collect::<Vec<_>>())
        };
        self.forget_unknown_tasks(tasks.values()).await;
        for sandbox in &sandboxes {
            self.recover_sandbox(sandbox, tasks.get(&sandbox.id)).await?;
        }
        for container in &containers {
            self.recover_container(container, tasks.get(&container.id), logged.get(&container.id)).await?;
        }
        self.finish_removals(&sandboxes, &containers).await;
        self.remove_unrecorded_directories();
        self.release_stale_resources().await?;
        // Last: until here records may contain pids of the previous boot.
        if let Err(error) = write_boot_id(&self.inner.paths.boot(), Path::new(BOOT_ID)) {
            tracing::warn!(%error, "boot id not recorded");
        }
        Ok(())
    }

    /// Makes the keeper forget execs of the earlier engine, whose clients are gone.
    async fn forget_unknown_tasks(&self, tasks: impl Iterator<Item = &Task>) {
        let known = self.live_ids();
        for task in tasks.filter(|task| !known.contains(&task.id)) {
            if task.exit.is_none()
                && let Ok(Started { held: TaskFds { pidfd: Some(pidfd), .. }, .. }) =
                    self.inner.keeper.start(Call::Descriptors { id: task.id.clone() }, &[]).await
            {
                let _ = pidfd::kill(&pidfd, libc::SIGKILL);
            }
            self.inner.keeper.forget(&task.id).await;
        }
    }

    async fn recover_sandbox(&self, sandbox: &Arc<Sandbox>, task: Option<&Task>) -> Result<()> {
        if sandbox.phase() != SandboxPhase::Ready {
            return Ok(());
        }
        let record = sandbox.record.lock().clone();
        let held = self.recover_fds(&record.id, record.pid, record.start_time, task, None).await;
        let Some(held) = held else {
            tracing::info!(sandbox = record.id, "pause has exited, sandbox is not ready");
            return self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady);
        };
        *sandbox.held.lock() = held;
        // The mount namespace may differ from the old engine's: pins the namespaces again.
        let options = super::sandbox::namespace_options(&record.config);
        let user = super::sandbox::user_maps(&options).is_some();
        let net = !super::sandbox::is_host(options.network());
        let ipc = !super::sandbox::is_host(options.ipc());
        for (kind, wanted) in [("net", net), ("uts", net), ("ipc", ipc), ("user", user)] {
            if wanted {
                let path = self.inner.paths.namespace(&sandbox.id, kind);
                sandbox_files::pin(record.pid, kind, &path).map_err(internal("pinning a namespace"))?;
            }
        }
        Ok(())
    }

    async fn recover_container(
        &self,
        container: &Arc<Container>,
        task: Option<&Task>,
        logged: Option<&Exit>,
    ) -> Result<()> {
        if !container.is_live() {
            return Ok(());
        }
        let record = container.record.lock().clone();
        let ended = task.and_then(|task| task.exit.as_ref()).or(logged);
        if let Some(exit) = ended {
            self.container_exited(container, exit).await;
            return Ok(());
        }
        let launch = Some(self.launch_spec(&record));
        if let Some(held) = self.recover_fds(&record.id, record.pid, record.start_time, task, launch).await {
            *container.held.lock() = held;
            return self.change_container(container, |record| {
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
        self.container_exited(container, &exit).await;
        Ok(())
    }

    /// Descriptors of a running process: from the keeper, or by its pid if the keeper is new.
    async fn recover_fds(
        &self,
        id: &str,
        pid: i32,
        start_time: u64,
        task: Option<&Task>,
        launch: Option<LaunchSpec>,
    ) -> Option<TaskFds> {
        if let Some(task) = task {
            if task.exit.is_some() {
                return None;
            }
            let started = self.inner.keeper.start(Call::Descriptors { id: id.to_owned() }, &[]).await;
            if let Ok(started) = started {
                return Some(started.held);
            }
        }
        // The keeper died meanwhile; its successor gets the task by `hand_tasks_to_keeper`.
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
        if let Err(error) = self.inner.keeper.call_ok(Call::Adopt(spec), &fds).await {
            tracing::error!(task = id, error = causes::chain(&error), "task not handed to the new keeper");
        }
    }

    /// After a reconnect: hands all running tasks that the keeper does not know to it.
    pub(super) async fn hand_tasks_to_keeper(&self) {
        // Waits for recovery, which finds the running processes.
        let _recovered = self.inner.recovery.lock().await;
        let generation = self.inner.keeper.generation();
        let tasks = match self.inner.keeper.list().await {
            Ok(tasks) => tasks,
            // The next reconnect tries again.
            Err(error) => {
                return tracing::warn!(error = causes::chain(&error), "tasks not handed to the keeper");
            }
        };
        let known: HashSet<String> = tasks.iter().map(|task| task.id.clone()).collect();
        // Execs died with their keeper: fails their waiters.
        self.inner.execs.lock().retain(|id, (asked, _)| *asked >= generation || known.contains(id));
        // The exit may have been reported on the closed connection.
        tasks.into_iter().filter_map(|task| task.exit).for_each(|exit| self.exited(exit));
        let (sandboxes, containers) = {
            let objects = self.inner.objects.lock();
            let sandboxes: Vec<_> = objects.sandboxes.values().cloned().collect();
            (sandboxes, objects.containers.values().cloned().collect::<Vec<_>>())
        };
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
                self.adopt(&container.id, record.pid, Some(self.launch_spec(&record)), &held).await;
                count += 1;
            }
        }
        tracing::info!(processes = count, "tasks handed to the keeper");
    }

    async fn finish_removals(&self, sandboxes: &[Arc<Sandbox>], containers: &[Arc<Container>]) {
        for container in containers {
            if matches!(container.phase(), ContainerPhase::Creating | ContainerPhase::Removing)
                && let Err(error) = self.discard_container(container).await
            {
                tracing::warn!(container = container.id, %error, "removal not finished after restart");
            }
        }
        for sandbox in sandboxes {
            if matches!(sandbox.phase(), SandboxPhase::Creating | SandboxPhase::Removing)
                && let Err(error) = self.discard_sandbox(sandbox).await
            {
                tracing::warn!(sandbox = sandbox.id, %error, "removal not finished after restart");
            }
        }
    }

    /// Removes directories without a record: the record was lost, or deleted just before a crash.
    fn remove_unrecorded_directories(&self) {
        let known = self.live_ids();
        let paths = &self.inner.paths;
        let strangers = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            let names = dirs.filter_map(|e| e.file_name().into_string().ok());
            names.filter(|name| !known.contains(name)).collect()
        };
        let run = paths.run();
        for id in strangers(&run.join("containers")).into_iter().chain(strangers(&paths.container_records()))
        {
            let remove = || {
                self.rootfs(&id).remove()?;
                for dir in super::container::MOUNTS {
                    super::rootfs::unmount_below(&paths.bundle(&id).join(dir))?;
                }
                paths::remove_tree(&paths.bundle(&id))
            };
            let removed = remove();
            report("container directory", &id, removed);
        }
        for id in strangers(&run.join("sandboxes")) {
            report("sandbox directory", &id, sandbox_files::remove(&paths.sandbox(&id)));
        }
        for id in strangers(&paths.runtime_state()) {
            report("runtime state", &id, paths::remove_tree(&paths.runtime_state().join(&id)));
        }
        for entry in fs::read_dir(run.join("x")).into_iter().flatten().flatten() {
            let _ = fs::remove_file(entry.path());
        }
    }

    async fn release_stale_resources(&self) -> Result<()> {
        let known = self.live_ids();
        self.inner.images.retain_holds(|container| known.contains(container))?;
        let live: HashSet<String> = {
            let objects = self.inner.objects.lock();
            let attached = objects.sandboxes.values().filter(|s| s.record.lock().attached);
            attached.map(|s| s.id.clone()).collect()
        };
        if let Err(error) = self.inner.network.gc(|| live).await {
            tracing::warn!(error = causes::chain(&error), "stale network attachments not removed");
        }
        Ok(())
    }
}

/// Whether the machine was rebooted since the recorded boot; false if none is recorded.
fn has_rebooted(known: &Path, current: &Path) -> bool {
    matches!((fs::read(known), fs::read(current)), (Ok(known), Ok(current)) if known != current)
}

/// Records the current boot id, atomically.
fn write_boot_id(known: &Path, current: &Path) -> std::io::Result<()> {
    let boot = fs::read(current)?;
    if fs::read(known).is_ok_and(|known| known == boot) {
        return Ok(());
    }
    let fresh = known.with_extension("new");
    fs::write(&fresh, boot)?;
    fs::rename(fresh, known)
}

fn report(what: &str, id: &str, result: std::io::Result<()>) {
    match result {
        Ok(()) => tracing::info!(what, id, "removed directory without a record"),
        Err(error) => tracing::warn!(what, id, %error, "directory without a record not removed"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn boots_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let (known, current) = (dir.path().join("known"), dir.path().join("current"));
        fs::write(&current, "b\n").unwrap();
        assert!(!has_rebooted(&known, &current), "an engine that wrote none down ran in this boot, perhaps");
        fs::write(&known, "a\n").unwrap();
        assert!(has_rebooted(&known, &current));
        write_boot_id(&known, &current).unwrap();
        assert!(!has_rebooted(&known, &current));
    }
}
