//! Executes a plan in numbered steps, in a task of its own: 1 data directories, 2 volumes, 3 sandbox
//! (neither needs the other); then for each container 4 image, 5 configuration, 6 create, 7 start, 8 hook.

// Its namespaces, its cgroup and its network.
mod sandbox;
// A container's configuration.
mod configure;

use k8s_openapi::api::core::v1::{Container, Pod};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::sandbox::Made;
pub(super) use self::sandbox::has_own_users;
use super::downward::Downward;
use super::observed::Observed;
use super::plan::Start;
use super::{hooks, spec};
use crate::cluster::Name;
use crate::context::Context;
use crate::events::{Kind, pod_reference};
use crate::policy::{self, PolicyError};
use crate::volume::prepare::{PrepareError, Prepared, VolumePreparer};
use coracle_host_dir::HostDir;

/// An error of one step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The container it is about; `None` for the pod as a whole.
    pub container: Option<String>,
    /// Reason for the container's waiting state.
    pub reason: String,
    /// Message for the container's waiting state.
    pub message: String,
    /// When to try again.
    pub retry: Duration,
}

/// Result of a job.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The volumes, once they are ready.
    pub prepared: Option<Arc<Prepared>>,
    /// Containers that were started.
    pub started: Vec<Start>,
    /// Errors.
    pub failures: Vec<Failure>,
    /// Whether the volumes failed.
    pub volumes_failed: bool,
}

impl Outcome {
    /// Outcome of a job that panicked: these containers and the sandbox are retried after a delay.
    pub fn panicked(containers: &[String], message: &str) -> Self {
        let failure = |container: Option<String>| Failure {
            container,
            reason: "ReconcilePanicked".into(),
            message: message.to_owned(),
            retry: AFTER_PANIC,
        };
        let failures = containers.iter().cloned().map(Some).chain([None]).map(failure).collect();
        Outcome { failures, ..Outcome::default() }
    }
}

/// A job of a pod worker.
pub struct Job {
    /// The node.
    pub context: Arc<Context>,
    /// The pod.
    pub pod: Arc<Pod>,
    /// What was observed when it was planned.
    pub observed: Observed,
    /// Volumes, where they are ready already.
    pub prepared: Option<Arc<Prepared>>,
    /// Sandboxes to stop first.
    pub stop_sandboxes: Vec<String>,
    /// The sandbox to make.
    pub create_sandbox: Option<u32>,
    /// Containers to start in the current sandbox.
    pub starts: Vec<Start>,
    /// The volumes failed before: creates the sandbox after them instead of in parallel.
    pub volumes_failed: bool,
    /// Addresses of the sandbox that this job made.
    pub addresses: Option<Vec<String>>,
    /// Cancels waits; started operations are completed.
    pub cancel: CancellationToken,
}

const RETRY: Duration = Duration::from_secs(10);
/// Delay before a job that panicked is retried.
const AFTER_PANIC: Duration = Duration::from_secs(60);

impl Job {
    /// Runs the job; errors are part of the outcome.
    pub async fn run(mut self) -> Outcome {
        let mut outcome = Outcome::default();
        for id in &self.stop_sandboxes {
            if let Err(error) = self.context.runtime.stop_pod_sandbox(id).await {
                tracing::warn!(uid = spec::uid(&self.pod), sandbox = id, %error, "sandbox not stopped, will retry");
            }
        }
        // 1 to 3.
        let wanted = self.create_sandbox.is_some() || !self.starts.is_empty();
        let lacking = wanted && self.prepared.is_none();
        let sandbox = if lacking && !self.volumes_failed {
            let (offer, first) = oneshot::channel();
            let (made, sandbox) = tokio::join!(self.volumes_and_first(offer), self.sandbox(Some(first)));
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
            self.start_first(id, first, &mut outcome).await;
        }
        if let Some(Err(error)) = sandbox {
            let text = format!("Failed to create pod sandbox: {error}");
            self.context.events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", text.clone());
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

    pub(super) async fn wait_for_policies(&self) -> Result<(), Failure> {
        self.policies().await.map_err(|error| {
            let message = error.to_string();
            self.context.events.pod(&self.pod, Kind::Warning, "NetworkNotReady", message.clone());
            let (reason, retry) = ("NetworkNotReady".into(), Duration::from_secs(2));
            Failure { container: None, reason, message, retry }
        })
    }

    async fn policies(&self) -> Result<(), PolicyError> {
        let (Some(policies), pod) = (&self.context.policies, &self.pod) else { return Ok(()) };
        if spec::spec(pod).host_network == Some(true) {
            return Ok(());
        }
        let name = Name::new(spec::namespace(pod), spec::name(pod));
        let starting = policy::pod_with_addresses(pod, &self.ips(), &self.context.config.name);
        policies.wait_enforced(spec::uid(pod), name, starting).await
    }

    /// Prepares the volumes; `None` if the pod is terminated meanwhile.
    pub(super) async fn volumes(&self) -> Option<Result<Prepared, PrepareError>> {
        tokio::select! {
            made = self.prepare() => Some(made),
            () = self.cancel.cancelled() => None,
        }
    }

    /// Stores the prepared volumes or records the error.
    fn take_volumes(&mut self, made: Option<Result<Prepared, PrepareError>>, outcome: &mut Outcome) -> bool {
        match made {
            Some(Ok(prepared)) => self.prepared = Some(Arc::new(prepared)),
            Some(Err(error)) => {
                let message = error.to_string();
                self.context.events.pod(&self.pod, Kind::Warning, "FailedMount", message.clone());
                outcome.volumes_failed = true;
                let (reason, retry) = ("FailedMount".into(), Duration::from_secs(2));
                outcome.failures.push(Failure { container: None, reason, message, retry });
            }
            None => {}
        }
        self.prepared.is_some()
    }

    async fn prepare(&self) -> Result<Prepared, PrepareError> {
        let (context, uid) = (&self.context, spec::uid(&self.pod));
        let logs = context.config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), uid);
        for dir in [context.config.pod_dir(uid), logs] {
            HostDir::create(&dir).map_err(|source| PrepareError::DataDirectory { path: dir, source })?;
        }
        prepare(context, &self.pod).await
    }

