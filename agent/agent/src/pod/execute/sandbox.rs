//! 3: the pod's sandbox.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;

use super::Job;
use crate::events::Kind;
use crate::pod::dns::Resolver;
use crate::pod::sandbox_config::{SandboxFacts, sandbox_config};
use crate::pod::{cgroup, spec};
use coracle_engine::runtime::First;

/// A sandbox that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// Its id.
    pub(super) id: String,
    /// The id of the first container, where that was created along with it.
    pub(super) first: Option<String>,
}

impl Job {
    /// The sandbox, where one is asked for.
    pub(super) async fn sandbox(&self, first: Option<First>) -> Option<Result<Made, String>> {
        match self.create_sandbox {
            Some(attempt) => Some(self.make_sandbox(attempt, first).await),
            None => None,
        }
    }

    /// A pod without its volumes has no sandbox.
    pub(super) async fn discard(&self, id: &str) {
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
        self.check_runtime(&handler).await?;
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

    /// Asks the runtime before it is too late: one that does not know user namespaces would give the host's, and one that does not
    /// know a field of the request would leave it out.
    async fn check_runtime(&self, handler: &str) -> Result<(), String> {
        let (users, groups, mounts) =
            (has_own_users(&self.pod), has_strict_groups(&self.pod), has_deep_read_only(&self.pod));
        if !(users || groups || mounts) {
            return Ok(());
        }
        let status = self.context.runtime.status(false).await.map_err(|error| error.to_string())?;
        let found = status.runtime_handlers.iter().find(|found| found.name == handler);
        let features = found.and_then(|found| found.features).unwrap_or_default();
        let runtime = match handler {
            "" => "runtime".to_owned(),
            name => format!("RuntimeClass handler {name:?}"),
        };
        if users && !features.user_namespaces {
            return Err(format!(
                "can't set `spec.hostUsers: false`, {runtime} does not support user namespaces"
            ));
        }
        if groups && !status.features.is_some_and(|features| features.supplemental_groups_policy) {
            return Err("SupplementalGroupsPolicy=Strict is not supported in this node".to_owned());
        }
        if mounts && !features.recursive_read_only_mounts {
            return Err(format!(
                "can't set `recursiveReadOnly: Enabled`, {runtime} does not support recursive read-only mounts"
            ));
        }
        Ok(())
    }

    pub(super) fn users(&self) -> Result<Option<cri::UserNamespace>, String> {
        let users = || self.context.users.of(&self.context.config, spec::uid(&self.pod));
        has_own_users(&self.pod).then(users).transpose().map_err(|error| error.to_string())
    }

    pub(in crate::pod) fn sandbox_config(&self, attempt: u32) -> Result<cri::PodSandboxConfig, String> {
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
pub(in crate::pod) fn has_own_users(pod: &Pod) -> bool {
    spec::spec(pod).host_users == Some(false)
}
