//! In-place resize: the pod is given what its spec asks for, and its containers and its own limits follow.

use coracle_cli::causes;
use coracle_engine::runtime::RuntimeError;
use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::containers::Applied;
use super::resize_event;
use super::task::Worker;
use crate::events::Kind;
use crate::lifecycle::stop::{self, Turn};
use crate::pod::admit::{self, RoomError};
use crate::pod::allocation;
use crate::pod::cgroup::PodCgroupError;
use crate::pod::observed::{Instance, State};
use crate::pod::plan::{Cause, Kill};
use crate::pod::pod_limits::PodWrites;
use crate::pod::resources::{self, NodeMemory};
use crate::pod::spec::{self, Qos, Role};
use crate::status::facts::Resize;

/// One container that has other resources than its spec says.
struct Change {
    role: Role,
    container: Container,
    instance: Instance,
    wanted: cri::LinuxContainerResources,
    has: Applied,
    target: Applied,
}

impl Change {
    fn cpu(&self) -> bool {
        self.has.shares != self.target.shares || self.has.quota != self.target.quota
    }

    fn memory(&self) -> bool {
        self.has.memory != self.target.memory
    }

    /// Whether its memory limit becomes less while it runs.
    fn lowers_memory(&self) -> bool {
        let lower = self.has.memory == 0 || self.target.memory < self.has.memory;
        self.target.memory != 0 && lower && !self.restarts()
    }

    /// Whether the container must be restarted for it. Init containers that run once are not run again.
    fn restarts(&self) -> bool {
        if self.role == Role::Init {
            return false;
        }
        let policy = |resource: &str| {
            let policies = self.container.resize_policy.iter().flatten();
            policies
                .into_iter()
                .any(|policy| policy.resource_name == resource && policy.restart_policy == "RestartContainer")
        };
        (self.cpu() && policy("cpu")) || (self.memory() && policy("memory"))
    }
}

/// Why resources were not changed.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Pod(#[from] PodCgroupError),
    #[error("error resizing container {name}")]
    Container {
        name: String,
        #[source]
        source: RuntimeError,
    },
}

/// Why a resize is pending.
#[derive(Debug, thiserror::Error)]
enum ResizeError {
    #[error("In-place resize of static-pods is not supported")]
    StaticPod,
    #[error("Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy")]
    StaticCpus,
    #[error(transparent)]
    Room(RoomError),
}

impl ResizeError {
    /// Reasons of the pod's condition and of the event.
    fn reasons(&self) -> (&'static str, &'static str) {
        match self {
            Self::Room(RoomError::InUse { .. }) => ("Deferred", "ResizeDeferred"),
            Self::Room(RoomError::Capacity { .. }) | Self::StaticPod | Self::StaticCpus => {
                ("Infeasible", "ResizeInfeasible")
            }
        }
    }
}

/// A memory limit to be set, and what is used of it.
struct LimitOf {
    /// `pod`, or `container` and its name.
    what: String,
    limit: i64,
    used: Option<u64>,
}

/// Why memory limits are not lowered.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot decrease memory limits: {}", .0.join(", "))]
struct UsageError(Vec<String>);

fn used(memory: Option<cri::MemoryUsage>) -> Option<u64> {
    memory.and_then(|memory| memory.usage_bytes).map(|bytes| bytes.value)
}

/// Whether all limits are above what is used.
fn above_usage(limits: &[LimitOf]) -> Result<(), UsageError> {
    let refusal = |LimitOf { what, limit, used }: &LimitOf| match used {
        None => Some(format!("missing {what} memory usage")),
        Some(used) if *used >= u64::try_from(*limit).unwrap_or(0) => {
            Some(format!("attempting to set {what} memory limit ({limit}) below current usage ({used})"))
        }
        Some(_) => None,
    };
    let refusals: Vec<String> = limits.iter().filter_map(refusal).collect();
    if refusals.is_empty() { Ok(()) } else { Err(UsageError(refusals)) }
}

