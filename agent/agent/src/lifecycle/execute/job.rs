//! A job: the actions of one plan.

use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::claims::Claims;
use crate::config::NodeConfig;
use crate::devices::Devices;
use crate::events::Recorder;
use crate::image::Images;
use crate::lifecycle::hooks::RunningHooks;
use crate::lifecycle::network::PodNetwork;
use crate::lifecycle::resources::NodeResources;
use crate::objects::Objects;
use crate::pod::observed::Observed;
use crate::pod::plan::Start;
use crate::pod::spec;
use crate::trace::metrics::NodeMetrics;
use crate::volume::prepare::Prepared;
use crate::volume::volumes::Volumes;
use coracle_engine::runtime::Runtime;

/// What jobs of all pods work with.
pub struct Executor {
    /// Settings.
    pub config: Arc<NodeConfig>,
    /// The API, for RuntimeClasses.
    pub client: kube::Client,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Events.
    pub events: Recorder,
    /// cgroups, cpus and user ids.
    pub resources: NodeResources,
    /// Devices of device plugins.
    pub devices: Devices,
    /// ResourceClaims.
    pub claims: Claims,
    /// Volumes.
    pub volumes: Volumes,
    /// ConfigMaps and Secrets in use.
    pub objects: Arc<Objects>,
    /// Images.
    pub images: Arc<Images>,
    /// Network policies and Services.
    pub network: PodNetwork,
    /// Durations of operations.
    pub metrics: Arc<NodeMetrics>,
}

/// A job of a pod worker.
pub struct Job {
    /// What it works with.
    pub executor: Arc<Executor>,
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
    /// Prepares the volumes even if nothing is to be started: containers that an earlier agent started use them.
    pub adopt_volumes: bool,
    /// The volumes failed before: creates the sandbox after them instead of in parallel.
    pub volumes_failed: bool,
    /// Addresses of the sandbox that this job made.
    pub addresses: Option<Vec<String>>,
    /// The postStart hooks that it runs.
    pub hooks: RunningHooks,
    /// Cancels waits; started operations are completed.
    pub cancel: CancellationToken,
    /// When it was spawned, until its first step.
    pub spawned: Option<Instant>,
}

impl Job {
    /// The pod's addresses.
    pub(in crate::lifecycle) fn ips(&self) -> Vec<String> {
        if spec::spec(&self.pod).host_network == Some(true) {
            return self.executor.config.ips.clone();
        }
        if let Some(addresses) = &self.addresses {
            return addresses.clone();
        }
        self.observed.ready_sandbox().map(|sandbox| sandbox.ips.clone()).unwrap_or_default()
    }
}
