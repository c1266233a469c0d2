//! Executes a plan in numbered steps, in a task of its own: 0 resource claims, 1 data directories, 2 volumes, 3 sandbox
//! (neither needs the other); then for each container 4 image, 5 configuration, 6 create, 7 start, 8 hook.

// A job and what it works with.
pub mod job;
// The result of a job.
pub mod outcome;
// Its namespaces, its cgroup and its network.
mod sandbox;
// A container's configuration.
mod configure;

use coracle_cli::causes;
use coracle_trace::{Span, Stage, stage_named, tracked, within};
use k8s_openapi::api::core::v1::Container;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

pub use self::job::{Executor, Job};
use self::outcome::{Failure, Outcome};
use self::sandbox::Made;
pub(super) use self::sandbox::has_own_users;
use super::stop::Turn;
use super::thread_wait::waited_for_thread;
use super::{hooks, log_links, stop};
use crate::events::{Kind, pod_reference};
use crate::image::{ImageRequest, Present};
use crate::pod::container_config;
use crate::pod::observed::Sandbox;
use crate::pod::plan::{Cause, Kill, Start};
use crate::pod::spec::{self, Role};
use crate::volume::prepare::{PrepareError, Prepared};
use crate::volume::purpose::Purpose;
use coracle_host_dir::HostDir;
use coracle_proto::cri;

const RETRY: Duration = Duration::from_secs(10);

impl Job {
    /// Runs the job; errors are part of the outcome.
    pub async fn run(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        if !self.stop_sandboxes.is_empty() {
            self.record_wait();
        }
        for id in &self.stop_sandboxes {
            if let Err(error) = self.executor.runtime.stop_pod_sandbox(id).await {
                tracing::warn!(uid = spec::uid(&self.pod), sandbox = id, error = %causes::chain(&error), "sandbox not stopped, will retry");
            }
        }
        let wanted = self.create_sandbox.is_some() || !self.starts.is_empty();
        // 0.
        if wanted && let Err(failure) = self.prepare_claims().await {
            outcome.failures.push(failure);
            return outcome;
        }
        self.record_wait();
        // 1 to 3.
        let lacking = (wanted || self.adopt_volumes) && self.prepared.is_none();
        let mut precreated = None;
        let sandbox = if lacking && !self.volumes_failed {
            let (offer, first) = oneshot::channel();
            let ((made, span), sandbox) =
                tokio::join!(self.volumes_and_first(offer), self.sandbox(Some(first)));
            precreated = span;
            let kept = self.take_volumes(made, &mut outcome);
            if !kept && let Some(Ok(made)) = &sandbox {
                self.discard(&made.id).await;
            }
            sandbox.filter(|_| kept)
        } else if lacking {
            let made = self.volumes().await;
            if self.take_volumes(made, &mut outcome) { self.sandbox(None).await } else { None }
        } else {
            self.sandbox(None).await
        };
        outcome.prepared = self.prepared.clone();
        if let Some(Ok(Made { id, first: Some(first) })) = &sandbox {
            self.start_first(id, first, precreated.take(), &mut outcome).await;
        }
        if let Some(mut span) = precreated {
            span.failed();
        }
        if let Some(Err(error)) = sandbox {
            let text = format!("Failed to create pod sandbox: {error}");
            self.executor.events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", text.clone());
            let retry = Duration::from_secs(2);
            let reason = "CreatePodSandboxError".into();
            outcome.failures.push(Failure { container: None, reason, message: text, retry });
        }
        if self.create_sandbox.is_some() || (wanted && self.prepared.is_none()) {
            return outcome;
        }
        // Policy rules must be in place before the first container sends a packet.
        if !self.starts.is_empty()
            && let Err(failure) = self.wait_for_policies().await
        {
            outcome.failures.push(failure);
            return outcome;
        }
        // 4 to 8.
        for start in std::mem::take(&mut self.starts) {
            if self.cancel.is_cancelled() {
                break;
            }
            match self.container(&start).await {
                Ok(()) => outcome.started.push(start),
                Err(failure) => outcome.failures.push(failure),
            }
        }
        outcome
    }

    /// Records how long it took from the worker to the first step, which comes now.
    fn record_wait(&mut self) {
        if let Some(spawned) = self.spawned.take() {
            waited_for_thread(spawned);
        }
    }

    /// Has drivers prepare the devices that the pod claims.
    async fn prepare_claims(&mut self) -> Result<(), Failure> {
        let has_claims = spec::spec(&self.pod).resource_claims.iter().flatten().next().is_some()
            || spec::extended_mappings(&self.pod).next().is_some();
        if !has_claims {
            return Ok(());
        }
        self.record_wait();
        self.executor.claims.prepare(&self.pod).await.map_err(|error| {
            let message = format!("Failed to prepare dynamic resources: {}", causes::chain(&error));
            let reason = "FailedPrepareDynamicResources";
            self.executor.events.pod(&self.pod, Kind::Warning, reason, message.clone());
            Failure { container: None, reason: reason.into(), message, retry: Duration::from_secs(2) }
        })
    }

