//! Step 3: the pod's sandbox.

use coracle_cli::causes;
use coracle_proto::cri;
use coracle_trace::{Stage, tracked};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use std::time::Instant;

use super::job::Job;
use crate::events::Kind;
use crate::pod::cgroup::PodCgroupError;
use crate::pod::dns::{self, Resolver};
use crate::pod::sandbox_config::{SandboxFacts, sandbox_config};
use crate::pod::spec;
use crate::pod::users::UsersError;
use coracle_engine::runtime::{FirstContainer, RuntimeError};

/// Why a pod has no sandbox; shown in a `FailedCreatePodSandBox` event, and tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    #[error(transparent)]
    Cgroup(#[from] PodCgroupError),
    #[error("RuntimeClass {name:?} not found")]
    NoRuntimeClass { name: String },
    #[error(transparent)]
    RuntimeClass(kube::Error),
    #[error("can't set `spec.hostUsers: false`, {runtime} does not support user namespaces")]
    UserNamespaces { runtime: String },
    #[error("SupplementalGroupsPolicy=Strict is not supported in this node")]
    StrictGroups,
    #[error("can't set `recursiveReadOnly: Enabled`, {runtime} does not support recursive read-only mounts")]
    RecursiveReadOnly { runtime: String },
    #[error(transparent)]
    Users(#[from] UsersError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// A created sandbox.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// Its id.
    pub(super) id: String,
    /// The id of the first container, where that was created along with it.
    pub(super) first: Option<String>,
}

impl Job {
    /// The sandbox, where one is asked for.
    pub(super) async fn sandbox(&self, first: Option<FirstContainer>) -> Option<Result<Made, SandboxError>> {
        match self.create_sandbox {
            Some(attempt) => {
                let made = Box::pin(self.make_sandbox(attempt, first));
                Some(tracked(Stage::Sandbox, "", made).await)
            }
            None => None,
        }
    }

    /// Removes a sandbox whose volumes failed.
    pub(super) async fn discard(&self, id: &str) {
        let gone = match self.executor.runtime.stop_pod_sandbox(id).await {
            Ok(()) => self.executor.runtime.remove_pod_sandbox(id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = gone {
            tracing::warn!(uid = spec::uid(&self.pod), sandbox = id, error = %causes::chain(&error), "sandbox not removed, will be reused");
        }
    }

    async fn make_sandbox(&self, attempt: u32, first: Option<FirstContainer>) -> Result<Made, SandboxError> {
        let resources = &self.executor.resources;
        if let Err(error) = resources.ensure_cgroup(&self.pod) {
            let text = error.to_string();
            self.executor.events.pod(&self.pod, Kind::Warning, "FailedCreatePodContainer", text);
            return Err(error.into());
        }
        resources.update_qos_weights();
        let handler = self.runtime_handler().await?;
        self.check_runtime(&handler).await?;
        self.report_dns_limits();
        let config = self.sandbox_config(attempt)?;
        let runtime = &self.executor.runtime;
        let begun = Instant::now();
        let made = match first {
            Some(first) => runtime.run_pod_sandbox_precreating(config, &handler, first).await,
            None => runtime.run_pod_sandbox(config, &handler).await.map(|id| (id, None)),
        };
        self.executor.metrics.sandbox_run(&handler, begun.elapsed());
        let (id, first) = made?;
        tracing::info!(
            pod = spec::name(&self.pod),
            namespace = spec::namespace(&self.pod),
            uid = spec::uid(&self.pod),
            sandbox = id,
            "sandbox made"
        );
        Ok(Made { id, first })
    }

    /// Checks the runtime's features: a runtime without user namespaces would use the host's, and unknown request fields
    /// would be ignored.
    async fn check_runtime(&self, handler: &str) -> Result<(), SandboxError> {
        let (users, groups, mounts) =
            (has_own_users(&self.pod), has_strict_groups(&self.pod), has_deep_read_only(&self.pod));
        if !(users || groups || mounts) {
            return Ok(());
        }
        let status = self.executor.runtime.status(false).await?;
        let found = status.runtime_handlers.iter().find(|found| found.name == handler);
        let features = found.and_then(|found| found.features).unwrap_or_default();
        let runtime = match handler {
            "" => "runtime".to_owned(),
            name => format!("RuntimeClass handler {name:?}"),
        };
        if users && !features.user_namespaces {
            return Err(SandboxError::UserNamespaces { runtime });
        }
        if groups && !status.features.is_some_and(|features| features.supplemental_groups_policy) {
            return Err(SandboxError::StrictGroups);
        }
        if mounts && !features.recursive_read_only_mounts {
            return Err(SandboxError::RecursiveReadOnly { runtime });
        }
        Ok(())
    }

    /// Says what the pod's resolver configuration lacks because there are limits.
    fn report_dns_limits(&self) {
        let mut resolver = dns::resolver(&self.pod, &self.executor.config.cluster, &self.host_resolver());
        for text in resolver.apply_limits() {
            self.executor.events.pod(&self.pod, Kind::Warning, "DNSConfigForming", text);
        }
    }

    fn host_resolver(&self) -> Resolver {
        let path = &self.executor.config.resolv_conf;
        Resolver::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    pub(super) fn users(&self) -> Result<Option<cri::UserNamespace>, UsersError> {
        let users = || self.executor.resources.users(&self.pod);
        has_own_users(&self.pod).then(users).transpose()
    }

    pub(in crate::lifecycle) fn sandbox_config(
        &self,
        attempt: u32,
    ) -> Result<cri::PodSandboxConfig, UsersError> {
        let config = &self.executor.config;
        let host = self.host_resolver();
        let logs =
            config.pod_log_dir(spec::namespace(&self.pod), spec::name(&self.pod), spec::uid(&self.pod));
        let facts = SandboxFacts {
            cluster: &config.cluster,
            host: &host,
            node: &config.name,
            log_directory: logs.to_string_lossy().into_owned(),
            cgroup_parent: &config.cgroup_parent,
            cpu_quotas: self.executor.resources.cpu_quotas_of_pod(spec::uid(&self.pod)),
            userns: self.users()?,
        };
        Ok(sandbox_config(&self.pod, attempt, &facts))
    }

    async fn runtime_handler(&self) -> Result<String, SandboxError> {
        let Some(name) = spec::spec(&self.pod).runtime_class_name.clone().filter(|name| !name.is_empty())
        else {
            return Ok(String::new());
        };
        let api: Api<RuntimeClass> = Api::all(self.executor.client.clone());
        let class = api.get(&name).await.map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => SandboxError::NoRuntimeClass { name },
            other => SandboxError::RuntimeClass(other),
        })?;
        Ok(class.handler)
    }
}

/// True for a pod whose groups are only those that it names.
fn has_strict_groups(pod: &Pod) -> bool {
    let spec = spec::spec(pod);
    let context = spec.security_context.as_ref();
    context.and_then(|context| context.supplemental_groups_policy.as_deref()) == Some("Strict")
}

/// True for a pod with a mount below which nothing may be written either.
fn has_deep_read_only(pod: &Pod) -> bool {
    let spec = spec::spec(pod);
    let mut mounts = spec::containers(&spec).flat_map(|(_, c)| c.volume_mounts.clone().unwrap_or_default());
    mounts.any(|mount| mount.recursive_read_only.as_deref() == Some("Enabled"))
}

/// True for a pod whose root is not the host's.
pub(in crate::lifecycle) fn has_own_users(pod: &Pod) -> bool {
    spec::spec(pod).host_users == Some(false)
}
