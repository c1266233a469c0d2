//! Opens what the server is built on: sockets, keys, store and caches.

use super::addresses::{first_service_address, names, reachable};
use crate::access_control;
use crate::config::Config;
use crate::explain::record;
use crate::listeners::Listeners;
use anyhow::Context as _;
use coracle_apiserver::actions::resource_metrics;
use coracle_apiserver::objects::Objects;
use coracle_cli::health::Checks;
use coracle_cli::supervise::Supervisor;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::watch::reflector::Reflector;
use coracle_pki::Pki;
use coracle_pki::service_account::Keys;
use coracle_store::{Opening, Store};
use coracle_timeline::CollectorHandle;
use coracle_trace::Recorder;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What the server is built on.
pub(super) struct Opened {
    pub(super) listeners: Listeners,
    /// The address that the own socket is bound to.
    pub(super) bound: SocketAddr,
    /// The address of the socket that was passed in by socket activation.
    pub(super) front: Option<SocketAddr>,
    /// Where clients reach the server.
    pub(super) url: String,
    /// The address of the `kubernetes` Service.
    pub(super) service_ip: String,
    pub(super) pki: Arc<Pki>,
    pub(super) keys: Arc<Keys>,
    /// The path of the administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    pub(super) store: Arc<dyn Store>,
    pub(super) objects: Arc<Objects>,
    pub(super) supervisor: Supervisor,
    pub(super) checks: Checks,
    /// Records what happens in this server.
    pub(super) recorder: Recorder,
    /// Keeps it; `None` if nothing is recorded.
    pub(super) collector: Option<CollectorHandle>,
}

/// Opens sockets and store, and makes the keys that are not there yet. Returns when the caches are filled.
pub(super) async fn open(config: &Config) -> anyhow::Result<Opened> {
    config.security.check()?;
    std::fs::create_dir_all(&config.data_dir).with_context(|| format!("{}", config.data_dir.display()))?;
    let listeners = Listeners::open(config.bind)?;
    let bound = listeners.own.local_addr()?;
    let service_ip = first_service_address(&config.service_cidr)?;
    let own_names = names(config, bound, &service_ip);
    let (supervisor, checks) = (Supervisor::default(), Checks::default());
    checks.add_tasks(supervisor.clone());
    // Opening the store takes longest; everything that does not need it is built meanwhile.
    let opened = tokio::spawn({
        let (datastore, data_dir) = (config.datastore.clone(), config.data_dir.clone());
        let (supervisor, recording) = (supervisor.clone(), config.recording.clone());
        async move {
            let dir = data_dir.clone();
            let (recorder, collector) =
                tokio::task::spawn_blocking(move || record::start(&recording, &dir)).await?;
            let (datastore, data_dir) = (&datastore, data_dir.as_path());
            let opening = Opening { datastore, data_dir, supervisor: &supervisor, recorder };
            anyhow::Ok((opening.open().await?, recorder, collector))
        }
    });
    let life = config.security.certificate_life();
    let pki = Arc::new(Pki::ensure(&config.data_dir.join("pki"), &own_names, life)?);
    let keys = Keys::from_pem(&pki.service_account_key)?;
    let keys = Arc::new(keys.of_issuers(&config.security.issuers()?));
    // With socket activation clients use that address.
    let front = listeners.front.as_ref().map(TcpListener::local_addr).transpose()?;
    let url =
        format!("https://{}", front.map_or_else(|| reachable(config, bound), |front| front.to_string()));

    let registry = Arc::new(Registry::builtin());
    let (store, recorder, collector) = opened.await??;
    let store = access_control::encrypted_store(&config.security, store).await?;
    let reflector = Arc::new(Reflector::supervised(store.clone(), registry.all(), supervisor.clone()).await?);
    resource_metrics::register(&registry);
    let objects = Arc::new(Objects::new(registry, store.clone(), reflector));
    let kubeconfig = config.data_dir.join("admin.kubeconfig");
    Ok(Opened {
        listeners,
        bound,
        front,
        url,
        service_ip,
        pki,
        keys,
        kubeconfig,
        store,
        objects,
        supervisor,
        checks,
        recorder,
        collector,
    })
}