    pub(super) async fn wait_for_policies(&self) -> Result<(), Failure> {
        let ips = self.ips();
        let wait = self.executor.network.wait_enforced(&self.pod, &ips);
        tracked(Stage::Policies, "", wait).await.map_err(|error| {
            let message = error.to_string();
            self.executor.events.pod(&self.pod, Kind::Warning, "NetworkNotReady", message.clone());
            let (reason, retry) = ("NetworkNotReady".into(), Duration::from_secs(2));
            Failure { container: None, reason, message, retry }
        })
    }

    /// Prepares the volumes; `None` if the pod is terminated meanwhile.
    pub(super) async fn volumes(&self) -> Option<Result<Prepared, PrepareError>> {
        tokio::select! {
            made = tracked(Stage::Volumes, "", Box::pin(self.prepare())) => Some(made),
            () = self.cancel.cancelled() => None,
        }
    }

    /// Stores the prepared volumes or records the error.
    fn take_volumes(&mut self, made: Option<Result<Prepared, PrepareError>>, outcome: &mut Outcome) -> bool {
        match made {
            Some(Ok(prepared)) => self.prepared = Some(Arc::new(prepared)),
            Some(Err(error)) => {
                outcome.volumes_failed = true;
                outcome.rejection = error.rejection();
                if outcome.rejection.is_some() {
                    return false;
                }
                let message = error.to_string();
                self.executor.events.pod(&self.pod, Kind::Warning, "FailedMount", message.clone());
                // Containers that run already can wait longer.
                let is_awaited = self.create_sandbox.is_some() || !self.starts.is_empty();
                let retry = if is_awaited { Duration::from_secs(2) } else { RETRY };
                let reason = "FailedMount".into();
                outcome.failures.push(Failure { container: None, reason, message, retry });
            }
            None => {}
        }
        self.prepared.is_some()
    }

