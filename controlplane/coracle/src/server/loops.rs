//! Scheduler and controllers.

use super::addresses::reserved_names;
use super::build::Built;
use super::open::Opened;
use super::publish::service_ranges;
use crate::backup::schedule::{LEASE, Scheduler};
use crate::config::Config;
use crate::manifests;
use anyhow::Context as _;
use coracle_apiserver::actions::components::{CONTROLLERS, SCHEDULER};
use coracle_apiserver::node_ports::StoredNodePorts;
use coracle_client::Client;
use coracle_controllers as controllers;
use coracle_controllers::root_ca::RootCa;
use coracle_informer::election::lead;
use coracle_informer::identity::Identity;
use coracle_scheduler as scheduler;
use coracle_scheduler::config::Configuration;
use jiff::tz::TimeZone;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Starts scheduler and controllers: at once on the embedded store, by leader election on a shared one.
pub(super) fn start(
    config: &Config,
    opened: &Opened,
    built: &Built,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<JoinSet<()>>> {
    let (pki, client, diagnostics) = (&opened.pki, &built.client, &built.diagnostics);
    let ranges = config.cluster_cidr.split(',').map(|cidr| cidr.trim().parse());
    let shared = config.datastore.is_shared();
    let options = controllers::Options {
        ca: RootCa::Live(pki.authorities()),
        keys: Some(opened.keys.clone()),
        pod_ranges: ranges.collect::<Result<_, _>>().context("--cluster-cidr")?,
        eviction_rates: config.eviction_rates,
        event_ttl: config.event_ttl,
        signer: Some(controllers::csr::Signer {
            authority: pki.authorities(),
            life: config.security.certificate_life(),
            reserved: reserved_names(pki),
        }),
        charges: Some(built.quota_charges.clone()),
        service_ranges: service_ranges(config),
        node_ports: Some(Arc::new(StoredNodePorts(opened.store.clone()))),
        node_volumes: Some(built.nodes.clone()),
        extensions: Some(built.extensions.clone()),
        queue_metrics: diagnostics.queue_metrics.clone(),
        shared_store: shared,
        local_time_zone: Some(local_time_zone()),
        max_unavailable_stateful_set: config.features.max_unavailable_stateful_set,
        supervisor: diagnostics.supervisor.of_part(CONTROLLERS),
        ..controllers::Options::default()
    };
    let scheduling = match (&config.scheduler_config, &config.policy_config_file) {
        (Some(path), _) => Configuration::read(path).context("--scheduler-config")?,
        (None, Some(path)) => Configuration::read_policy(path).context("--policy-config-file")?,
        (None, None) => Configuration::default(),
    };
    let controllers = move |client: &Client| {
        let client = client.clone();
        controllers::start(&move |identity: Identity| identity.client(&client), &options)
    };
    let (metrics, pending) = (diagnostics.scheduler_metrics.clone(), diagnostics.pending.clone());
    let supervisor = diagnostics.supervisor.clone();
    let kept = supervisor.of_part(SCHEDULER);
    let scheduler =
        move |client: &Client| scheduler::start(client, scheduling.clone(), metrics.clone(), &pending, &kept);
    let (backups, applied) = (backups(config, built), applied_manifests(config, built));
    if !shared {
        let mut loops = vec![controllers(client), scheduler(client)];
        loops.extend(backups.map(|start| start()));
        loops.extend(applied.map(|start| start(client)));
        return Ok(loops);
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let me = format!("{}_{}", host.to_string_lossy(), uuid::Uuid::new_v4());
    let mut leading = JoinSet::new();
    let parts = (client.clone(), me.clone(), stop.clone(), Arc::new(controllers));
    leading.spawn(supervisor.clone().finish("election kube-controller-manager", move || {
        let (client, me, stop, run) = parts.clone();
        lead(client, "kube-controller-manager", me, stop, move |client| run(client))
    }));
    if let Some(start) = backups {
        let parts = (client.clone(), me.clone(), stop.clone(), Arc::new(start));
        leading.spawn(supervisor.clone().finish("election coracle-backup", move || {
            let (client, me, stop, start) = parts.clone();
            lead(client, LEASE, me, stop, move |_| start())
        }));
    }
    if let Some(start) = applied {
        let parts = (client.clone(), me.clone(), stop.clone(), Arc::new(start));
        leading.spawn(supervisor.clone().finish("election coracle-manifests", move || {
            let (client, me, stop, start) = parts.clone();
            lead(client, manifests::LEASE, me, stop, move |client| start(client))
        }));
    }
    let parts = (client.clone(), me, stop.clone(), Arc::new(scheduler));
    leading.spawn(supervisor.finish("election kube-scheduler", move || {
        let (client, me, stop, run) = parts.clone();
        lead(client, "kube-scheduler", me, stop, move |client| run(client))
    }));
    Ok(vec![leading])
}

/// The time zone of this machine, by `TZ` and `/etc/localtime`. A name in `TZ` that is no time zone is logged and means UTC.
fn local_time_zone() -> TimeZone {
    TimeZone::try_system().unwrap_or_else(|error| {
        tracing::warn!(%error, "no local time zone: CronJobs without timeZone follow UTC");
        TimeZone::UTC
    })
}

/// Starts the backups that the options schedule.
fn backups(config: &Config, built: &Built) -> Option<impl Fn() -> JoinSet<()> + Send + Sync + use<>> {
    let scheduled = config.backup.clone()?;
    let (source, metrics) = built.backup.clone();
    let scheduler = Scheduler { scheduled, source, metrics };
    let supervisor = built.diagnostics.supervisor.clone();
    Some(move || {
        let (scheduler, mut tasks) = (scheduler.clone(), JoinSet::new());
        tasks.spawn(supervisor.clone().keep("backups", move || scheduler.clone().run()));
        tasks
    })
}

/// Applies the manifests of the directory that the options name.
fn applied_manifests(
    config: &Config,
    built: &Built,
) -> Option<impl Fn(&Client) -> JoinSet<()> + Send + Sync + use<>> {
    let dir = config.manifests.clone()?;
    let supervisor = built.diagnostics.supervisor.clone();
    Some(move |client: &Client| manifests::start(&dir, client, &supervisor))
}