/// Retry interval of a deferred resize.
const DEFERRED: Duration = Duration::from_secs(10);

impl Worker {
    /// Gives the pod the resources that it asks for, if the node has room, and lets its containers and its own limits follow.
    pub(super) async fn resize(&mut self) {
        let alive: HashSet<String> =
            self.observed.get().alive().map(|instance| instance.id.clone()).collect();
        self.resizes.applied.retain(|id, _| alive.contains(id));
        if self.asked.is_some() {
            // What runs has the resources of before.
            self.changes();
        }
        self.allocate();
        self.actuate().await;
    }

    /// Accepts the resources that are asked for, or says why they are not accepted yet. Containers that are being started get
    /// those of before: a resize waits for them.
    fn allocate(&mut self) {
        let Some(asked) = self.asked.clone() else {
            self.resizes.pending = None;
            return;
        };
        if self.tasks.job.is_some() {
            return;
        }
        match self.room_for(&asked) {
            Ok(()) => {
                self.desired.update(asked);
                self.asked = None;
                self.resizes.pending = None;
                self.resizes.failing = None;
                self.resizes.started = true;
                self.resizes.verified = false;
                self.tell("ResizeStarted", "started");
                // Files of volumes may show resources.
                self.refresh_volumes();
                self.executor.resources.update_qos_weights();
            }
            Err(error) => {
                let ((reason, event), message) = (error.reasons(), error.to_string());
                let pending = Resize::Pending { reason, message: message.clone() };
                if self.resizes.pending.as_ref() != Some(&pending) {
                    let text = resize_event::message(reason, &asked, &message);
                    self.executor.events.pod(self.pod(), Kind::Warning, event, text);
                }
                self.resizes.pending = Some(pending);
                self.wake_in(DEFERRED);
            }
        }
    }

    /// Makes containers and the pod's own limits what the pod was given.
    async fn actuate(&mut self) {
        let mut changes = self.changes();
        if let Err(error) = self.move_to_cpus(&mut changes).await {
            return self.fails(causes::chain(&error));
        }
        if changes.is_empty() && self.resizes.verified && !self.resizes.started {
            return;
        }
        let Some(sandbox) = self.observed.get().ready_sandbox().map(|sandbox| sandbox.id.clone()) else {
            return;
        };
        let quotas = self.executor.resources.cpu_quotas_of_pod(self.uid());
        let whole = resources::pod(&spec::spec(self.pod()), quotas);
        self.resizes.whole = self.executor.resources.pod_limits(self.pod());
        let writes = PodWrites::plan(&self.resizes.whole, &whole);
        let resized = changes.iter().any(|change| change.cpu() || change.memory());
        if let Err(error) = self.check_usage(&sandbox, &changes, &writes).await {
            return self.fails(error.to_string());
        }
        match self.write(&sandbox, changes, &writes, whole).await {
            Ok(restarts) => {
                self.resizes.failing = None;
                self.resizes.verified = true;
                if !writes.is_empty() {
                    self.resizes.whole = self.executor.resources.pod_limits(self.pod());
                }
                if resized && !self.observe().await {
                    self.observed.outdate();
                }
                if (resized || self.resizes.started) && !restarts {
                    self.tell("ResizeCompleted", "completed");
                }
                self.resizes.started = restarts;
            }
            Err(error) => self.fails(causes::chain(&error)),
        }
    }

    /// Moves containers to the CPUs that are theirs now; what is left of the changes are resizes. Other pods may have got the CPUs of
    /// before: neither a resize that fails nor another container holds it back.
    async fn move_to_cpus(&mut self, changes: &mut Vec<Change>) -> Result<(), WriteError> {
        let mut moved = Ok(());
        for change in changes.iter_mut().filter(|change| change.has.cpus != change.target.cpus) {
            let cpuset_cpus = change.target.cpus.clone();
            let cpus =
                cri::LinuxContainerResources { cpuset_cpus, ..cri::LinuxContainerResources::default() };
            match self.executor.runtime.update_container_resources(&change.instance.id, cpus).await {
                Ok(()) => {
                    change.has.cpus.clone_from(&change.target.cpus);
                    self.resizes.applied.insert(change.instance.id.clone(), change.has.clone());
                }
                Err(source) => {
                    moved = Err(WriteError::Container { name: change.container.name.clone(), source });
                }
            }
        }
        changes.retain(|change| change.has != change.target);
        moved
    }

