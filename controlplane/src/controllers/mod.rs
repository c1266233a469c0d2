//! Control loops: each a pure core that plans and a thin shell that reads caches and writes through the client.

// API timestamps.
pub mod time;
// Wanted and told.
pub mod wire;
// Label selectors.
pub mod selector;
// Numbers or percentages.
pub mod amount;
// From one template to the next.
pub mod rolling;
// Status conditions.
pub mod conditions;
// Pod templates: equality and hash.
pub mod template;
// Pods as controllers see them.
pub mod pod;
// Adoption and release.
pub mod claim;
// The work queue.
pub mod queue;
// From changes to keys of work.
pub mod informer;
// Objects by owner and node.
pub mod index;
// Changes of all kinds.
pub mod everything;
// Events about objects.
pub mod events;
// Events on their way to the store.
pub mod recorder;
// One kind through one identity.
pub mod resource;
// The loop around a controller.
pub mod runner;
// What controllers are built from.
pub mod setup;
// Pods for an owner.
pub mod replicas;
// As many pods as wanted.
pub mod replicaset;
// ReplicaSets per template.
pub mod deployment;
// Templates that were.
pub mod history;
// Pods with names and claims.
pub mod statefulset;
// A pod on each node.
pub mod daemonset;
// Pods that end.
pub mod job;
// Jobs by the clock.
pub mod cronjob;
// Finished jobs.
pub mod ttl;
// As many pods as the load asks for.
pub mod autoscaler;
// How many pods may go.
pub mod disruption;
// What every namespace gets.
pub mod account;
// Secrets with tokens of accounts.
pub mod account_tokens;
// The end of namespaces.
pub mod namespace;
// What lost its owners.
pub mod gc;
// The pods behind services.
pub mod endpoints;
// Nodes' address ranges, health and evictions.
pub mod nodes;
// Pods that nobody would take away.
pub mod podgc;
// Claims and volumes.
pub mod volumes;
// How much of quotas is used.
pub mod quota;
// Certificate signing requests.
pub mod csr;
// Tokens of joining nodes.
pub mod bootstrap_tokens;
// Aggregated roles.
pub mod roles;
// Whether flow schemas and service ranges are in use.
pub mod flows;
// Addresses of LoadBalancer services.
pub mod balancer;
// Which of several servers acts.
pub mod election;
// A cluster for tests.
#[cfg(test)]
pub(crate) mod cluster;
#[cfg(test)]
mod cluster_tests;

use setup::{ClientFactory, Setup};
use std::sync::Arc;
use tokio::task::JoinSet;

/// What the controllers need to know of the cluster.
#[derive(Clone, Default)]
pub struct Options {
    /// The certificate of the cluster's authority, in PEM; published in every namespace.
    pub ca: String,
    /// What signs the tokens in secrets of service accounts; none: such secrets wait for somebody else.
    pub keys: Option<Arc<crate::pki::service_account::Keys>>,
    /// The pods' address ranges, one per family; nodes get pieces of them. None: somebody else gives nodes theirs.
    pub pod_ranges: Vec<nodes::ranges::Range>,
    /// What signs the certificates of nodes and clients; none: requests wait for somebody else.
    pub signer: Option<csr::Signer>,
    /// Shares of quotas that admission charged and that are not stored yet; none: nobody charges here.
    pub charges: Option<Arc<dyn crate::client::outside::Charges>>,
    /// Who measures pods; none: the server's own `metrics.k8s.io`.
    pub metrics: Option<Arc<dyn autoscaler::metrics::Metrics>>,
    /// The nodes' own disks; none: directories of volumes stay on them.
    pub disks: Option<Arc<dyn crate::client::outside::Disks>>,
    /// API servers of others; none: nothing of theirs is looked after.
    pub extensions: Option<Arc<dyn crate::client::outside::Elsewhere>>,
    /// Where the queues show what they count.
    pub work: Arc<crate::metrics::work::Work>,
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
    let listeners: everything::Listeners = listeners;
    setup.spawn("follower of all kinds", move || {
        everything::follow(client.clone(), listeners.clone(), supervisor.clone())
    });
    setup.start()
}
