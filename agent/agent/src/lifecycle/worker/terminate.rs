//! Terminates a pod in order and cleans up.

use coracle_cli::causes;
use coracle_trace::{Stage, stage, tracked, within};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::stage::Step;
use super::task::{RETRY, Worker};
use crate::events::Kind;
use crate::lifecycle::stop::{self, Turn};
use crate::lifecycle::table::Message;
use crate::lifecycle::{instance_files, log_links};
use crate::pod::plan::{self, Kill};
use crate::pod::spec;
use crate::volume::teardown;

/// Delay before stopping a container is retried after a panic.
const AFTER_PANIC: Duration = Duration::from_secs(10);

impl Worker {
    /// Stops a container in a task of its own.
    pub(super) fn kill(&mut self, kill: Kill, grace: Duration, turn: Turn) {
        if self.tasks.stopping.contains_key(&kill.id) {
            return;
        }
        let (parts, pod, mailbox) = (self.parts.clone(), self.pod().clone(), self.tasks.mailbox.clone());
        let (id, done) = (kill.id.clone(), kill.id.clone());
        let ip = self.ips().into_iter().next().unwrap_or_default();
        let task = async move {
            let executor = &parts.executor;
            let stop = stop::stop(&*executor.runtime, &executor.events, &pod, kill, grace, ip, turn);
            if parts.catch_panic(&pod, stop).await.is_err() {
                tokio::time::sleep(AFTER_PANIC).await;
            }
            let _ = mailbox.send(Message::Stopped(done));
        };
        let task = tokio::spawn(within(self.trace.scope(), task));
        self.tasks.stopping.insert(id, task.abort_handle());
    }

    /// Stops all containers, sidecars after those that they serve, then the sandbox.
    pub(super) async fn stop_all(&mut self, deadline: Instant) {
        self.tasks.cancel.cancel();
        let stopping = self.tasks.stopping_ids();
        let left = deadline.saturating_duration_since(Instant::now());
        let alive: BTreeSet<String> = self.observed.get().alive().map(|i| i.name.clone()).collect();
        self.tasks.alive.send_replace(alive.clone());
        for kill in plan::plan_stop(self.observed.get(), &stopping) {
            let after = plan::stops_after(&spec::spec(self.pod()), &kill.name);
            let turn = Turn::after(self.tasks.alive.subscribe(), after);
            self.kill(kill, left, turn);
        }
        if self.tasks.job.is_some() || !self.tasks.stopping.is_empty() || !alive.is_empty() {
            self.report_status(false);
            return;
        }
        for sandbox in &self.observed.get().sandboxes.clone() {
            let stop = self.executor.runtime.stop_pod_sandbox(&sandbox.id);
            if let Err(error) = tracked(Stage::SandboxStop, "", stop).await {
                tracing::warn!(uid = self.uid(), sandbox = sandbox.id, error = %causes::chain(&error), "sandbox not stopped, will retry");
                self.wake_in(RETRY);
                return;
            }
        }
        self.executor.network.forget(self.uid());
        // Reads the final states and exit codes of the stopped containers.
        if !self.observe().await {
            return;
        }
        self.parts.probes.set(self.pod(), vec![]);
        self.parts.probes.retain(self.uid(), &BTreeSet::new());
        self.executor.devices.release(self.uid());
        self.parts.pods.mark_ended(self.uid());
        self.report_status(true);
        self.stage.advance(Step::Stopped);
    }

    /// Nothing runs: releases volumes at once, and everything else when the pod is deleted. Logs and exited containers
    /// of a completed pod stay until then, or until the disk is short.
    pub(super) async fn clean_up(&mut self) {
        if self.stage.step() == Some(Step::Stopped) {
            if !self.release().await {
                self.wake_in(RETRY);
                return;
            }
            self.stage.advance(Step::Released);
        }
        if !self.desired.is_deleting() {
            self.trace.ended(spec::uid(self.desired.pod()));
            if self.status.is_outdated() {
                self.report_status(true);
            }
            if !self.reclaims.is_empty() {
                self.reclaim().await;
            }
            return;
        }
        if self.stage.step() == Some(Step::Removed) {
            return;
        }
        // A pod that had completed before.
        self.trace.ends();
        if !within(self.trace.scope(), self.remove()).await {
            self.wake_in(RETRY);
            return;
        }
        self.stage.advance(Step::Removed);
        tracing::info!(
            pod = spec::name(self.pod()),
            namespace = spec::namespace(self.pod()),
            uid = self.uid(),
            "pod is gone"
        );
        let mailbox = self.tasks.mailbox.clone();
        let done = move || {
            let _ = mailbox.send(Message::Deleted);
        };
        if self.desired.is_gone() || spec::is_static(self.pod()) {
            done();
        } else {
            self.parts.reporter.delete(self.uid(), Box::new(done));
        }
    }