    /// Makes the changes: what the pod gets before its containers, what it loses after them. Whether a container restarts for it.
    async fn write(
        &mut self,
        sandbox: &str,
        mut changes: Vec<Change>,
        writes: &PodWrites,
        whole: cri::LinuxContainerResources,
    ) -> Result<bool, WriteError> {
        let executor = self.executor.clone();
        executor.resources.change_pod_limits(self.pod(), &writes.grow)?;
        // What some give up others may get.
        changes.sort_by_key(|change| !change.lowers_memory());
        let mut restarts = false;
        for change in changes {
            restarts |= self.apply(change).await?;
        }
        executor.resources.change_pod_limits(self.pod(), &writes.shrink)?;
        if !writes.is_empty() {
            let told = executor.runtime.update_pod_sandbox_resources(sandbox, None, Some(whole)).await;
            if let Err(error) = told {
                tracing::debug!(uid = self.uid(), error = %causes::chain(&error), "runtime was not told the pod's own limits");
            }
        }
        Ok(restarts)
    }

    /// A resize that was accepted cannot be done now.
    fn fails(&mut self, message: String) {
        let failing = Resize::Failing(message.clone());
        if self.resizes.failing.as_ref() != Some(&failing) {
            let text = resize_event::message("error", self.pod(), &message);
            self.executor.events.pod(self.pod(), Kind::Warning, "ResizeError", text);
        }
        self.resizes.failing = Some(failing);
        self.resizes.verified = false;
        self.wake_in(DEFERRED);
    }

    fn tell(&self, event: &'static str, what: &str) {
        let text = resize_event::message(what, self.pod(), "");
        self.executor.events.pod(self.pod(), Kind::Normal, event, text);
    }

    fn changes(&mut self) -> Vec<Change> {
        let pod = self.pod().clone();
        let spec = spec::spec(&pod);
        let memory = self.executor.resources.memory();
        let mut changes = Vec::new();
        for (role, container) in spec::containers(&spec).filter(|(role, _)| *role != Role::Ephemeral) {
            let latest = self.observed.get().latest(&container.name);
            let running = latest.filter(|instance| instance.state == State::Running);
            let Some(instance) = running.cloned() else { continue };
            if self.tasks.stopping.contains_key(&instance.id) {
                continue;
            }
            let quotas = self.executor.resources.cpu_quotas(spec::uid(&pod), &container.name);
            let mut wanted = resources::container(&pod, role, &container, memory, quotas);
            self.executor.resources.keep_supported(&mut wanted);
            if let Some(cpus) = self.executor.resources.cpuset(spec::uid(&pod), &container.name) {
                wanted.cpuset_cpus = cpus;
            }
            let target = Applied::from(&wanted);
            let has = match self.resizes.applied.get(&instance.id) {
                Some(has) => has.clone(),
                None => self.first_seen(role, &container, &instance, memory, &target),
            };
            if has == target {
                self.resizes.applied.insert(instance.id, target);
                continue;
            }
            changes.push(Change { role, container: container.into_owned(), instance, wanted, has, target });
        }
        changes
    }

