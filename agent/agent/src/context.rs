//! What every pod worker works with: the parts of the node, each with its own small interface.

use k8s_openapi::api::core::v1::Taint;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

use crate::cluster::Cluster;
use crate::config::NodeConfig;
use crate::events::Recorder;
use crate::node::shutdown::Shutdown;
use crate::node::status::Pressure;
use crate::objects::Objects;
use crate::pod::cpus::Cpus;
use crate::pod::image::Images;
use crate::pod::qos;
use crate::pod::support::Confinement;
use crate::pod::table::{Message, PodTable};
use crate::pod::users::Users;
use crate::policy::Policies;
use crate::probe::wheel::Probes;
use crate::status::report::Reporter;
use crate::volume::token::Tokens;
use coracle_cli::supervise::Supervisor;
use coracle_engine::cgroup::Hierarchy;
use coracle_engine::runtime::Runtime;
use coracle_engine::runtime::counted::Operations;

/// What the node has and offers: cpu in thousandths, the rest in units.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// What pods may use.
    pub allocatable: BTreeMap<String, i64>,
    /// All memory of the machine.
    pub memory: i64,
    /// The Node object's labels.
    pub labels: BTreeMap<String, String>,
    /// The Node object's taints.
    pub taints: Vec<Taint>,
    /// What runs short.
    pub pressure: Pressure,
    /// What its kernel enforces.
    pub confinement: Confinement,
}

/// The node's parts.
pub struct Context {
    /// Settings.
    pub config: NodeConfig,
    /// The API.
    pub client: kube::Client,
    /// Whatever runs containers.
    pub runtime: Arc<dyn Runtime>,
    /// How often it was asked for what.
    pub operations: Arc<Operations>,
    /// Its name, the scheme of container ids.
    pub runtime_name: String,
    /// What the node has.
    pub facts: RwLock<NodeFacts>,
    /// Events.
    pub events: Recorder,
    /// Statuses to the API.
    pub reporter: Reporter,
    /// ConfigMaps and Secrets in use.
    pub objects: Objects,
    /// What is known of the cluster.
    pub cluster: Cluster,
    /// Network policies, where the node enforces them.
    pub policies: Option<Policies>,
    /// Service account tokens.
    pub tokens: Tokens,
    /// Images.
    pub images: Images,
    /// Probes.
    pub probes: Probes,
    /// Cpus of pods' own, where the node gives any.
    pub cpus: Option<Cpus>,
    /// Ranges of user ids.
    pub users: Users,
    /// Whether the machine goes down.
    pub shutdown: Shutdown,
    /// The node's status is to be looked at now.
    pub node_changed: Notify,
    /// Cgroups, where the host has version 2 of them.
    pub cgroups: Option<Hierarchy>,
    /// Keeps the node's tasks running.
    pub supervisor: Supervisor,
    /// Every pod of the node.
    pub pods: PodTable,
}

impl Context {
    /// Shares the cpu between the classes of pods as they are now.
    pub fn weigh_classes(&self) {
        if let Some(hierarchy) = &self.cgroups {
            let pods: Vec<_> = self.pods.list().into_iter().map(|entry| entry.pod).collect();
            qos::weigh(hierarchy, &self.config.cgroup_parent, &pods);
        }
    }

    /// The pod needs no cpus of its own any more; those who share get them.
    pub fn release_cpus(&self, uid: &str) {
        if self.cpus.as_ref().is_some_and(|cpus| cpus.release(uid)) {
            self.share_cpus();
        }
    }

    /// The shared cpus changed: every pod looks again at what it runs on.
    pub fn share_cpus(&self) {
        for uid in self.pods.uids() {
            self.pods.send(&uid, Message::Verdicts);
        }
    }
}
