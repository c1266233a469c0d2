//! Builds the CRI sandbox configuration. Pure.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashMap;

use super::dns::{self, Resolver};
use super::observed::label;
use super::{resources, security, spec};
use crate::config::ClusterDns;
use crate::config::cpu_quotas::CpuQuotas;

/// Inputs of the sandbox configuration.
pub struct SandboxFacts<'a> {
    /// The cluster's names.
    pub cluster: &'a ClusterDns,
    /// The host's resolver configuration.
    pub host: &'a Resolver,
    /// The node's host name.
    pub node: &'a str,
    /// Directory of the pod's logs.
    pub log_directory: String,
    /// The cgroup that all pods' ones are under.
    pub cgroup_parent: &'a str,
    /// How the pod's limit of cpus is enforced.
    pub cpu_quotas: CpuQuotas,
    /// User namespace of the pod, unless it is the host's.
    pub userns: Option<cri::UserNamespace>,
}

/// Labels that find the pod again.
pub fn labels(pod: &Pod) -> HashMap<String, String> {
    let own = pod.metadata.labels.iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
    own.chain([
        (label::POD_NAME.to_owned(), spec::name(pod).to_owned()),
        (label::POD_NAMESPACE.to_owned(), spec::namespace(pod).to_owned()),
        (label::POD_UID.to_owned(), spec::uid(pod).to_owned()),
    ])
    .collect()
}

/// The configuration of the `attempt`-th sandbox.
pub fn sandbox_config(pod: &Pod, attempt: u32, facts: &SandboxFacts<'_>) -> cri::PodSandboxConfig {
    let spec = spec::spec(pod);
    let (name, domain) = dns::hostname(pod, &facts.cluster.domain, facts.node);
    let mut resolver = dns::resolver(pod, facts.cluster, facts.host);
    resolver.apply_limits();
    let context = spec.security_context.as_ref();
    let sysctls = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    let mut security_context = security::sandbox(pod);
    if let (Some(options), Some(userns)) = (&mut security_context.namespace_options, &facts.userns) {
        options.userns_options = Some(userns.clone());
    }
    cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: spec::name(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            attempt,
        }),
        // With the host's network the host's name stays.
        hostname: if spec.host_network == Some(true) && spec.hostname_override.is_none() {
            String::new()
        } else {
            dns::kernel_hostname(&spec, &name, &domain)
        },
        log_directory: facts.log_directory.clone(),
        dns_config: Some(resolver.into()),
        port_mappings: port_mappings(pod),
        labels: labels(pod),
        annotations: pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}{}", facts.cgroup_parent, resources::cgroup(pod)),
            security_context: Some(security_context),
            sysctls: sysctls.map(|sysctl| (sysctl.name.clone(), sysctl.value.clone())).collect(),
            overhead: Some(cri::LinuxContainerResources::default()),
            resources: Some(resources::pod(&spec, facts.cpu_quotas)),
        }),
        windows: None,
    }
}

fn port_mappings(pod: &Pod) -> Vec<cri::PortMapping> {
    let spec = spec::spec(pod);
    if spec.host_network == Some(true) {
        return vec![];
    }
    spec::containers(&spec)
        .flat_map(|(_, container)| container.ports.clone().unwrap_or_default())
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
        .map(|port| cri::PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => cri::Protocol::Udp as i32,
                Some("SCTP") => cri::Protocol::Sctp as i32,
                _ => cri::Protocol::Tcp as i32,
            },
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.unwrap_or_default(),
        })
        .collect()
}
