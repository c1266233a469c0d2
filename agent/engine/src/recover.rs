//! Recovery after a restart: running sandboxes and containers are adopted, partially created or removed ones are cleaned up.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use coracle_cli::causes;

use super::bundle::Bundles;
use super::container::Containers;
use super::error::internal;
use super::image::ImageStore;
use super::objects::{Container, Objects, Sandbox};
use super::paths::{self, Paths};
use super::pod_network::PodNetwork;
use super::record::{ContainerPhase, SandboxPhase};
use super::sandbox::Sandboxes;
use super::tasks::Tasks;
use super::{boot, sandbox_files};
use crate::runtime::Result;
use coracle_keeper::exits;
use coracle_keeper::wire::Task;

/// What recovery works on.
pub(crate) struct Recovery<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) sandboxes: &'a Sandboxes,
    pub(crate) containers: &'a Containers,
    pub(crate) tasks: &'a Tasks,
    pub(crate) bundles: &'a Bundles,
    pub(crate) images: &'a ImageStore,
    pub(crate) network: &'a PodNetwork,
    pub(crate) paths: &'a Paths,
    /// Containers whose exit the earlier engine recorded and did not report.
    pub(crate) interrupted: Vec<Arc<Container>>,
}

impl Recovery<'_> {
    /// Recovers everything that is recorded.
    pub(crate) async fn run(&self) -> Result<()> {
        let tasks = self.tasks.keeper.list_settled().await?;
        let tasks: HashMap<String, Task> = tasks.into_iter().map(|task| (task.id.clone(), task)).collect();
        let logged = exits::read(&coracle_keeper::server::Paths::under(self.paths.run()).exits);
        let logged = logged.map_err(internal("exit log"))?;
        let (sandboxes, containers) = (self.objects.sandboxes(), self.objects.containers());
        self.tasks.forget_unknown(tasks.values()).await;
        for sandbox in &sandboxes {
            self.sandboxes.recover(sandbox, tasks.get(&sandbox.id)).await?;
        }
        let mut ended = self.interrupted.clone();
        for container in &containers {
            let (task, logged) = (tasks.get(&container.id), logged.get(&container.id));
            if let Some(exit) = self.containers.recover(container, task, logged).await?
                && self.containers.exits.record_exit(container, &exit)
            {
                ended.push(container.clone());
            }
        }
        self.containers.finish_exits(ended).await;
        self.finish_removals(&sandboxes, &containers).await;
        self.remove_unrecorded_directories();
        self.release_stale_resources().await?;
        // Last: until here records may contain pids of the previous boot.
        if let Err(error) = boot::record(self.paths) {
            tracing::warn!(error = %causes::chain(&error), "boot id not recorded");
        }
        Ok(())
    }

    async fn finish_removals(&self, sandboxes: &[Arc<Sandbox>], containers: &[Arc<Container>]) {
        // At the same time: each may wait for hooks.
        let removals = containers.iter().map(|container| self.finish_removal(container));
        futures::future::join_all(removals).await;
        for sandbox in sandboxes {
            if matches!(sandbox.phase(), SandboxPhase::Creating | SandboxPhase::Removing)
                && let Err(error) = self.sandboxes.discard(sandbox).await
            {
                tracing::warn!(sandbox = sandbox.id, error = %causes::chain(&error), "removal not finished after restart");
            }
        }
    }

    async fn finish_removal(&self, container: &Arc<Container>) {
        if matches!(container.phase(), ContainerPhase::Creating | ContainerPhase::Removing)
            && let Err(error) = self.containers.discard(container).await
        {
            tracing::warn!(container = container.id, error = %causes::chain(&error), "removal not finished after restart");
        }
    }

    /// Removes directories without a record: the record was lost, or deleted just before a crash.
    fn remove_unrecorded_directories(&self) {
        let known = self.objects.live_ids();
        let paths = self.paths;
        let strangers = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let dirs = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            let names = dirs.filter_map(|e| e.file_name().into_string().ok());
            names.filter(|name| !known.contains(name)).collect()
        };
        let run = paths.run();
        for id in strangers(&run.join("containers")).into_iter().chain(strangers(&paths.container_records()))
        {
            report("container directory", &id, self.bundles.remove(&id));
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
        let known = self.objects.live_ids();
        self.images.retain_holds(|container| known.contains(container))?;
        let sandboxes = self.objects.sandboxes();
        let attached = sandboxes.iter().filter(|s| s.record.lock().attached);
        let attached: HashSet<String> = attached.map(|s| s.id.clone()).collect();
        if let Err(error) = self.network.remove_stale(attached).await {
            tracing::warn!(error = %causes::chain(&error), "stale network attachments not removed");
        }
        Ok(())
    }
}

fn report(what: &str, id: &str, result: std::io::Result<()>) {
    match result {
        Ok(()) => tracing::info!(what, id, "removed directory without a record"),
        Err(error) => {
            tracing::warn!(what, id, error = %causes::chain(&error), "directory without a record not removed")
        }
    }
}
