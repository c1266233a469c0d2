//! `coracle server`: opens keys, store and caches, builds the API server on them, publishes what every cluster has, and
//! runs listeners, controllers and scheduler.

// Addresses and names of the server.
mod addresses;
// Keys of the server and of the cluster.
mod identity;
// Encryption at rest.
mod encryption;
// Whether the data directory is that of the datastore.
mod datastore;
// The etcd member of this server.
mod managed_etcd;
// Sockets, keys, store and caches.
mod open;
// Timelines.
mod explain;
// Samples of usage for InitialResources.
mod usage_sampling;
// Metric of feature gates.
mod features;
// The API server, from its parts.
mod build;
// Objects that the server publishes when it starts.
mod publish;
// Default roles and bindings: existing ones get what they lack.
mod bootstrap_roles;
// Default flow schemas and priority levels: existing ones are brought up to date.
mod flow_control;
// Waits for changes of files.
mod file_changes;
// Files of the operator's certificate authorities.
mod operator_cas;
// The file of identity providers.
mod authentication_config;
// Renewal of certificates, and use of a CA that was rotated.
mod renewal;
// The role of the node on this machine.
mod node_role;
// Tasks that follow objects.
mod tasks;
// Scheduler and controllers.
mod loops;

pub use addresses::dns_addresses;
pub use managed_etcd::reset_cluster;

use crate::config::Config;
use crate::join;
use crate::listeners::Listeners;
use crate::manifests;
use addresses::{own_identity, warn_unpublished};
use coracle_apiserver::tls;
use coracle_cli::health::Checks;
use coracle_cli::ready::Ready;
use coracle_cli::service::ServiceManager;
use coracle_controllers::servers::{self, Shutdown};
use futures::future::join_all;
use std::sync::atomic::Ordering;
use tasks::Tasks;
use tokio_util::sync::CancellationToken;

/// Runs the server until SIGTERM, SIGINT or SIGUSR2. After SIGUSR2 it returns its sockets for a new process.
pub async fn run(config: Config) -> anyhow::Result<Option<Listeners<std::net::TcpListener>>> {
    let readiness = Ready::inherited();
    let manager = ServiceManager::of_environment();
    let alive = tokio::spawn(manager.clone().keep_alive(Checks::default()));
    raise_descriptor_limit();
    let shutdown = Shutdown::default();
    let told = tokio::spawn({
        let (shutdown, manager) = (shutdown.clone(), manager.clone());
        async move {
            let again = wait_for_signal().await;
            if again {
                manager.reloading()
            } else {
                manager.stopping()
            }
            shutdown.restart.store(again, Ordering::Release);
            shutdown.stop.cancel();
            again
        }
    });
    datastore::check(&config)?;
    managed_etcd::check_address(&config)?;
    config.manifests.as_deref().map_or(Ok(()), manifests::check)?;
    // A server that cannot be reached is tried for a while, which a signal ends.
    tokio::select! {
        joined = join::ensure(&config) => joined?,
        () = shutdown.stop.cancelled() => return Ok(None),
    }
    let ready = move || {
        readiness.tell();
        manager.ready();
    };
    let listeners = serve(config, shutdown, ready).await?;
    alive.abort();
    Ok(if told.await? { Some(listeners.into_std()?) } else { None })
}

/// Raises the limit of open files to the hard limit: every client needs one.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls only read and write the struct on this stack.
    #[allow(unsafe_code)]
    let raised = unsafe {
        let known = libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0;
        limit.rlim_cur = limit.rlim_max;
        known && libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
    };
    if !raised {
        tracing::warn!("cannot raise the limit of open files");
    }
}

/// Waits for a signal that stops this server; whether it is to be restarted (SIGUSR2).
async fn wait_for_signal() -> bool {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut term), Ok(mut int), Ok(mut again)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::user_defined2()),
    ) else {
        return false;
    };
    tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        _ = again.recv() => true,
    }
}

/// Serves until `shutdown`; the returned sockets are still open.
async fn serve(config: Config, shutdown: Shutdown, ready: impl Fn()) -> anyhow::Result<Listeners> {
    let stop = shutdown.stop.clone();
    let opened = open::open(&config, &stop).await?;
    let built = build::build(&config, &opened, &stop)?;
    let mut tasks = Tasks::start(&config, &opened, &built).await;
    let client = &built.client;
    // A cluster that was here before answers at once; a new one must first have what every cluster has.
    let opening = CancellationToken::new();
    if client.cache(&client.kind("", "namespaces")).get("", "default").is_some() {
        opening.cancel();
    }
    let shared = config.datastore.is_shared();
    let settled = async {
        publish::publish(&config, &opened, &built, &stop).await?;
        tasks.follow_servers(&opened, &built).await;
        let mut loops = match config.api_only {
            true => {
                if config.backup.is_some() {
                    tracing::warn!(
                        "no backups are made: --backup-schedule does not go together with --api-only"
                    );
                }
                if config.manifests.is_some() {
                    tracing::warn!(
                        "no manifests are applied: --manifests does not go together with --api-only"
                    );
                }
                Vec::new()
            }
            false => loops::start(&config, &opened, &built, &stop)?,
        };
        let own = own_identity(&config, opened.bound, &opened.pki);
        warn_unpublished(&own);
        loops.push(servers::announce(client, own, shared, &opened.supervisor, &shutdown).await);
        built.server.wellknown.ready.store(true, Ordering::Release);
        tracing::info!(url = %opened.url, kubeconfig = %opened.kubeconfig.display(), "serving");
        ready();
        opening.cancel();
        anyhow::Ok(loops)
    };
    let answered = async {
        opening.cancelled().await;
        let open = std::iter::once(&opened.listeners.own).chain(&opened.listeners.front);
        let serving =
            open.map(|socket| tls::serve(socket, built.tls.clone(), built.server.clone(), stop.clone()));
        join_all(serving).await;
        Ok(())
    };
    let ((), mut loops) = tokio::try_join!(answered, settled)?;
    tasks.stop();
    for tasks in &mut loops {
        // Those who lead give their leases away, and the server withdraws its own; the others never end by themselves.
        if shared {
            let ended = async { while tasks.join_next().await.is_some() {} };
            if tokio::time::timeout(std::time::Duration::from_secs(5), ended).await.is_err() {
                tracing::warn!("control loops did not end within the shutdown time");
            }
        }
        tasks.abort_all();
    }
    opened.store.flush().await?;
    if let Some(collector) = opened.collector {
        tokio::task::spawn_blocking(move || collector.stop()).await?;
    }
    if let Some(export) = &built.export {
        export.finish().await;
    }
    // Last: everything above may still write.
    if let Some(member) = opened.member {
        member.stop().await;
    }
    Ok(opened.listeners)
}
