//! Dependencies shared by all pod workers.

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
use crate::pod::table::{Message, PodTable};
use crate::pod::unsupported::Confinement;
use crate::pod::users::Users;
use crate::policy::Policies;
use crate::probe::schedule::Probes;
use crate::status::report::Reporter;
use crate::volume::token::Tokens;
use coracle_cli::supervise::Supervisor;
use coracle_engine::cgroup::Hierarchy;
use coracle_engine::runtime::Runtime;
use coracle_engine::runtime::instrumented::Operations;

/// Resources and properties of the node: cpu in thousandths, the rest in units.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Allocatable resources.
    pub allocatable: BTreeMap<String, i64>,
    /// All memory of the machine.
    pub memory: i64,
    /// The Node object's labels.
    pub labels: BTreeMap<String, String>,
    /// The Node object's taints.
    pub taints: Vec<Taint>,
    /// Resource pressure.
    pub pressure: Pressure,
    /// Security modules of its kernel.
    pub confinement: Confinement,
}

/// The node's components.
pub struct Context {
    /// Settings.
    pub config: NodeConfig,
    /// The API.
    pub client: kube::Client,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Metrics of runtime operations.
    pub operations: Arc<Operations>,
    /// Its name, the scheme of container ids.
    pub runtime_name: String,
    /// Resources and properties of the node.
    pub facts: RwLock<NodeFacts>,
    /// Events.
    pub events: Recorder,
    /// Reports pod statuses to the API server.
    pub reporter: Reporter,
    /// ConfigMaps and Secrets in use.
    pub objects: Objects,
    /// Watched state of the cluster.
    pub cluster: Cluster,
    /// Network policies, where the node enforces them.
    pub policies: Option<Policies>,
    /// Service account tokens.
    pub tokens: Tokens,
    /// Images.
    pub images: Images,
    /// Probes.
    pub probes: Probes,
    /// CPU manager, if the static policy is enabled.
    pub cpus: Option<Cpus>,
    /// Ranges of user ids.
    pub users: Users,
    /// Whether the machine is shutting down.
    pub shutdown: Shutdown,
    /// Notified when the node's status should be recomputed.
    pub node_changed: Notify,
    /// Cgroups, where the host has version 2 of them.
    pub cgroups: Option<Hierarchy>,
    /// Restarts the node's tasks after a panic.
    pub supervisor: Supervisor,
    /// Every pod of the node.
    pub pods: PodTable,
}

impl Context {
    /// Sets the cpu weights of the QoS classes from the current pods.
    pub fn update_qos_weights(&self) {
        if let Some(hierarchy) = &self.cgroups {
            let pods: Vec<_> = self.pods.list().into_iter().map(|entry| entry.pod).collect();
            qos::write_weights(hierarchy, &self.config.cgroup_parent, &pods);
        }
    }

    /// Releases the pod's exclusive cpus to the shared pool.
    pub fn release_cpus(&self, uid: &str) {
        if self.cpus.as_ref().is_some_and(|cpus| cpus.release(uid)) {
            self.refresh_shared_cpus();
        }
    }

    /// The shared cpus changed: every pod applies its resources again.
    pub fn refresh_shared_cpus(&self) {
        for uid in self.pods.uids() {
            self.pods.send(&uid, Message::Verdicts);
        }
    }
}