    /// Releases volumes and other resources of the pod; `false` if volumes are left.
    async fn release(&mut self) -> bool {
        let (executor, uid) = (&self.executor, self.uid());
        let released = tracked(Stage::VolumesRemove, "", executor.volumes.release(uid)).await;
        if let Err(error) = &released {
            let message = causes::chain(error).to_string();
            tracing::warn!(uid, error = message, "volumes not removed, will retry");
            // Of an orphaned pod only the uid may be known.
            if !spec::name(self.desired.pod()).is_empty() {
                executor.events.pod(self.desired.pod(), Kind::Warning, "FailedUnMount", message);
            }
        }
        let claims = executor.claims.unprepare(uid).await;
        if let Err(error) = &claims {
            let message = causes::chain(error).to_string();
            tracing::warn!(uid, error = message, "resource claims not unprepared, will retry");
            if !spec::name(self.desired.pod()).is_empty() {
                let reason = "FailedUnprepareDynamicResources";
                executor.events.pod(self.desired.pod(), Kind::Warning, reason, message);
            }
        }
        let clean = released.is_ok() && claims.is_ok();
        if clean {
            executor.images.release(uid);
            executor.resources.release(uid);
            self.parts.pods.mark_stopped(uid);
        }
        clean
    }

    /// Removes containers, sandboxes and logs of a pod that stays; what was reported of it stays, too.
    async fn reclaim(&mut self) {
        let config = self.executor.config.clone();
        let files: Vec<_> = self
            .observed
            .get()
            .instances
            .iter()
            .map(|i| {
                let message = config.termination_log(self.uid(), &i.name, i.attempt);
                (log_links::name(self.pod(), &i.name, &i.id), PathBuf::from(&i.log_path), message)
            })
            .collect();
        // What is left is logged, and removed when the disk is short again, or with the pod.
        if !self.remove_instances().await {
            return;
        }
        tokio::task::block_in_place(|| {
            for (link, log, message) in &files {
                if let Some(links) = &config.log_link_dir {
                    log_links::remove(links, link, log);
                }
                instance_files::remove_log(log);
                instance_files::remove_file(message);
            }
        });
        tracing::info!(
            pod = spec::name(self.pod()),
            namespace = spec::namespace(self.pod()),
            uid = self.uid(),
            "containers of an ended pod removed: disk too full"
        );
        self.observe().await;
    }

    /// Removes containers and sandboxes; `false` if some are left.
    async fn remove_instances(&mut self) -> bool {
        let mut clean = true;
        let (runtime, observed) = (&self.executor.runtime, self.observed.get());
        for sandbox in &observed.sandboxes {
            if let Err(error) = runtime.remove_pod_sandbox(&sandbox.id).await {
                tracing::warn!(uid = self.uid(), sandbox = sandbox.id, error = %causes::chain(&error), "sandbox not removed, will retry");
                clean = false;
            }
        }
        let orphans =
            observed.instances.iter().filter(|i| observed.sandboxes.iter().all(|s| s.id != i.sandbox));
        for instance in orphans {
            if let Err(error) = runtime.remove_container(&instance.id).await {
                tracing::warn!(uid = self.uid(), id = instance.id, error = %causes::chain(&error), "container not removed, will retry");
                clean = false;
            }
        }
        if !clean {
            self.observed.outdate();
        }
        clean
    }

    /// Removes containers, sandboxes, directories and logs.
    async fn remove(&mut self) -> bool {
        if !self.remove_instances().await {
            return false;
        }
        let mut clean = true;
        let removed =
            tracked(Stage::CgroupRemove, "", self.executor.resources.remove_cgroup(self.uid())).await;
        if let Err(error) = removed {
            tracing::warn!(uid = self.uid(), error = %causes::chain(&error), "pod's cgroup not removed, will retry");
            return false;
        }
        self.executor.resources.update_qos_weights();
        let config = &self.executor.config;
        let logs = config.pod_log_dir(spec::namespace(self.pod()), spec::name(self.pod()), self.uid());
        let mut span = stage(Stage::DirectoriesRemove);
        let links = config.log_link_dir.as_ref();
        let unlinked =
            links.map_or(Ok(()), |links| tokio::task::block_in_place(|| log_links::remove_all(links, &logs)));
        if let Err(error) = unlinked {
            // The pod does not wait for them: dangling links are removed when the agent starts.
            tracing::warn!(uid = self.uid(), error = %causes::chain(&error), "links to logs not removed");
        }
        for tree in [config.pod_dir(self.uid()), logs] {
            if let Err(error) = tokio::task::block_in_place(|| teardown::remove_tree(&tree)) {
                tracing::warn!(uid = self.uid(), error = %causes::chain(&error), "directory not removed, will retry");
                span.failed();
                clean = false;
            }
        }
        span.finish();
        if clean {
            self.executor.resources.release_users(self.uid());
        }
        clean
    }
}
