//! Opens what the server is built on: sockets, keys, store and caches.

use super::addresses::{first_service_address, names, own_identity, reachable};
use super::datastore;
use super::identity::{self, Established};
use super::managed_etcd;
use crate::authentication;
use crate::config::Config;
use crate::etcd_member::Member;
use crate::explain::record;
use crate::join::has_keys;
use crate::listeners::Listeners;
use crate::operations::encryption::Encryption;
use anyhow::Context as _;
use coracle_apiserver::actions::resource_metrics;
use coracle_apiserver::objects::Objects;
use coracle_cli::health::Checks;
use coracle_cli::supervise::Supervisor;
use coracle_kinds::registry::index::Registry;
use coracle_kinds::watch::reflector::Reflector;
use coracle_pki::Pki;
use coracle_pki::cluster_keys::SealingKey;
use coracle_pki::service_account::Keys;
use coracle_store::pause::PausableStore;
use coracle_store::{Datastore, Opening, Store};
use coracle_timeline::CollectorHandle;
use coracle_trace::Recorder;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

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
    /// Seals the keys of the cluster in a shared store, if this server has it.
    pub(super) sealing: Option<SealingKey>,
    pub(super) keys: Arc<Keys>,
    /// The path of the administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// The etcd member of this server, if it has one.
    pub(super) member: Option<Member>,
    /// The store without encryption at rest: what it has of servers is encrypted otherwise.
    pub(super) pausable: Arc<PausableStore>,
    pub(super) store: Arc<dyn Store>,
    /// Encryption at rest, if there is one.
    pub(super) encryption: Option<Arc<Encryption>>,
    pub(super) objects: Arc<Objects>,
    pub(super) supervisor: Supervisor,
    pub(super) checks: Checks,
    /// Records what happens in this server.
    pub(super) recorder: Recorder,
    /// Keeps it; `None` if nothing is recorded.
    pub(super) collector: Option<CollectorHandle>,
}

/// Opens sockets and store, and makes the keys that are not there yet. Returns when the caches are filled, or with an error when
/// the server is stopped while it waits for other members of etcd.
pub(super) async fn open(config: &Config, stop: &CancellationToken) -> anyhow::Result<Opened> {
    config.security.check()?;
    // Before anything is made; it is read again when the authenticators are built.
    authentication::configuration(&config.security)?;
    if config.features.initializers {
        // Before anything reads the table of types.
        coracle_proto::schema::enable_initializers()?;
    }
    std::fs::create_dir_all(&config.data_dir).with_context(|| format!("{}", config.data_dir.display()))?;
    let listeners = Listeners::open(config.bind)?;
    let bound = listeners.own.local_addr()?;
    let service_ip = first_service_address(&config.service_cidr)?;
    let own_names = names(config, bound, &service_ip);
    let (supervisor, checks) = (Supervisor::default(), Checks::default());
    checks.add_tasks(supervisor.clone());
    let member = match config.datastore {
        Datastore::ManagedEtcd => {
            let member = managed_etcd::member_config(config, bound)?;
            Some(managed_etcd::start(member, &checks, stop).await?)
        }
        _ => None,
    };
    let datastore = match &member {
        Some(member) => Datastore::Etcd(member.options.clone()),
        None => config.datastore.clone(),
    };
    // Opening the store takes longest; everything that does not need it is built meanwhile.
    let mut opened = tokio::spawn({
        let data_dir = config.data_dir.clone();
        let (supervisor, recording) = (supervisor.clone(), config.recording.clone());
        let (named_by, allow_empty) = (config.datastore.clone(), config.allow_empty_datastore);
        async move {
            let dir = data_dir.clone();
            let (recorder, collector) =
                tokio::task::spawn_blocking(move || record::start(&recording, &dir)).await?;
            let (datastore, data_dir) = (&datastore, data_dir.as_path());
            let opening = Opening { datastore, data_dir, supervisor: &supervisor, recorder };
            anyhow::Ok((datastore::open(opening, &named_by, allow_empty).await?, recorder, collector))
        }
    });
    let pki_dir = config.data_dir.join("pki");
    let early = if config.datastore.is_shared() && !has_keys(&pki_dir) {
        // No keys are made for a store that has those of a cluster.
        let early = (&mut opened).await??;
        identity::check_new(&*early.0, &pki_dir).await?;
        Some(early)
    } else {
        None
    };
    let life = config.security.certificate_life();
    let mut pki = Arc::new(Pki::ensure(&pki_dir, &own_names, life)?);
    let keys = Keys::from_pem(&pki.service_account_key)?;
    let keys = Arc::new(keys.of_issuers(&config.security.issuers()?));
    // With socket activation clients use that address.
    let front = listeners.front.as_ref().map(TcpListener::local_addr).transpose()?;
    let url =
        format!("https://{}", front.map_or_else(|| reachable(config, bound), |front| front.to_string()));

    let older = &config.runtime_config;
    let registry =
        Arc::new(Registry::serving(config.features, |known| older.serves(known.group, known.version)));
    let (plain_store, recorder, collector) = match early {
        Some(early) => early,
        None => opened.await??,
    };
    let pausable = Arc::new(PausableStore::new(plain_store));
    let Established { store, encryption, sealing } =
        identity::establish(config, pausable.clone(), &pki_dir, &own_identity(config, bound, &pki).name)
            .await?;
    if pki.reload_authority()? {
        // Rotated while this server was down.
        pki = Arc::new(Pki::ensure(&pki_dir, &own_names, life)?);
    }
    let initializers = config.features.initializers;
    let reflector =
        Reflector::supervised(store.clone(), registry.all(), supervisor.clone(), initializers).await?;
    let reflector = Arc::new(reflector);
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
        sealing,
        keys,
        kubeconfig,
        member,
        pausable,
        store,
        encryption,
        objects,
        supervisor,
        checks,
        recorder,
        collector,
    })
}
