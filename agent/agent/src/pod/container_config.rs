//! Builds the CRI container configuration. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::env::expand;
use super::observed::{annotation, label};
use super::plan::Start;
use super::resources::NodeMemory;
use super::security::ImageUser;
use super::{huge_pages, resources, security, spec};
use crate::config::cpu_quotas::CpuQuotas;

/// Inputs of the container configuration.
pub struct ContainerFacts<'a> {
    /// The image as the runtime knows it.
    pub image: cri::ImageSpec,
    /// The user the image names.
    pub image_user: &'a ImageUser,
    /// The environment.
    pub env: &'a BTreeMap<String, String>,
    /// Mounts, in order.
    pub mounts: Vec<cri::Mount>,
    /// Devices.
    pub devices: Vec<cri::Device>,
    /// Memory of the node.
    pub node_memory: NodeMemory,
    /// How its limit of cpus is enforced.
    pub cpu_quotas: CpuQuotas,
    /// Sizes of huge pages that are limited, in bytes.
    pub page_sizes: &'a BTreeSet<i64>,
    /// Whether a container without a seccomp profile gets the runtime's default one.
    pub seccomp_default: bool,
    /// Whether the container says with which signal it is stopped.
    pub stop_signals: bool,
    /// Id of the container whose processes an ephemeral container sees.
    pub target: Option<&'a str>,
    /// Cpus it is bound to, `""` for all.
    pub cpuset: String,
    /// NUMA nodes of its memory, `""` for all.
    pub memory_nodes: String,
    /// User namespace of the pod.
    pub userns: Option<cri::UserNamespace>,
}

/// The log file of a container's run, relative to the pod's log directory.
pub fn log_path(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// The configuration of the container that `start` asks for.
pub fn container_config(
    pod: &Pod,
    container: &Container,
    start: &Start,
    facts: ContainerFacts<'_>,
) -> cri::ContainerConfig {
    let text = |list: &Option<Vec<String>>| -> Vec<String> {
        list.iter().flatten().map(|item| expand(item, |name| facts.env.get(name).cloned())).collect()
    };
    let mut limits = resources::container(pod, start.role, container, facts.node_memory, facts.cpu_quotas);
    limits.hugepage_limits = huge_pages::of_container(&spec::spec(pod), container, facts.page_sizes);
    limits.cpuset_cpus = facts.cpuset;
    limits.cpuset_mems = facts.memory_nodes;
    let mut context =
        security::container(pod, container, facts.image_user, facts.target, facts.seccomp_default);
    if let (Some(options), Some(userns)) = (&mut context.namespace_options, facts.userns) {
        options.userns_options = Some(userns);
    }
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata { name: container.name.clone(), attempt: start.attempt }),
        image: Some(facts.image),
        command: text(&container.command),
        args: text(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: facts
            .env
            .iter()
            .map(|(key, value)| cri::KeyValue { key: key.clone(), value: value.clone() })
            .collect(),
        mounts: facts.mounts,
        devices: facts.devices,
        labels: labels(pod, container),
        annotations: annotations(pod, container, start),
        log_path: log_path(&container.name, start.attempt),
        stdin: container.stdin == Some(true),
        stdin_once: container.stdin_once == Some(true),
        tty: container.tty == Some(true),
        linux: Some(cri::LinuxContainerConfig { resources: Some(limits), security_context: Some(context) }),
        stop_signal: if facts.stop_signals { stop_signal(container) } else { 0 },
        ..cri::ContainerConfig::default()
    }
}

fn labels(pod: &Pod, container: &Container) -> HashMap<String, String> {
    HashMap::from([
        (label::POD_NAME.to_owned(), spec::name(pod).to_owned()),
        (label::POD_NAMESPACE.to_owned(), spec::namespace(pod).to_owned()),
        (label::POD_UID.to_owned(), spec::uid(pod).to_owned()),
        (label::CONTAINER_NAME.to_owned(), container.name.clone()),
    ])
}

fn annotations(pod: &Pod, container: &Container, start: &Start) -> HashMap<String, String> {
    let path = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
    let policy = container.termination_message_policy.as_deref().unwrap_or("File");
    let mut all = HashMap::from([
        (annotation::HASH.to_owned(), spec::container_hash(container)),
        (annotation::RESTART_COUNT.to_owned(), start.attempt.to_string()),
        (annotation::TERMINATION_MESSAGE_PATH.to_owned(), path.to_owned()),
        (annotation::TERMINATION_MESSAGE_POLICY.to_owned(), policy.to_owned()),
        (annotation::POD_GRACE.to_owned(), spec::grace(pod).to_string()),
    ]);
    if let Some(grace) = pod.metadata.deletion_grace_period_seconds {
        all.insert(annotation::POD_DELETION_GRACE.to_owned(), grace.to_string());
    }
    all
}

fn stop_signal(container: &Container) -> i32 {
    let name = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    name.and_then(cri::Signal::from_str_name).map_or(0, |signal| signal as i32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::spec::Role;
    use serde_json::json;

    #[test]
    fn command_args_labels_and_annotations() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"containers": [
            {"name": "c", "image": "img", "command": ["sh", "-c"], "args": ["echo $(A) $$(A) $(B)"], "tty": true,
             "lifecycle": {"stopSignal": "SIGUSR1"}, "terminationMessagePath": "/t"}]}}))
        .unwrap();
        let container = spec::spec(&pod).containers[0].clone();
        let start = Start { name: "c".into(), role: Role::Regular, attempt: 2, failed_at: None };
        let env = BTreeMap::from([("A".to_owned(), "x".to_owned())]);
        let (user, sizes) = (ImageUser::default(), BTreeSet::from([2 << 20]));
        let with = |stop_signals: bool| {
            let facts = ContainerFacts {
                image: cri::ImageSpec::default(),
                image_user: &user,
                env: &env,
                mounts: vec![],
                devices: vec![],
                node_memory: NodeMemory { total: 1 << 30, swap: 0 },
                cpu_quotas: CpuQuotas::default(),
                page_sizes: &sizes,
                seccomp_default: true,
                stop_signals,
                target: None,
                cpuset: String::new(),
                memory_nodes: String::new(),
                userns: None,
            };
            container_config(&pod, &container, &start, facts)
        };
        let config = with(true);
        assert_eq!(config.args, ["echo x $(A) $(B)"]);
        assert_eq!(config.log_path, "c/2.log");
        assert_eq!(config.labels["io.kubernetes.pod.uid"], "u");
        assert_eq!(config.annotations["io.kubernetes.container.restartCount"], "2");
        assert_eq!(config.annotations["io.kubernetes.container.terminationMessagePath"], "/t");
        assert_eq!(config.stop_signal, cri::Signal::Sigusr1 as i32);
        assert_eq!(with(false).stop_signal, 0, "that of the image");
        assert!(config.tty && !config.stdin);
        let limits = config.linux.unwrap().resources.unwrap().hugepage_limits;
        assert_eq!(limits, [cri::HugepageLimit { page_size: "2MB".into(), limit: 0 }]);
    }
}
