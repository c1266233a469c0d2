//! The cluster network, as pods join and leave it.

use std::collections::HashSet;
use std::sync::Arc;

use coracle_cli::causes;
use coracle_proto::cri;
use coracle_trace::{Stage, tracked};

use super::bandwidth;
use super::cni::{self, Dns, Network, NetworkDirs, PodNet, PortMapping};
use super::objects::Sandbox;
use super::paths::Paths;
use crate::runtime::{Result, RuntimeError};

/// The cluster network of the node's sandboxes.
pub(crate) struct PodNetwork {
    network: Network,
    paths: Arc<Paths>,
}

impl PodNetwork {
    pub(crate) fn new(dirs: NetworkDirs, paths: Arc<Paths>) -> Self {
        Self { network: Network::new(dirs), paths }
    }

    /// Whether pods can join now.
    pub(crate) async fn status(&self) -> cni::Result<()> {
        self.network.status().await
    }

    /// Attaches a sandbox; returns its addresses.
    pub(crate) async fn join(&self, sandbox: &Sandbox) -> Result<Vec<String>> {
        let pod = self.pod_net(sandbox);
        let attach = Box::pin(self.network.attach(&pod));
        let attachment = tracked(Stage::Network, "", attach).await.map_err(|error| {
            RuntimeError::Internal(format!(
                "failed to setup network for sandbox {:?}: {}",
                sandbox.id,
                causes::chain(&error)
            ))
        })?;
        Ok(attachment.ips.iter().map(ToString::to_string).collect())
    }

    /// Detaches a sandbox. Idempotent.
    pub(crate) async fn leave(&self, sandbox: &Sandbox) -> Result<()> {
        self.network.detach(&self.pod_net(sandbox)).await.map_err(|error| {
            RuntimeError::Internal(format!(
                "failed to destroy network for sandbox {:?}: {}",
                sandbox.id,
                causes::chain(&error)
            ))
        })
    }

    /// Removes attachments of sandboxes that are not in `attached`.
    pub(crate) async fn remove_stale(&self, attached: HashSet<String>) -> cni::Result<()> {
        self.network.gc(|| attached).await
    }

    /// Restores missing host ports; returns the number of pods that had some.
    pub(crate) async fn restore_ports(&self) -> cni::Result<usize> {
        self.network.restore_ports().await
    }

    /// The pod as its network sees it.
    fn pod_net(&self, sandbox: &Sandbox) -> PodNet {
        let record = sandbox.record.lock();
        let meta = record.config.metadata.clone().unwrap_or_default();
        let dns = record.config.dns_config.clone().unwrap_or_default();
        // Their range was checked when the sandbox was made.
        let port = |p: &cri::PortMapping| {
            Some(PortMapping {
                host_port: u16::try_from(p.host_port).ok().filter(|port| *port > 0)?,
                container_port: u16::try_from(p.container_port).ok()?,
                protocol: p.protocol().as_str_name().to_ascii_lowercase(),
                host_ip: p.host_ip.clone(),
            })
        };
        PodNet {
            id: sandbox.id.clone(),
            netns: self.paths.namespace(&sandbox.id, "net"),
            name: meta.name,
            namespace: meta.namespace,
            uid: meta.uid,
            port_mappings: record.config.port_mappings.iter().filter_map(port).collect(),
            dns: Dns {
                servers: dns.servers,
                searches: dns.searches,
                options: dns.options,
                domain: String::new(),
            },
            // Annotations that cannot be read were refused when the sandbox was made.
            bandwidth: bandwidth::of(&record.config.annotations).ok().flatten(),
            cgroup: Some(record.cgroup.clone()),
            // The keeper brought loopback up before it started `pause`.
            has_loopback: true,
            ..Default::default()
        }
    }
}
