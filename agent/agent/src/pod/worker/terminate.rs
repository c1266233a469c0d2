//! Terminates a pod in order and cleans up.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::table::Message;
use super::super::{cgroup, plan, spec};
use super::{RETRY, Stage, Worker};
use crate::volume::teardown;

impl Worker {
    /// Stops containers first, sidecars last, then the sandbox.
    pub(super) async fn stop_all(&mut self, deadline: Instant) {
        self.cancel.cancel();
        let stopping: BTreeSet<String> = self.stopping.keys().cloned().collect();
        let left = deadline.saturating_duration_since(Instant::now());
        for kill in plan::plan_stop(&spec::spec(&self.pod), &self.observed, &stopping) {
            self.kill(kill, left);
        }
        if self.busy || !self.stopping.is_empty() || self.observed.alive().next().is_some() {
            self.report_status(false);
            return;
        }
        for sandbox in self.observed.sandboxes.clone().iter().filter(|sandbox| sandbox.ready) {
            if let Err(error) = self.context.runtime.stop_pod_sandbox(&sandbox.id).await {
                tracing::warn!(uid = self.uid(), sandbox = sandbox.id, %error, "sandbox not stopped, will retry");
                self.wake_in(RETRY);
                return;
            }
        }
        if let Some(policies) = &self.context.policies {
            policies.forget(spec::uid(&self.pod));
        }
        // Reads the final states and exit codes of the stopped containers.
        if !self.observe().await {
            return;
        }
        self.context.probes.set(&self.pod, vec![]);
        self.context.probes.retain(spec::uid(&self.pod), &BTreeSet::new());
        self.report_status(true);
        self.stage = Stage::Terminated;
    }

    /// Nothing runs: releases volumes at once, and everything else when the pod is deleted. Logs and exited containers
    /// of a completed pod stay until then.
    pub(super) async fn clean_up(&mut self) {
        if !self.released && !self.release() {
            self.wake_in(RETRY);
            return;
        }
        if !self.is_deleting() {
            if self.unsettled {
                self.report_status(true);
            }
            return;
        }
        if self.deletion_asked {
            return;
        }
        if !self.remove().await {
            self.wake_in(RETRY);
            return;
        }
        self.deletion_asked = true;
        tracing::info!(
            pod = spec::name(&self.pod),
            namespace = spec::namespace(&self.pod),
            uid = self.uid(),
            "pod is gone"
        );
        let own = self.own.clone();
        let done = move || {
            let _ = own.send(Message::Deleted);
        };
        if self.gone || spec::is_static(&self.pod) {
            done();
        } else {
            self.context.reporter.delete(self.uid(), Box::new(done));
        }
    }

    /// Releases volumes and other resources of the pod.
    fn release(&mut self) -> bool {
        let (config, uid) = (&self.context.config, self.uid());
        let pod_dir = config.pod_dir(uid);
        let trees = [pod_dir.join("volume-subpaths"), pod_dir.join("volumes"), config.memory_dir.join(uid)];
        let mut clean = true;
        for tree in trees {
            if let Err(error) = tokio::task::block_in_place(|| teardown::remove_tree(&tree)) {
                tracing::warn!(uid, %error, "volume not removed, will retry");
                clean = false;
            }
        }
        if clean {
            self.context.objects.release(uid);
            self.context.tokens.release(uid);
            self.context.images.release(uid);
            self.context.release_cpus(uid);
            self.context.pods.mark_stopped(uid);
            self.prepared = None;
            self.released = true;
        }
        clean
    }

    /// Removes containers, sandboxes, directories and logs.
    async fn remove(&mut self) -> bool {
        let mut clean = true;
        let runtime = self.context.runtime.clone();
        for sandbox in self.observed.sandboxes.clone() {
            if let Err(error) = runtime.remove_pod_sandbox(&sandbox.id).await {
                tracing::warn!(uid = self.uid(), sandbox = sandbox.id, %error, "sandbox not removed, will retry");
                clean = false;
            }
        }
        let orphans = self
            .observed
            .instances
            .iter()
            .filter(|i| self.observed.sandboxes.iter().all(|s| s.id != i.sandbox));
        for instance in orphans {
            if let Err(error) = runtime.remove_container(&instance.id).await {
                tracing::warn!(uid = self.uid(), id = instance.id, %error, "container not removed, will retry");
                clean = false;
            }
        }
        if !clean {
            self.stale = true;
            return false;
        }
        if let Some(hierarchy) = &self.context.cgroups
            && let Err(error) =
                cgroup::remove(hierarchy, &self.context.config.cgroup_parent, self.uid()).await
        {
            tracing::warn!(uid = self.uid(), %error, "pod's cgroup not removed, will retry");
            return false;
        }
        self.context.update_qos_weights();
        let config = &self.context.config;
        let logs = config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), self.uid());
        for tree in [config.pod_dir(self.uid()), logs] {
            if let Err(error) = tokio::task::block_in_place(|| teardown::remove_tree(&tree)) {
                tracing::warn!(uid = self.uid(), %error, "directory not removed, will retry");
                clean = false;
            }
        }
        if clean {
            self.context.users.release(self.uid());
        }
        clean
    }
}