    async fn prepare(&self) -> Result<Prepared, PrepareError> {
        let (config, uid) = (&self.executor.config, spec::uid(&self.pod));
        let logs = config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), uid);
        // Those of a kubelet, which programs on the node look for.
        let own = ["volumes", "plugins"].map(|name| config.pod_dir(uid).join(name));
        for dir in own.into_iter().chain([logs]) {
            HostDir::create(&dir).map_err(|source| PrepareError::DataDirectory { path: dir, source })?;
        }
        let purpose = if self.observed.is_any_running() { Purpose::Renewal } else { Purpose::Start };
        self.executor.volumes.prepare(&self.pod, purpose).await
    }

    async fn container(&self, start: &Start) -> Result<(), Failure> {
        let (executor, pod) = (&self.executor, &self.pod);
        let spec = spec::spec(pod);
        let failed = |reason: &str, message: String| Failure {
            container: Some(start.name.clone()),
            reason: reason.to_owned(),
            message,
            retry: RETRY,
        };
        let Some((role, container)) = spec::container(&spec, &start.name) else {
            return Err(failed(
                "CreateContainerConfigError",
                format!("container {:?} not found", start.name),
            ));
        };
        let Some(sandbox) = self.observed.ready_sandbox() else {
            return Err(failed("CreateContainerError", "pod has no sandbox".to_owned()));
        };
        let sandbox_config = self
            .sandbox_config(sandbox.attempt)
            .map_err(|error| failed("CreateContainerConfigError", error.to_string()))?;

        // 4: image.
        let image = container.image.as_deref().unwrap_or_default();
        let about = pod_reference(pod, Some(&start.name));
        let credentials = self.credentials(image).await;
        let pull = executor.images.ensure(ImageRequest {
            pod,
            about: &about,
            image,
            policy: container.image_pull_policy.as_deref(),
            credentials: &credentials,
            sandbox: &sandbox_config,
        });
        let present = tokio::select! {
            present = pull => present,
            () = self.cancel.cancelled() => return Err(failed("ContainerCreating", String::new())),
        };
        let present = present.map_err(|failure| {
            executor.events.container(
                pod,
                &start.name,
                Kind::Warning,
                "Failed",
                format!("Error: {}", failure.reason),
            );
            Failure {
                container: Some(start.name.clone()),
                reason: failure.reason.to_owned(),
                message: failure.message,
                retry: failure.retry,
            }
        })?;

        // 5 to 8.
        let mut span = container_span(start);
        let create = self.create(role, &container, start, present, (sandbox, sandbox_config));
        let started = within(span.scope(), Box::pin(create)).await;
        if started.is_err() {
            span.failed();
        }
        started
    }

    /// 5 to 8: a container whose image is on the node.
    async fn create(
        &self,
        role: Role,
        container: &Container,
        start: &Start,
        present: Present,
        (sandbox, sandbox_config): (&Sandbox, cri::PodSandboxConfig),
    ) -> Result<(), Failure> {
        let (executor, pod) = (&self.executor, &self.pod);
        let tell = |reason: &str, message: String| {
            executor.events.container(pod, &start.name, Kind::Warning, "Failed", format!("Error: {message}"));
            let (container, reason) = (Some(start.name.clone()), reason.to_owned());
            Failure { container, reason, message, retry: RETRY }
        };

        // 5: configuration.
        let configure =
            self.configure(role, container, start, present, self.prepared.as_deref(), &sandbox_config);
        let config = tracked(Stage::ContainerConfig, &start.name, configure)
            .await
            .map_err(|error| tell("CreateContainerConfigError", error.to_string()))?;

        executor
            .devices
            .pre_start(spec::uid(pod), &start.name)
            .await
            .map_err(|error| tell("CreateContainerConfigError", error.to_string()))?;

        // 6: create.
        let id = executor
            .runtime
            .create_container(&sandbox.id, config, sandbox_config)
            .await
            .map_err(|error| tell("CreateContainerError", error.to_string()))?;
        self.launch(container, start, &id).await
    }

    /// For collectors of logs.
    fn link_log(&self, start: &Start, id: &str) {
        let (config, pod) = (&self.executor.config, &self.pod);
        let logs = config.pod_log_dir(spec::namespace(pod), spec::name(pod), spec::uid(pod));
        let log = logs.join(container_config::log_path(&start.name, start.attempt));
        if let Some(links) = &config.log_link_dir {
            log_links::create(links, &log_links::name(pod, &start.name, id), &log);
        }
    }

    /// 7 and 8: starts a container that was created.
    pub(super) async fn launch(&self, container: &Container, start: &Start, id: &str) -> Result<(), Failure> {
        let (executor, pod) = (&self.executor, &self.pod);
        let failed = |reason: &str, message: String| Failure {
            container: Some(start.name.clone()),
            reason: reason.to_owned(),
            message,
            retry: RETRY,
        };
        executor.events.container(pod, &start.name, Kind::Normal, "Created", "Container created");

        // 7: start. It counts as being created until its hook has ended.
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        let _running = hook.map(|_| self.hooks.begin(&start.name));
        executor.runtime.start_container(id).await.map_err(|error| {
            let text = format!("Error: {error}");
            executor.events.container(pod, &start.name, Kind::Warning, "Failed", text);
            failed("RunContainerError", error.to_string())
        })?;
        self.link_log(start, id);
        executor.events.container(pod, &start.name, Kind::Normal, "Started", "Container started");
        tracing::info!(
            pod = spec::name(pod),
            namespace = spec::namespace(pod),
            uid = spec::uid(pod),
            container = start.name,
            id,
            attempt = start.attempt,
            "container started"
        );

        // 8: hook.
        if let Some(hook) = hook {
            let ip = self.ips().into_iter().next().unwrap_or_default();
            let run = hooks::run(&*executor.runtime, hook, container, id, &ip);
            let run = tracked(Stage::PostStart, &start.name, run);
            let result = tokio::select! {
                result = run => result,
                () = self.cancel.cancelled() => return Ok(()),
            };
            if let Err(error) = result {
                executor.events.container(
                    pod,
                    &start.name,
                    Kind::Warning,
                    "FailedPostStartHook",
                    error.event("PostStartHook"),
                );
                let grace = Duration::from_secs(u64::try_from(spec::grace(pod)).unwrap_or(30));
                let kill = Kill {
                    id: id.to_owned(),
                    name: start.name.clone(),
                    cause: Cause::PostStart,
                    replace: false,
                    message: "FailedPostStartHook".to_owned(),
                };
                let stop =
                    stop::stop(&*executor.runtime, &executor.events, pod, kill, grace, ip, Turn::now());
                tokio::select! {
                    () = stop => {}
                    // The pod's own termination stops it.
                    () = self.cancel.cancelled() => return Ok(()),
                }
                return Err(failed("PostStartHookError", error.to_string()));
            }
        }
        Ok(())
    }
}

/// The span of a container's start; its code counts the attempts.
pub(super) fn container_span(start: &Start) -> Span {
    let mut span = stage_named(Stage::Container, &start.name);
    span.code(u16::try_from(start.attempt).unwrap_or(u16::MAX).saturating_add(1));
    span
}
