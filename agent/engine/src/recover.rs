//! Taking up what an earlier engine left: what lives goes on, what was half-made or half-removed goes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::error::internal;
use super::keeper::{Held, Started};
use super::record::{ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord};
use super::{Container, Engine, Sandbox, now, paths, sandbox_files};
use crate::runtime::Result;
use coracle_keeper::exits::{self, Exit};
use coracle_keeper::pidfd;
use coracle_keeper::wire::{AdoptSpec, Call, Holds, LaunchSpec, Task};

/// Another one after every start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

impl Engine {
    /// Knows what the earlier engine knew.
    pub(super) fn load_records(&self) -> Result<()> {
        let mut sandboxes: HashMap<String, SandboxRecord> =
            self.inner.sandbox_records.load().map_err(internal("sandbox records"))?;
        let mut containers: HashMap<String, ContainerRecord> =
            self.inner.container_records.load().map_err(internal("container records"))?;
        if is_another_boot(&self.inner.paths.boot(), Path::new(BOOT_ID)) {
            // Start times count from the boot: whoever has such a number now may look like the one that had it then.
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
        self.drop_strangers(tasks.values()).await;
        for sandbox in &sandboxes {
            self.recover_sandbox(sandbox, tasks.get(&sandbox.id)).await?;
        }
        for container in &containers {
            self.recover_container(container, tasks.get(&container.id), logged.get(&container.id)).await?;
        }
        self.finish_removals(&sandboxes, &containers).await;
        self.sweep_directories();
        self.release_leftovers().await?;
        // Not before: until here records name processes of the boot before.
        if let Err(error) = note_boot(&self.inner.paths.boot(), Path::new(BOOT_ID)) {
            tracing::warn!(%error, "this boot is not written down");
        }
        Ok(())
    }

    /// Execs of the old engine have nobody to talk to.
    async fn drop_strangers(&self, tasks: impl Iterator<Item = &Task>) {
        let known = self.live_ids();
        for task in tasks.filter(|task| !known.contains(&task.id)) {
            if task.exit.is_none()
                && let Ok(Started { held: Held { pidfd: Some(pidfd), .. }, .. }) =
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
        let held = self.regain(&record.id, record.pid, record.start_time, task, None).await;
        let Some(held) = held else {
            tracing::info!(sandbox = record.id, "pause is gone, the sandbox is not ready");
            return self.change_sandbox(sandbox, |record| record.phase = SandboxPhase::NotReady);
        };
        *sandbox.held.lock() = held;
        // In another mount namespace than the old engine's, the pins are to be made again.
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
        if let Some(held) = self.regain(&record.id, record.pid, record.start_time, task, launch).await {
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
        // Nobody saw how it ended; whatever a launch left of it goes.
        let exit = Exit { id: record.id.clone(), pid: record.pid, code: None, signal: None, at: now() };
        self.container_exited(container, &exit).await;
        Ok(())
    }

    /// The descriptors of a process that lives: from the keeper, or, when the keeper is a new one, by its pid.
    async fn regain(
        &self,
        id: &str,
        pid: i32,
        start_time: u64,
        task: Option<&Task>,
        launch: Option<LaunchSpec>,
    ) -> Option<Held> {
        if let Some(task) = task {
            if task.exit.is_some() {
                return None;
            }
            let started = self.inner.keeper.start(Call::Descriptors { id: id.to_owned() }, &[]).await;
            if let Ok(started) = started {
                return Some(started.held);
            }
        }
        // A keeper that died since knows the process as its heir will.
        if pid == 0 {
            return None;
        }
        let fd = pidfd::open(pid).ok()?;
        // Checked after the descriptor is open: from here on it is this process or none.
        if pidfd::start_time(pid) != Some(start_time) {
            return None;
        }
        let held = Held { pidfd: Some(Arc::new(fd)), ..Default::default() };
        self.adopt(id, pid, launch, &held).await;
        Some(held)
    }

    async fn adopt(&self, id: &str, pid: i32, launch: Option<LaunchSpec>, held: &Held) {
        let holds = Holds {
            pidfd: held.pidfd.is_some(),
            stdin: held.stdin.is_some(),
            terminal: held.terminal.is_some(),
        };
        let fds: Vec<_> =
            [&held.pidfd, &held.stdin, &held.terminal].into_iter().flatten().map(|fd| &**fd).collect();
        let spec = AdoptSpec { id: id.to_owned(), pid, launch, holds };
        if let Err(error) = self.inner.keeper.order(Call::Adopt(spec), &fds).await {
            tracing::error!(task = id, %error, "handing a process to the new keeper");
        }
    }

    /// The connection is a new one, mostly to a new keeper: it gets everything that lives and it does not know.
    pub(super) async fn hand_over(&self) {
        // Until then nobody knows which processes live.
        let _recovered = self.inner.recovery.lock().await;
        let generation = self.inner.keeper.generation();
        let tasks = match self.inner.keeper.list().await {
            Ok(tasks) => tasks,
            // The next keeper is told.
            Err(error) => return tracing::warn!(%error, "handing over to the keeper"),
        };
        let known: HashSet<String> = tasks.iter().map(|task| task.id.clone()).collect();
        // Whoever waits for the end of an exec that died with its keeper will not hear of it.
        self.inner.execs.lock().retain(|id, (asked, _)| *asked >= generation || known.contains(id));
        // Told on the connection that broke, perhaps.
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
        tracing::info!(processes = count, "handed over to the keeper");
    }

    async fn finish_removals(&self, sandboxes: &[Arc<Sandbox>], containers: &[Arc<Container>]) {
        for container in containers {
            if matches!(container.phase(), ContainerPhase::Creating | ContainerPhase::Removing)
                && let Err(error) = self.discard_container(container).await
            {
                tracing::warn!(container = container.id, %error, "removing what a killed engine left");
            }
        }
        for sandbox in sandboxes {
            if matches!(sandbox.phase(), SandboxPhase::Creating | SandboxPhase::Removing)
                && let Err(error) = self.discard_sandbox(sandbox).await
            {
                tracing::warn!(sandbox = sandbox.id, %error, "removing what a killed engine left");
            }
        }
    }

    /// Directories without a record: of a record that was lost, or removed a moment before the end.
    fn sweep_directories(&self) {
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

    async fn release_leftovers(&self) -> Result<()> {
        let known = self.live_ids();
        self.inner.images.retain_holds(|container| known.contains(container))?;
        let live: HashSet<String> = {
            let objects = self.inner.objects.lock();
            let attached = objects.sandboxes.values().filter(|s| s.record.lock().attached);
            attached.map(|s| s.id.clone()).collect()
        };
        if let Err(error) = self.inner.network.gc(|| live).await {
            tracing::warn!(error = %coracle_proto::causes::chain(&error), "collecting stale network attachments");
        }
        Ok(())
    }
}

/// Whether the machine was started anew since the boot that was written down; where none was, it is taken for this one.
fn is_another_boot(known: &Path, current: &Path) -> bool {
    matches!((fs::read(known), fs::read(current)), (Ok(known), Ok(current)) if known != current)
}

/// Writes this boot down; whoever reads sees the old or the new one.
fn note_boot(known: &Path, current: &Path) -> std::io::Result<()> {
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
        Ok(()) => tracing::info!(what, id, "removed: it has no record"),
        Err(error) => tracing::warn!(what, id, %error, "it has no record, and cannot be removed"),
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
        assert!(
            !is_another_boot(&known, &current),
            "an engine that wrote none down ran in this boot, perhaps"
        );
        fs::write(&known, "a\n").unwrap();
        assert!(is_another_boot(&known, &current));
        note_boot(&known, &current).unwrap();
        assert!(!is_another_boot(&known, &current));
    }
}
