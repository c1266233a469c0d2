//! Carries out what is planned, in numbered steps, beside the worker: 1 data directories, 2 volumes, 3 sandbox
//! (neither needs the other); then for each container 4 image, 5 configuration, 6 create, 7 start, 8 hook.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::container_config::{ContainerFacts, container_config};
use super::dns::{self, Resolver};
use super::downward::Downward;
use super::env::{self, Sources};
use super::image::Present;
use super::observed::Observed;
use super::plan::Start;
use super::sandbox_config::{SandboxFacts, sandbox_config};
use super::spec::Role;
use super::{cgroup, hooks, pull_secret, security, spec, users};
use crate::cluster::Name;
use crate::context::Context;
use crate::events::{Kind, pod_reference};
use crate::policy::{self, PolicyError};
use crate::runtime::First;
use crate::volume::mounts::{self, Source};
use crate::volume::prepare::{Maker, Prepared};

/// One thing that did not work.
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

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The volumes, once they are ready.
    pub prepared: Option<Arc<Prepared>>,
    /// Containers that were started.
    pub started: Vec<Start>,
    /// What did not work.
    pub failures: Vec<Failure>,
    /// The volumes were among that.
    pub volumes_failed: bool,
}

/// What to do.
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
    /// Volumes were asked for in vain before: the sandbox waits for them now. Otherwise both are made at once.
    pub volumes_failed: bool,
    /// Addresses of the sandbox that this job made.
    pub addresses: Option<Vec<String>>,
    /// Ends long waits; what was begun is finished.
    pub cancel: CancellationToken,
}

/// A sandbox that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// Its id.
    pub(super) id: String,
    /// The id of the first container, where that was created along with it.
    pub(super) first: Option<String>,
}

const RETRY: Duration = Duration::from_secs(10);

impl Job {
    /// Does it all; never fails as a whole.
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
        if let Some(Err(message)) = sandbox {
            let text = format!("Failed to create pod sandbox: {message}");
            self.context.events.pod(&self.pod, Kind::Warning, "FailedCreatePodSandBox", text.clone());
            let retry = Duration::from_secs(2);
            let reason = "CreatePodSandboxError".into();
            outcome.failures.push(Failure { container: None, reason, message: text, retry });
        }
        if self.create_sandbox.is_some() || (wanted && self.prepared.is_none()) {
            return outcome;
        }
        // Rules before the first container, and so before the first packet.
        if !self.starts.is_empty()
            && let Err(failure) = self.settle_policies().await
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

    pub(super) async fn settle_policies(&self) -> Result<(), Failure> {
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
        let starting = policy::starting(pod, &self.ips(), &self.context.config.name);
        policies.settle(spec::uid(pod), name, starting).await
    }

    /// The volumes; `None` when the pod ends meanwhile.
    pub(super) async fn volumes(&self) -> Option<Result<Prepared, String>> {
        tokio::select! {
            made = self.prepare() => Some(made),
            () = self.cancel.cancelled() => None,
        }
    }

    /// Keeps volumes that were made, or says why there are none.
    fn take_volumes(&mut self, made: Option<Result<Prepared, String>>, outcome: &mut Outcome) -> bool {
        match made {
            Some(Ok(prepared)) => self.prepared = Some(Arc::new(prepared)),
            Some(Err(message)) => {
                self.context.events.pod(&self.pod, Kind::Warning, "FailedMount", message.clone());
                outcome.volumes_failed = true;
                let (reason, retry) = ("FailedMount".into(), Duration::from_secs(2));
                outcome.failures.push(Failure { container: None, reason, message, retry });
            }
            None => {}
        }
        self.prepared.is_some()
    }