    /// Resources of a container before the first change by this process: from its status, or else from its spec. The
    /// shared cpus may have changed.
    fn first_seen(
        &self,
        role: Role,
        container: &Container,
        instance: &Instance,
        memory: NodeMemory,
        target: &Applied,
    ) -> Applied {
        let status = self.status.get();
        let statuses = [&status.container_statuses, &status.init_container_statuses];
        let status = statuses
            .into_iter()
            .flatten()
            .flatten()
            .find(|status| status.container_id.as_deref().is_some_and(|id| id.ends_with(&instance.id)));
        let told = status.and_then(|status| status.resources.clone());
        let numbers = told.map_or_else(
            || target.clone(),
            |resources| {
                let container = Container { resources: Some(resources), ..container.clone() };
                let quotas = self.executor.resources.cpu_quotas(self.uid(), &container.name);
                Applied::from(&resources::container(self.pod(), role, &container, memory, quotas))
            },
        );
        Applied { cpus: String::new(), ..numbers }
    }

    fn room_for(&self, asked: &Arc<Pod>) -> Result<(), ResizeError> {
        if spec::is_static(asked) {
            return Err(ResizeError::StaticPod);
        }
        let guaranteed = spec::qos(&spec::spec(asked)) == Qos::Guaranteed;
        if self.executor.resources.has_exclusive_cpus()
            && guaranteed
            && allocation::changes_cpu(asked, self.pod())
        {
            return Err(ResizeError::StaticCpus);
        }
        let allocatable = self.executor.resources.allocatable();
        let room = |others: &[Arc<Pod>]| admit::room(asked, others, &allocatable);
        self.parts.pods.allocate(asked, room).map_err(ResizeError::Room)
    }

    /// Refuses a memory limit that is not above what is used: the kernel would kill the container. Checked before anything
    /// is changed, so that no pod is resized by half.
    async fn check_usage(
        &self,
        sandbox: &str,
        changes: &[Change],
        writes: &PodWrites,
    ) -> Result<(), UsageError> {
        let runtime = &self.executor.runtime;
        let mut limits = Vec::new();
        if let Some(limit) = writes.lower_memory() {
            let stats = runtime.pod_sandbox_stats(sandbox).await.ok();
            let memory = stats.and_then(|stats| stats.linux).and_then(|linux| linux.memory);
            limits.push(LimitOf { what: "pod".to_owned(), limit, used: used(memory) });
        }
        for change in changes.iter().filter(|change| change.lowers_memory()) {
            let stats = runtime.container_stats(&change.instance.id).await.ok();
            let what = format!("container {:?}", change.container.name);
            let used = used(stats.and_then(|stats| stats.memory));
            limits.push(LimitOf { what, limit: change.target.memory, used });
        }
        above_usage(&limits)
    }

    /// Makes one change; whether the container restarts for it.
    async fn apply(&mut self, change: Change) -> Result<bool, WriteError> {
        let restarts = change.restarts();
        let Change { container, instance, wanted, target, .. } = change;
        if !restarts {
            let updated = self.executor.runtime.update_container_resources(&instance.id, wanted).await;
            updated.map_err(|source| WriteError::Container { name: container.name, source })?;
            self.resizes.applied.insert(instance.id, target);
            return Ok(false);
        }
        self.resizes.applied.insert(instance.id.clone(), target);
        self.replaced.insert(instance.id.clone());
        let message = format!("Container {} resize requires restart", container.name);
        let kill =
            Kill { id: instance.id, name: container.name, cause: Cause::Changed, replace: true, message };
        let grace = Duration::from_secs(u64::try_from(spec::grace(self.pod())).unwrap_or(30));
        let grace = stop::grace(self.pod(), &kill, grace);
        self.kill(kill, grace, Turn::now());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_below_usage_is_refused() {
        let of = |what: &str, limit, used| LimitOf { what: what.to_owned(), limit, used };
        assert_eq!(above_usage(&[]), Ok(()));
        assert_eq!(above_usage(&[of("pod", 100, Some(99))]), Ok(()));
        let error = above_usage(&[
            of("pod", 300, Some(200)),
            of("container \"a\"", 100, Some(100)),
            of("container \"b\"", 100, None),
        ]);
        assert_eq!(
            error.err().map(|error| error.to_string()).as_deref(),
            Some(
                "cannot decrease memory limits: attempting to set container \"a\" memory limit (100) below current \
                 usage (100), missing container \"b\" memory usage"
            )
        );
    }
}
