//! Registers the node, renews its Lease and reports its status.

use coracle_cli::causes;
use coracle_cli::ready::Ready;
use coracle_fields::Made;
use coracle_fields::core::v1;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;

use super::eviction_parts::EvictionParts;
use super::machine::Machine;
use super::status::{self, StatusInput};
use super::{cni_conf, eviction, lease, local_storage, object};
use crate::api_watch;
use crate::config::{NetworkMode, NodeConfig};
use crate::devices::Devices;
use crate::events::{Kind, Recorder};
use crate::image::Images;
use crate::image::gc::ages::ImageAges;
use crate::lifecycle::table::PodTable;
use crate::network;
use crate::pod::node_facts::SharedFacts;
use crate::pod::spec;
use crate::policy::Policies;
use crate::volume::csi::attachments::Attachments;
use coracle_engine::runtime::Runtime;

/// An unchanged status is sent again after this time.
const RESEND: Duration = Duration::from_secs(300);
/// Status interval while the node is not ready.
const NOT_READY_PERIOD: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_secs(1);
/// Request timeout: a lost response must not delay the next heartbeat.
const REQUEST_TIMEOUT: Duration = lease::PERIOD;

/// Limits the duration of a request.
async fn answer<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = |elapsed: tokio::time::error::Elapsed| Err(kube::Error::Service(elapsed.into()));
    tokio::time::timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(late)
}

fn version(node: &Node) -> u64 {
    node.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
}

/// Parts of the node that its status depends on.
#[derive(Clone)]
pub struct NodeParts {
    /// Settings.
    pub config: Arc<NodeConfig>,
    /// The API.
    pub client: kube::Client,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Events.
    pub events: Recorder,
    /// What pods are admitted with; kept up to date.
    pub facts: SharedFacts,
    /// Images.
    pub images: Arc<Images>,
    /// When they came to the node; kept up to date.
    pub ages: ImageAges,
    /// Network policies, where the node enforces them.
    pub policies: Option<Policies>,
    /// Volumes that are attached to the node.
    pub attachments: Arc<Attachments>,
    /// The pods, for evictions.
    pub pods: PodTable,
    /// Devices of device plugins.
    pub devices: Devices,
    /// Notified when the status should be recomputed.
    pub changed: Arc<Notify>,
}

/// The task of the Node object.
pub struct NodeReconciler {
    parts: NodeParts,
    api: Api<Node>,
    machine: Machine,
    node: Option<Node>,
    sent: NodeStatus,
    sent_at: Option<Instant>,
    sent_version: u64,
    ready: bool,
    /// Notifies the parent process when the node is ready for the first time.
    readiness: Ready,
    /// The last heartbeat failed.
    unheard: bool,
    pod_cidrs: Vec<String>,
    eviction: EvictionParts,
    evictor: eviction::Evictor,
}

impl NodeReconciler {
    /// Nothing is registered yet.
    pub fn new(parts: NodeParts, machine: Machine, readiness: Ready) -> Self {
        let api = Api::all(parts.client.clone());
        let eviction = EvictionParts {
            config: parts.config.clone(),
            runtime: parts.runtime.clone(),
            pods: parts.pods.clone(),
            ages: parts.ages.clone(),
            events: parts.events.clone(),
        };
        NodeReconciler {
            parts,
            api,
            machine,
            node: None,
            sent: NodeStatus::default(),
            sent_at: None,
            sent_version: 0,
            ready: false,
            readiness,
            unheard: false,
            pod_cidrs: vec![],
            eviction,
            evictor: eviction::Evictor::default(),
        }
    }