    async fn prepare(&self) -> Result<Prepared, String> {
        let (context, uid) = (&self.context, spec::uid(&self.pod));
        let logs = context.config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), uid);
        for dir in [context.config.pod_dir(uid), logs] {
            std::fs::create_dir_all(&dir)
                .map_err(|error| format!("error making pod data directories: {}: {error}", dir.display()))?;
        }
        prepare(context, &self.pod).await
    }

    /// The sandbox, where one is asked for.
    async fn sandbox(&self, first: Option<First>) -> Option<Result<Made, String>> {
        match self.create_sandbox {
            Some(attempt) => Some(self.make_sandbox(attempt, first).await),
            None => None,
        }
    }

    /// A pod without its volumes has no sandbox.
    async fn discard(&self, id: &str) {
        let gone = match self.context.runtime.stop_pod_sandbox(id).await {
            Ok(()) => self.context.runtime.remove_pod_sandbox(id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = gone {
            tracing::warn!(uid = spec::uid(&self.pod), sandbox = id, %error, "sandbox not removed, is used later");
        }
    }

    async fn make_sandbox(&self, attempt: u32, first: Option<First>) -> Result<Made, String> {
        if let Some(hierarchy) = &self.context.cgroups {
            let (parent, max_pids) = (&self.context.config.cgroup_parent, self.context.config.max_pids);
            if let Err(error) = cgroup::ensure(hierarchy, parent, &self.pod, max_pids) {
                self.context.events.pod(&self.pod, Kind::Warning, "FailedCreatePodContainer", error.clone());
                return Err(error);
            }
            self.context.weigh_classes();
        }
        let handler = self.runtime_handler().await?;
        if has_own_users(&self.pod) {
            self.check_users(&handler).await?;
        }
        let config = self.sandbox_config(attempt)?;
        let runtime = &self.context.runtime;
        let made = match first {
            Some(first) => runtime.run_pod_sandbox_with(config, &handler, first).await,
            None => runtime.run_pod_sandbox(config, &handler).await.map(|id| (id, None)),
        };
        let (id, first) = made.map_err(|error| error.to_string())?;
        tracing::info!(
            pod = spec::name(&self.pod),
            namespace = spec::namespace(&self.pod),
            uid = spec::uid(&self.pod),
            sandbox = id,
            "sandbox made"
        );
        Ok(Made { id, first })
    }

    /// Asks the runtime before it is too late: one that does not know user namespaces would give the host's.
    async fn check_users(&self, handler: &str) -> Result<(), String> {
        let status = self.context.runtime.status(false).await.map_err(|error| error.to_string())?;
        let found = status.runtime_handlers.iter().find(|found| found.name == handler);
        if found.and_then(|found| found.features).is_some_and(|features| features.user_namespaces) {
            return Ok(());
        }
        Err(match handler {
            "" => "can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned(),
            name => format!(
                "can't set `spec.hostUsers: false`, RuntimeClass handler {name:?} does not support user namespaces"
            ),
        })
    }

    fn users(&self) -> Result<Option<cri::UserNamespace>, String> {
        let users = || self.context.users.of(&self.context.config, spec::uid(&self.pod));
        has_own_users(&self.pod).then(users).transpose().map_err(|error| error.to_string())
    }

    pub(super) fn sandbox_config(&self, attempt: u32) -> Result<cri::PodSandboxConfig, String> {
        let config = &self.context.config;
        let host = Resolver::parse(&std::fs::read_to_string(&config.resolv_conf).unwrap_or_default());
        let logs =
            config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), spec::uid(&self.pod));
        let facts = SandboxFacts {
            cluster: &config.cluster,
            host: &host,
            node: &config.name,
            log_directory: logs.to_string_lossy().into_owned(),
            cgroup_parent: &config.cgroup_parent,
            userns: self.users()?,
        };
        Ok(sandbox_config(&self.pod, attempt, &facts))
    }

    async fn runtime_handler(&self) -> Result<String, String> {
        let Some(name) = spec::spec(&self.pod).runtime_class_name.clone().filter(|name| !name.is_empty())
        else {
            return Ok(String::new());
        };
        let api: Api<RuntimeClass> = Api::all(self.context.client.clone());
        let class = api.get(&name).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => format!("RuntimeClass {name:?} not found"),
            other => other.to_string(),
        })?;
        Ok(class.handler)
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
            .map_err(|error| failed("CreateContainerConfigError", error))?;

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
            .map_err(|error| tell("CreateContainerConfigError", error))?;

        // 6: create.
        let id = context
            .runtime
            .create_container(&sandbox.id, config, sandbox_config)
            .await
            .map_err(|error| tell("CreateContainerError", error.to_string()))?;
        self.launch(&container, start, &id).await
    }

    /// 5: the configuration of a container.
    pub(super) async fn configure(
        &self,
        role: Role,
        container: &Container,
        start: &Start,
        present: Present,
        prepared: Option<&Prepared>,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<cri::ContainerConfig, String> {
        let (context, pod) = (&self.context, &self.pod);
        security::verify_non_root(pod, container, &present.user).map_err(|error| error.to_string())?;
        let env = self.environment(container).await?;
        let mounts = self.mounts(container, start, &env, prepared, sandbox_config).await?;
        let target = self.target(role, &start.name);
        let node_memory = context.facts.read().memory;
        let mut config = container_config(
            pod,
            container,
            start,
            ContainerFacts {
                image: present.spec,
                image_user: &present.user,
                env: &env,
                mounts,
                node_memory,
                target: target.as_deref(),
                cpuset: context
                    .cpus
                    .as_ref()
                    .map(|cpus| cpus.of(spec::uid(pod), &start.name))
                    .unwrap_or_default(),
                userns: self.users()?,
            },
        );
        // Files of cgroups of the second version: a runtime on a host with the first refuses them.
        if context.cgroups.is_none()
            && let Some(limits) = config.linux.as_mut().and_then(|linux| linux.resources.as_mut())
        {
            limits.unified.clear();
        }
        Ok(config)
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
            if let Err(message) = result {
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
                return Err(failed("PostStartHookError", message));
            }
        }
        Ok(())
    }

    async fn credentials(&self, image: &str) -> Vec<cri::AuthConfig> {
        let (uid, namespace) = (spec::uid(&self.pod), spec::namespace(&self.pod));
        let (mut secrets, mut missing) = (Vec::new(), Vec::new());
        for reference in spec::spec(&self.pod).image_pull_secrets.iter().flatten() {
            match self.context.objects.secret(uid, namespace, &reference.name).await {
                Ok(Some(secret)) => secrets.push(secret),
                _ => missing.push(reference.name.clone()),
            }
        }
        if !missing.is_empty() {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.context.events.pod(&self.pod, Kind::Warning, "FailedToRetrieveImagePullSecret", text);
        }
        let secrets: Vec<_> = secrets.iter().map(|secret| &**secret).collect();
        pull_secret::credentials(image, &secrets)
    }

    async fn environment(&self, container: &Container) -> Result<BTreeMap<String, String>, String> {
        let (context, uid, namespace) = (&self.context, spec::uid(&self.pod), spec::namespace(&self.pod));
        let (maps, secrets) = env::references(container);
        let mut sources = Sources::default();
        for name in maps {
            let found =
                context.objects.config_map(uid, namespace, &name).await.map_err(|error| error.to_string())?;
            sources.config_maps.extend(found.map(|object| (name, object)));
        }
        for name in secrets {
            let found =
                context.objects.secret(uid, namespace, &name).await.map_err(|error| error.to_string())?;
            sources.secrets.extend(found.map(|object| (name, object)));
        }
        let links = spec::spec(&self.pod).enable_service_links != Some(false);
        let services = crate::services::variables(&context.cluster.services, namespace, links).await;
        let allocatable = context.facts.read().allocatable.clone();
        let ips = self.ips();
        let facts = Downward { pod_ips: &ips, host_ips: &context.config.ips, allocatable: &allocatable };
        env::environment(&self.pod, container, &sources, &services, &facts).map_err(|error| error.to_string())
    }

    async fn mounts(
        &self,
        container: &Container,
        start: &Start,
        env: &BTreeMap<String, String>,
        prepared: Option<&Prepared>,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<Vec<cri::Mount>, String> {
        let (context, pod, uid) = (&self.context, &self.pod, spec::uid(&self.pod));
        let mut sources = prepared.map(|prepared| prepared.sources.clone()).unwrap_or_default();
        self.image_volumes(&mut sources, container, sandbox_config).await?;
        let mut all = mounts::mounts(&context.config, pod, container, &sources, env)?;
        let own = |path: &str| {
            container
                .volume_mounts
                .iter()
                .flatten()
                .any(|mount| mount.mount_path.trim_end_matches('/') == path)
        };
        let plain = |inside: &str, host: &Path| cri::Mount {
            container_path: inside.to_owned(),
            host_path: host.to_string_lossy().into_owned(),
            ..cri::Mount::default()
        };
        if !own("/etc/hosts") {
            all.push(plain("/etc/hosts", &self.hosts_file()?));
        }
        let message = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        if !message.is_empty() {
            let file = context.config.termination_log(uid, &start.name, start.attempt);
            make_public_file(&file)
                .map_err(|error| format!("failed to create {}: {error}", file.display()))?;
            all.push(plain(message, &file));
        }
        if let Some(users) = self.users()? {
            users::map_mounts(&mut all, &users);
        }
        Ok(all)
    }

    /// Images that are volumes are pulled like containers' own.
    async fn image_volumes(
        &self,
        sources: &mut std::collections::HashMap<String, Source>,
        container: &Container,
        sandbox_config: &cri::PodSandboxConfig,
    ) -> Result<(), String> {
        let spec = spec::spec(&self.pod);
        for volume in spec.volumes.iter().flatten().filter(|volume| volume.image.is_some()) {
            if !container.volume_mounts.iter().flatten().any(|mount| mount.name == volume.name) {
                continue;
            }
            let Some(source) = &volume.image else { continue };
            let image = source.reference.as_deref().unwrap_or_default();
            let credentials = self.credentials(image).await;
            let about = pod_reference(&self.pod, None);
            let policy = source.pull_policy.as_deref();
            let present = self
                .context
                .images
                .ensure(&self.pod, &about, image, policy, &credentials, sandbox_config)
                .await;
            let present = present.map_err(|failure| format!("{}: {}", failure.reason, failure.message))?;
            sources.insert(volume.name.clone(), Source::Image(present.spec));
        }
        Ok(())
    }

    pub(super) fn hosts_file(&self) -> Result<PathBuf, String> {
        let config = &self.context.config;
        let (name, domain) = dns::hostname(&self.pod, &config.cluster.domain, &config.name);
        let host = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let text = dns::hosts_file(&self.pod, &self.ips(), &name, &domain, &host);
        let path = config.pod_dir(spec::uid(&self.pod)).join("etc-hosts");
        // Written in place: running containers see the file through their mounts.
        std::fs::write(&path, text)
            .map_err(|error| format!("failed to write {}: {error}", path.display()))?;
        Ok(path)
    }

    /// The container whose processes an ephemeral container joins.
    fn target(&self, role: Role, name: &str) -> Option<String> {
        if role != Role::Ephemeral {
            return None;
        }
        let spec: Cow<'_, _> = spec::spec(&self.pod);
        let of = spec.ephemeral_containers.iter().flatten().find(|container| container.name == name)?;
        let target = of.target_container_name.as_deref().filter(|target| !target.is_empty())?;
        self.observed.latest(target).map(|instance| instance.id.clone())
    }
}

/// True for a pod whose root is not the host's.
pub(super) fn has_own_users(pod: &Pod) -> bool {
    spec::spec(pod).host_users == Some(false)
}

/// A file any user of the container may write its last words to.
fn make_public_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(path, "")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
}

/// Makes or refreshes the volumes of a pod.
pub async fn prepare(context: &Context, pod: &Pod) -> Result<Prepared, String> {
    let (allocatable, labels) = {
        let facts = context.facts.read();
        (facts.allocatable.clone(), facts.labels.clone())
    };
    let maker = Maker {
        config: &context.config,
        client: &context.client,
        objects: &context.objects,
        tokens: &context.tokens,
        facts: Downward { pod_ips: &[], host_ips: &context.config.ips, allocatable: &allocatable },
        node_labels: &labels,
    };
    maker.prepare(pod).await.map_err(|error| error.to_string())
}
