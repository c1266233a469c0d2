//! The controllers. Each has a pure core that plans, and a thin shell that reads caches and writes through the client.
//!
//! May depend on `coracle-informer`, `coracle-client`, `coracle-kinds`, `coracle-validation`, `coracle-pki` and
//! `coracle-store` (for its revision type). It does not depend on the API server or the scheduler.

// Numbers or percentages, such as `maxSurge: 25%`.
pub mod amount;
// Rolling updates.
pub mod rolling;
// Adoption and release by controller reference.
pub mod claim;
// Creating and deleting pods of an owner.
pub mod replicas;
// ReplicaSets and ReplicationControllers.
pub mod replicaset;
// Deployments.
pub mod deployment;
// ControllerRevisions.
pub mod history;
// StatefulSets.
pub mod statefulset;
// DaemonSets.
pub mod daemonset;
// Jobs.
pub mod job;
// CronJobs.
pub mod cronjob;
// Removal of finished Jobs.
pub mod ttl;
// HorizontalPodAutoscalers.
pub mod autoscaler;
// PodDisruptionBudgets.
pub mod disruption;
// The `default` service account and the root CA ConfigMap of every namespace.
pub mod account;
// Token Secrets of service accounts.
pub mod account_tokens;
// Deletion of namespaces.
pub mod namespace;
// Garbage collection by owner references.
pub mod gc;
// Endpoints and EndpointSlices.
pub mod endpoints;
// Address ranges and health of nodes, evictions by taint.
pub mod nodes;
// Garbage collection of pods.
pub mod podgc;
// Volumes and claims: binding, provisioning, reclaiming.
pub mod volumes;
// Usage of ResourceQuotas.
pub mod quota;
// Certificate signing requests: approval, signing, cleanup.
pub mod csr;
// Removal of expired bootstrap tokens.
pub mod bootstrap_tokens;
// Aggregated ClusterRoles.
pub mod roles;
// Status of FlowSchemas and ServiceCIDRs.
pub mod flows;
// Addresses of LoadBalancer services.
pub mod balancer;
// Identity Leases of API servers, and the endpoints of `default/kubernetes`.
pub mod servers;
// A cluster with all controllers, for tests.
#[cfg(test)]
pub(crate) mod cluster;
#[cfg(test)]
mod cluster_tests;

use coracle_informer::setup::{ClientFactory, Setup};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What the controllers need to know of the cluster.
#[derive(Clone, Default)]
pub struct Options {
    /// The certificate of the cluster's authority, in PEM; published in every namespace.
    pub ca: String,
    /// What signs the tokens in secrets of service accounts; none: such secrets wait for somebody else.
    pub keys: Option<Arc<coracle_pki::service_account::Keys>>,
    /// The pods' address ranges, one per family; nodes get pieces of them. None: somebody else gives nodes theirs.
    pub pod_ranges: Vec<nodes::ranges::Range>,
    /// What signs the certificates of nodes and clients; none: requests wait for somebody else.
    pub signer: Option<csr::Signer>,
    /// Shares of quotas that admission charged and that are not stored yet; none: nobody charges here.
    pub charges: Option<Arc<dyn coracle_client::outside::Charges>>,
    /// Who measures pods; none: the server's own `metrics.k8s.io`.
    pub metrics: Option<Arc<dyn autoscaler::metrics::Metrics>>,
    /// The nodes' own disks; none: directories of volumes stay on them.
    pub disks: Option<Arc<dyn coracle_client::outside::Disks>>,
    /// API servers of others; none: nothing of theirs is looked after.
    pub extensions: Option<Arc<dyn coracle_client::outside::Elsewhere>>,
    /// Where the queues show what they count.
    pub work: Arc<coracle_informer::work::Work>,
    /// Whether other servers write to the same store.
    pub shared_store: bool,
    /// Keeps the tasks running.
    pub supervisor: coracle_cli::supervise::Supervisor,
}

/// Starts all controllers. They end when the returned set is dropped.
pub fn start(factory: &ClientFactory, options: &Options) -> JoinSet<()> {
    let mut setup = Setup::new(factory, options.work.clone(), options.supervisor.clone());
    account::start(&mut setup, options.ca.clone());
    if let Some(keys) = &options.keys {
        account_tokens::start(&mut setup, keys.clone(), options.ca.clone());
    }
    replicaset::start(&mut setup);
    deployment::start(&mut setup);
    statefulset::start(&mut setup);
    daemonset::start(&mut setup);
    job::start(&mut setup);
    cronjob::start(&mut setup);
    ttl::start(&mut setup);
    autoscaler::start(&mut setup, options.metrics.clone());
    disruption::start(&mut setup);
    endpoints::start(&mut setup);
    balancer::start(&mut setup);
    volumes::start(&mut setup, options.disks.clone());
    roles::start(&mut setup);
    flows::start(&mut setup);
    nodes::start(&mut setup, &options.pod_ranges);
    podgc::start(&mut setup);
    if let Some(signer) = &options.signer {
        csr::start(&mut setup, signer.clone());
    }
    bootstrap_tokens::start(&mut setup);
    let quotas = quota::start(&mut setup, options.charges.clone(), options.shared_store);
    let namespaces = namespace::start(&mut setup, options.extensions.clone());
    let client = setup.client(gc::NAME);
    let watched = (setup.recorder(gc::NAME), setup.supervisor());
    let collector = gc::Collector::new(client.clone(), options.extensions.clone(), watched);
    setup.counted(gc::NAME, collector.queue());
    for _ in 0..4 {
        let collector = collector.clone();
        setup.spawn(gc::NAME, move || collector.clone().work());
    }
    let (listeners, supervisor) = (Arc::new(vec![namespaces, quotas, collector]), setup.supervisor());
    let listeners: coracle_informer::everything::Listeners = listeners;
    setup.spawn("follower of all kinds", move || {
        coracle_informer::everything::follow(client.clone(), listeners.clone(), supervisor.clone())
    });
    setup.start()
}