    /// Registers the node and keeps it up to date, until the process ends.
    pub async fn run(mut self) {
        self.register().await;
        let name = self.parts.config.name.clone();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut changes = std::pin::pin!(api_watch::watch(self.api.clone(), config).applied_objects());
        let mut beat = tokio::time::interval(lease::PERIOD);
        // A deadline: a delay restarted by every heartbeat would never expire.
        let mut due = tokio::time::Instant::now();
        let status_changed = self.parts.changed.clone();
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(Ok(node)) => self.changed(node).await,
                    Some(Err(error)) => tracing::warn!(node = name, error = %causes::chain(&error), "Node watch failed, will retry"),
                    None => return,
                },
                _ = beat.tick() => self.send_heartbeat().await,
                () = tokio::time::sleep_until(due) => {
                    self.report().await;
                    due = tokio::time::Instant::now() + if self.ready { lease::PERIOD } else { NOT_READY_PERIOD };
                }
                () = status_changed.notified() => self.report().await,
            }
        }
    }

    async fn register(&mut self) {
        loop {
            match object::register(&self.api, &self.parts.config, &self.machine.hostname).await {
                Ok(node) => {
                    tracing::info!(node = self.parts.config.name, "node registered");
                    self.parts.events.node(&node, Kind::Normal, "Starting", "Starting kubelet.");
                    self.record_reboot(&node);
                    self.changed(node).await;
                    self.report().await;
                    return;
                }
                Err(error) => {
                    tracing::warn!(node = self.parts.config.name, error = %causes::chain(&error), "node not registered, will retry");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Records an event if the machine was rebooted since the last status.
    fn record_reboot(&self, node: &Node) {
        let known = node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let known = known.map(|info| info.boot_id.as_str()).unwrap_or_default();
        let boot = &self.machine.info.boot_id;
        if !known.is_empty() && known != boot {
            let message = format!("Node {} has been rebooted, boot id: {boot}", self.parts.config.name);
            self.parts.events.node(node, Kind::Warning, "Rebooted", message);
        }
    }

    /// Records an event when the node is cordoned or uncordoned.
    fn record_schedulable(&self, node: &Node) {
        let closed = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let Some(before) = &self.node else { return };
        let reason = match (closed(before), closed(node)) {
            (false, true) => "NodeNotSchedulable",
            (true, false) => "NodeSchedulable",
            _ => return,
        };
        let message = format!("Node {} status is now: {reason}", self.parts.config.name);
        self.parts.events.node(node, Kind::Normal, reason, message);
    }

    /// Applies labels, taints and pod CIDRs of the API object.
    async fn changed(&mut self, node: Node) {
        self.record_schedulable(&node);
        {
            let mut facts = self.parts.facts.write();
            facts.labels = node.metadata.labels.clone().unwrap_or_default();
            facts.taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            let mut allocatable = status::allocatable(&self.parts.config, &self.machine);
            // Extended resources set by others are kept and counted.
            let foreign =
                node.status.as_ref().and_then(|status| status.allocatable.clone()).unwrap_or_default();
            for (key, quantity) in foreign {
                let amount = spec::amount(&key, &quantity);
                allocatable.entry(key).or_insert(amount);
            }
            facts.allocatable = allocatable;
        }
        let spec = node.spec.clone().unwrap_or_default();
        let cidrs = spec.pod_cidrs.unwrap_or_else(|| spec.pod_cidr.into_iter().collect());
        if !cidrs.is_empty() && cidrs != self.pod_cidrs {
            self.network(&cidrs).await;
            self.pod_cidrs = cidrs;
        }
        let held = node.status.clone().unwrap_or_default();
        self.parts.attachments.observe(version(&node), &held);
        if self.sent_at.is_none() {
            self.sent = held;
        } else if version(&node) >= self.sent_version && status::was_overwritten(&self.sent, &held) {
            tracing::info!(
                node = self.parts.config.name,
                "others spoke for this node, its status is sent again"
            );
            // The stored status differs now, so transition times start now.
            self.ready = held.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
            self.sent.conditions = held.conditions;
            // Not immediately: the other writer may repeat it. The next report is due soon.
            if self.sent_at.is_some_and(|at| at.elapsed() >= RETRY) {
                self.parts.changed.notify_one();
            }
        }
        self.node = Some(node);
    }

    async fn network(&self, cidrs: &[String]) {
        if let Some(dir) = &self.parts.config.cni_conf_dir {
            let config = &self.parts.config;
            let network = cni_conf::Network {
                data: &config.cni_data_dir,
                pod_cidrs: cidrs,
                mtu: network::pod_mtu(config.network, &config.ips),
                // Otherwise the agent masquerades: it knows the CIDRs of all nodes.
                masquerade: config.network == NetworkMode::None,
                bandwidth: config.cni_bin_dirs.iter().any(|dir| dir.join("bandwidth").is_file()),
            };
            match cni_conf::write(dir, &network) {
                Ok(true) => {
                    tracing::info!(node = self.parts.config.name, ?cidrs, "network configuration written")
                }
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(dir = %dir.display(), error = %causes::chain(&error), "network configuration not written")
                }
            }
        }
        if let Err(error) = self.parts.runtime.update_runtime_config(&cidrs.join(",")).await {
            tracing::debug!(error = %causes::chain(&error), "runtime rejected the pod CIDRs");
        }
    }

    async fn send_heartbeat(&mut self) {
        let uid = self.node.as_ref().and_then(|node| node.metadata.uid.as_deref());
        let name = self.parts.config.name.clone();
        let renewed = answer(lease::renew(&self.parts.client, &name, uid)).await;
        if let Err(error) = renewed {
            tracing::warn!(node = name, error = %causes::chain(&error), "lease not renewed, will retry");
            self.unheard = true;
            return;
        }
        if !self.unheard {
            return;
        }
        // The watch may detect a dead connection later: reads the Node after a failed heartbeat.
        match answer(self.api.get(&name)).await {
            Ok(node) => {
                self.unheard = false;
                self.changed(node).await;
            }
            Err(error) => {
                tracing::warn!(node = name, error = %causes::chain(&error), "node not read, will retry")
            }
        }
    }

    /// Sends the status if it changed or was not sent for a while.
    async fn report(&mut self) {
        let runtime = self.parts.runtime.status(false).await;
        let version =
            self.parts.runtime.version().await.map(|v| format!("{}://{}", v.runtime_name, v.runtime_version));
        let listed = SystemTime::now();
        let images = self.parts.runtime.list_images(None).await;
        // Without a list, no image is known to be removed.
        if let Ok(images) = &images {
            self.parts.images.settle(images, listed);
            self.parts.ages.detect(images, Instant::now());
        }
        let images = images.unwrap_or_default();
        let pressure = self.evictor.check(&self.eviction).await;
        self.parts.facts.write().pressure = pressure;
        local_storage::check(&self.eviction).await;
        let devices = self.parts.devices.amounts();
        let mut new = status::status(&StatusInput {
            config: &self.parts.config,
            machine: &self.machine,
            runtime: runtime.as_ref(),
            runtime_version: version.as_deref().unwrap_or("unknown://"),
            images: &images,
            pressure,
            shutting_down: self.parts.facts.read().shutting_down,
            policies: self.parts.policies.as_ref().map_or(Some(true), Policies::may_read),
            devices: &devices,
            previous: self.sent.conditions.as_deref().unwrap_or_default(),
            now: Timestamp::now(),
        });
        let in_use = self.parts.attachments.in_use();
        // An empty list is sent only to replace another.
        let had_some = self.sent.volumes_in_use.as_ref().is_some_and(|sent| !sent.is_empty());
        new.volumes_in_use = (had_some || !in_use.is_empty()).then_some(in_use);
        let ready = new.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
        let fresh = self.sent_at.is_some_and(|at| at.elapsed() < RESEND);
        if fresh && status::same(&self.sent, &new) {
            self.ready = ready;
            return;
        }
        let mut patch = Made::<v1::Node>::new(json!({"status": new}));
        if let Some(addresses) = patch.edit().status().addresses().list_mut() {
            // The key of this list is the type, which a node of two families has twice: no merging by it.
            addresses.push(json!({"$patch": "replace"}));
        }
        let (name, patch) = (&self.parts.config.name, Patch::Strategic(patch));
        match answer(self.api.patch_status(name, &PatchParams::default(), &patch)).await {
            Ok(node) => {
                self.sent_version = self::version(&node);
                self.parts.attachments.observe(self.sent_version, &node.status.clone().unwrap_or_default());
                if ready != self.ready {
                    let (reason, text) =
                        if ready { ("NodeReady", "NodeReady") } else { ("NodeNotReady", "NodeNotReady") };
                    let message = format!("Node {} status is now: {text}", self.parts.config.name);
                    self.parts.events.node(&node, Kind::Normal, reason, message);
                    tracing::info!(node = self.parts.config.name, ready, "node readiness");
                }
                for reason in status::changed_pressure_reasons(&self.sent, &new) {
                    let message = format!("Node {} status is now: {reason}", self.parts.config.name);
                    self.parts.events.node(&node, Kind::Normal, reason, message);
                }
                if ready {
                    self.readiness.tell();
                }
                self.ready = ready;
                self.sent = new;
                self.sent_at = Some(Instant::now());
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // The Node was deleted: registers again.
                self.sent_at = None;
                if let Err(error) =
                    object::register(&self.api, &self.parts.config, &self.machine.hostname).await
                {
                    tracing::warn!(error = %causes::chain(&error), "node not registered, will retry");
                }
            }
            Err(error) => {
                tracing::warn!(node = self.parts.config.name, error = %causes::chain(&error), "node status not reported, will retry")
            }
        }
    }
}