    fn ips(&self) -> Vec<String> {
        if spec::spec(&self.pod).host_network == Some(true) {
            return self.context.config.ips.clone();
        }
        if let Some(addresses) = &self.addresses {
            return addresses.clone();
        }
        self.observed.ready_sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
    }

    async fn container(&self, start: &Start) -> Result<(), Failure> {
        let (context, pod) = (&self.context, &self.pod);
        let spec = spec::spec(pod);
        let failed = |reason: &str, message: String| Failure {
            container: Some(start.name.clone()),
            reason: reason.to_owned(),
            message,
            retry: RETRY,
        };
        let tell = |reason: &str, message: String| {
            context.events.container(pod, &start.name, Kind::Warning, "Failed", format!("Error: {message}"));
            failed(reason, message)
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
        let policy = container.image_pull_policy.as_deref();
        let pull = context.images.ensure(pod, &about, image, policy, &credentials, &sandbox_config);
        let present = tokio::select! {
            present = pull => present,
            () = self.cancel.cancelled() => return Err(failed("ContainerCreating", String::new())),
        };
        let present = present.map_err(|failure| {
            context.events.container(
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

        // 5: configuration.
        let config = self
            .configure(role, &container, start, present, self.prepared.as_deref(), &sandbox_config)
            .await
            .map_err(|error| tell("CreateContainerConfigError", error.to_string()))?;

        // 6: create.
        let id = context
            .runtime
            .create_container(&sandbox.id, config, sandbox_config)
            .await
            .map_err(|error| tell("CreateContainerError", error.to_string()))?;
        self.launch(&container, start, &id).await
    }

    /// 7 and 8: starts a container that was created.
    pub(super) async fn launch(&self, container: &Container, start: &Start, id: &str) -> Result<(), Failure> {
        let (context, pod) = (&self.context, &self.pod);
        let failed = |reason: &str, message: String| Failure {
            container: Some(start.name.clone()),
            reason: reason.to_owned(),
            message,
            retry: RETRY,
        };
        context.events.container(pod, &start.name, Kind::Normal, "Created", "Container created");

        // 7: start.
        context.runtime.start_container(id).await.map_err(|error| {
            let text = format!("Error: {error}");
            context.events.container(pod, &start.name, Kind::Warning, "Failed", text);
            failed("RunContainerError", error.to_string())
        })?;
        context.events.container(pod, &start.name, Kind::Normal, "Started", "Container started");
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
        let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
        if let Some(hook) = hook {
            let ip = self.ips().into_iter().next().unwrap_or_default();
            let run = hooks::run(&*context.runtime, hook, container, id, &ip);
            let result = tokio::select! {
                result = run => result,
                () = self.cancel.cancelled() => return Ok(()),
            };
            if let Err(error) = result {
                context.events.container(
                    pod,
                    &start.name,
                    Kind::Warning,
                    "FailedPostStartHook",
                    "PostStartHook failed",
                );
                let grace = Duration::from_secs(u64::try_from(spec::grace(pod)).unwrap_or(30));
                context.events.container(pod, &start.name, Kind::Normal, "Killing", "FailedPostStartHook");
                let _ = context.runtime.stop_container(id, grace).await;
                return Err(failed("PostStartHookError", error.to_string()));
            }
        }
        Ok(())
    }
}

/// Makes or refreshes the volumes of a pod.
pub async fn prepare(context: &Context, pod: &Pod) -> Result<Prepared, PrepareError> {
    let (allocatable, labels) = {
        let facts = context.facts.read();
        (facts.allocatable.clone(), facts.labels.clone())
    };
    let maker = VolumePreparer {
        config: &context.config,
        client: &context.client,
        objects: &context.objects,
        tokens: &context.tokens,
        facts: Downward { pod_ips: &[], host_ips: &context.config.ips, allocatable: &allocatable },
        node_labels: &labels,
    };
    maker.prepare(pod).await
}
