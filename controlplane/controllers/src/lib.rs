//! The controllers. Each has a pure core that plans, and a thin shell that reads caches and writes through the client.
//!
//! May depend on `coracle-informer`, `coracle-client`, `coracle-kinds`, `coracle-validation`, `coracle-expressions` (for the
//! types of expressions), `coracle-pki` and `coracle-store` (for its revision type). It does not depend on the API server or the scheduler.

#![forbid(unsafe_code)]

// Numbers or percentages, such as `maxSurge: 25%`.
pub mod int_or_percent;
// Rolling updates.
pub mod rolling;
// Adoption and release by controller reference.
pub mod adoption;
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
// CA certificates that are published.
pub mod root_ca;
// The `default` service account and the root CA ConfigMap of every namespace.
pub mod service_accounts;
// Token Secrets of service accounts.
pub mod service_account_tokens;
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
// Removal of Events that nobody writes any more.
pub mod event_expiry;
// Volumes and claims: binding, provisioning, reclaiming.
pub mod volumes;
// ResourceClaims of pods: creation from templates, release.
pub mod resource_claims;
// Evictions by taints of devices.
pub mod device_taints;
// Usage of ResourceQuotas.
pub mod quota;
// Certificate signing requests: approval, signing, cleanup.
pub mod csr;
// Removal of expired bootstrap tokens.
pub mod bootstrap_tokens;
// Aggregated ClusterRoles.
pub mod roles;
// Status of FlowSchemas.
pub mod flow_schemas;
// Type errors of admission policies.
pub mod policies;
// Address ranges of Services.
pub mod service_cidrs;
// Repair of the addresses of Services.
pub mod service_addresses;
// Repair of what is written down about node ports.
pub mod service_ports;
// Addresses of LoadBalancer services.
pub mod load_balancer;
// Identity Leases of API servers, and the endpoints of `default/kubernetes`.
pub mod servers;
// A cluster with all controllers, for tests.
#[cfg(test)]
pub(crate) mod test_cluster;
#[cfg(test)]
mod cluster_tests;

use coracle_informer::setup::{ClientFactory, Setup};
use jiff::tz::TimeZone;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Options of the controllers.
#[derive(Clone, Default)]
pub struct Options {
    /// The certificates of the cluster CA; published in every namespace.
    pub ca: root_ca::RootCa,
    /// Keys for tokens in Secrets of service accounts; without them such Secrets are not filled.
    pub keys: Option<Arc<coracle_pki::service_account::Keys>>,
    /// Address ranges of pods, one per family, from which nodes get their ranges; none are allocated if empty.
    pub pod_ranges: Vec<nodes::ranges::Range>,
    /// How fast pods are evicted from nodes that have failed.
    pub eviction_rates: nodes::zones::Rates,
    /// How long Events are kept.
    pub event_ttl: event_expiry::EventTtl,
    /// Signer of node and client certificates; without it requests are not handled.
    pub signer: Option<csr::Signer>,
    /// Charges of quota admission; none without an API server in this process.
    pub charges: Option<Arc<dyn coracle_client::quota_charges::QuotaCharges>>,
    /// Ranges of the default ServiceCIDR; it is not made again without them.
    pub service_ranges: Vec<String>,
    /// Node ports that are taken; nothing is repaired without them.
    pub node_ports: Option<Arc<dyn coracle_client::node_ports::NodePorts>>,
    /// Source of metrics; by default `metrics.k8s.io` of this server, and what `extensions` serve.
    pub metrics: Option<Arc<dyn autoscaler::metrics::Metrics>>,
    /// Access to volume directories on nodes; without it they are not removed.
    pub node_volumes: Option<Arc<dyn coracle_client::node_volumes::NodeVolumes>>,
    /// Objects of aggregated API servers; without it they are ignored.
    pub extensions: Option<Arc<dyn coracle_client::aggregated::AggregatedObjects>>,
    /// Metrics of the work queues.
    pub queue_metrics: Arc<coracle_informer::queue_metrics::QueueMetrics>,
    /// Whether other servers write to the same store.
    pub shared_store: bool,
    /// The time zone of CronJobs that name none; UTC if none is set.
    pub local_time_zone: Option<TimeZone>,
    /// Restarts the tasks.
    pub supervisor: coracle_cli::supervise::Supervisor,
    /// Whether `maxUnavailable` of StatefulSets counts: the feature `MaxUnavailableStatefulSet`.
    pub max_unavailable_stateful_set: bool,
    /// Requeues after at least this delay are ignored, other than retries after failures; none are by default. Tests set it,
    /// because a periodic requeue would hide that an event was lost.
    pub ignored_delays: Option<std::time::Duration>,
}

/// Starts all controllers. They end when the returned set is dropped.
pub fn start(factory: &ClientFactory, options: &Options) -> JoinSet<()> {
    let setup = Setup::new(factory, options.queue_metrics.clone(), options.supervisor.clone());
    let mut setup = setup.ignoring_delays_from(options.ignored_delays);
    service_accounts::start(&mut setup, options.ca.clone());
    if let Some(keys) = &options.keys {
        service_account_tokens::start(&mut setup, keys.clone(), options.ca.clone());
    }
    replicaset::start(&mut setup);
    deployment::start(&mut setup);
    statefulset::start(&mut setup, options.max_unavailable_stateful_set);
    daemonset::start(&mut setup);
    job::start(&mut setup);
    cronjob::start(&mut setup, options.local_time_zone.clone().unwrap_or(TimeZone::UTC));
    ttl::start(&mut setup);
    autoscaler::start(&mut setup, options.metrics.clone(), options.extensions.clone());
    disruption::start(&mut setup);
    endpoints::start(&mut setup);
    load_balancer::start(&mut setup);
    volumes::start(&mut setup, options.node_volumes.clone());
    resource_claims::start(&mut setup);
    device_taints::start(&mut setup);
    roles::start(&mut setup);
    flow_schemas::start(&mut setup);
    policies::start(&mut setup);
    service_cidrs::start(&mut setup, &options.service_ranges);
    service_addresses::start(&mut setup);
    service_ports::start(&mut setup, options.node_ports.clone());
    nodes::start(&mut setup, &options.pod_ranges, options.eviction_rates);
    podgc::start(&mut setup);
    event_expiry::start(&mut setup, options.event_ttl);
    if let Some(signer) = &options.signer {
        csr::start(&mut setup, signer.clone());
    }
    bootstrap_tokens::start(&mut setup);
    let quotas = quota::start(&mut setup, options.charges.clone(), options.shared_store);
    let namespaces = namespace::start(&mut setup, options.extensions.clone());
    let client = setup.client(gc::IDENTITY);
    let watched = (setup.recorder(gc::IDENTITY), setup.supervisor());
    let collector = gc::Collector::new(client.clone(), options.extensions.clone(), watched);
    setup.add_queue(gc::NAME, &collector.queue());
    for _ in 0..4 {
        let collector = collector.clone();
        setup.spawn(gc::NAME, move || collector.clone().work());
    }
    let (handlers, supervisor) = (Arc::new(vec![namespaces, quotas, collector]), setup.supervisor());
    let handlers: coracle_informer::all_kinds::ObjectHandlers = handlers;
    setup.spawn("follower of all kinds", move || {
        coracle_informer::all_kinds::watch(client.clone(), handlers.clone(), supervisor.clone())
    });
    setup.start()
}
