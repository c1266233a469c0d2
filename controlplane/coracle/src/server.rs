//! `coracle server`: builds and runs keys, store, caches, handler chain and listeners.

use crate::access_control;
use crate::config::Config;
use crate::listeners::Listeners;
use anyhow::Context as _;
use coracle_apiserver::actions::components::{CONTROLLERS, LoopPlacement, SCHEDULER};
use coracle_apiserver::actions::{self, Needs};
use coracle_apiserver::admission::config::{Configuration, ConfigurationError};
use coracle_apiserver::admission::plugins;
use coracle_apiserver::admission::resource_quota::PendingCharges;
use coracle_apiserver::aggregation::{self, Extensions};
use coracle_apiserver::api::Api;
use coracle_apiserver::apiservices::ApiServiceController;
use coracle_apiserver::authz::Authorizer;
use coracle_apiserver::authz::rbac::Rbac;
use coracle_apiserver::chain::Server;
use coracle_apiserver::connect::{self, address::Addresses};
use coracle_apiserver::conversion::Converter;
use coracle_apiserver::crd::CrdController;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::metrics::Metrics;
use coracle_apiserver::openapi::OpenApi;
use coracle_apiserver::tls;
use coracle_apiserver::wellknown::WellKnown;
use coracle_cli::health::Checks;
use coracle_cli::ready::Ready;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_client::diagnostics::MetricsSource;
use coracle_client::user::User;
use coracle_controllers as controllers;
use coracle_controllers::servers::{self, Shutdown, lease::Identity};
use coracle_informer::election::lead;
use coracle_informer::queue_metrics::QueueMetrics;
use coracle_kinds::registry::bootstrap::{self, Cluster};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Kind;
use coracle_kinds::watch::reflector::Reflector;
use coracle_pki::authority::Authority;
use coracle_pki::service_account::Keys;
use coracle_pki::{Pki, kubeconfig};
use coracle_scheduler::config::Profiles;
use coracle_scheduler::metrics::SchedulerMetrics;
use coracle_scheduler::{self as scheduler, PendingReasons};
use coracle_store as store;
use futures::{StreamExt, TryStreamExt, future::join_all};
use serde_json::json;
use std::convert::identity;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Runs the server until SIGTERM, SIGINT or SIGUSR2. After SIGUSR2 it returns its sockets for a new process.
pub async fn run(config: Config) -> anyhow::Result<Option<Listeners<std::net::TcpListener>>> {
    let readiness = Ready::inherited();
    raise_descriptor_limit();
    let shutdown = Shutdown::default();
    let told = tokio::spawn({
        let shutdown = shutdown.clone();
        async move {
            let again = wait_for_signal().await;
            shutdown.restart.store(again, Ordering::Release);
            shutdown.stop.cancel();
            again
        }
    });
    let listeners = serve(config, shutdown, readiness).await?;
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
async fn serve(config: Config, shutdown: Shutdown, readiness: Ready) -> anyhow::Result<Listeners> {
    let stop = shutdown.stop.clone();
    config.security.check()?;
    std::fs::create_dir_all(&config.data_dir).with_context(|| format!("{}", config.data_dir.display()))?;
    let listeners = Listeners::open(config.bind)?;
    let bound = listeners.own.local_addr()?;
    let service_ip = first_service_address(&config.service_cidr)?;
    let own_names = names(&config, bound, &service_ip);
    let (supervisor, checks) = (Supervisor::default(), Checks::default());
    checks.add_tasks(supervisor.clone());
    // Opening the store takes longest; everything that does not need it is built meanwhile.
    let opened = tokio::spawn({
        let (datastore, data_dir) = (config.datastore.clone(), config.data_dir.clone());
        let supervisor = supervisor.clone();
        async move { store::supervised(&datastore, &data_dir, &supervisor).await }
    });
    let life = config.security.certificate_life();
    let pki = Arc::new(Pki::ensure(&config.data_dir.join("pki"), &own_names, life)?);
    let keys = Keys::from_pem(&pki.service_account_key)?;
    let keys = Arc::new(keys.of_issuers(&config.security.issuers()?));
    // With socket activation clients use that address.
    let front = listeners.front.as_ref().map(TcpListener::local_addr).transpose()?;
    let url =
        format!("https://{}", front.map_or_else(|| reachable(&config, bound), |front| front.to_string()));

    let registry = Arc::new(Registry::builtin());
    let store = opened.await??;
    let store = access_control::encrypted_store(&config.security, store).await?;
    let reflector = Arc::new(Reflector::supervised(store.clone(), registry.all(), supervisor.clone()).await?);
    connect::resource_metrics::register(&registry);
    let usage = Arc::new(connect::resource_metrics::ResourceMetrics::default());
    let access = Arc::new(actions::reviews::Access::default());
    let needs = Needs {
        keys: keys.clone(),
        access: access.clone(),
        service_cidr: config.service_cidr.clone(),
        usage: usage.clone(),
        loops: match (config.api_only, config.datastore.as_str()) {
            (true, "embedded") => LoopPlacement::Unknown,
            (false, "embedded") => LoopPlacement::Here,
            _ => LoopPlacement::Elected,
        },
        checks: checks.clone(),
    };
    let quota_charges = Arc::new(PendingCharges::default());
    let dialer = Arc::new(connect::dial::ClusterDialer::default());
    let settings = config.admission_control_config_file.as_deref().map(Configuration::read).transpose();
    let settings = settings.context("--admission-control-config-file")?;
    let admission = plugins::chain(&plugins::Needs {
        access: access.clone(),
        quota_charges: quota_charges.clone(),
        dialer: dialer.clone(),
        enabled: config.enable_admission_plugins.clone(),
        disabled: config.disable_admission_plugins.clone(),
        configuration: settings.unwrap_or_default(),
    });
    let admission = admission.map_err(|error| match error {
        ConfigurationError::Unknown { .. } => anyhow::Error::from(error),
        error => anyhow::Error::from(error).context("--admission-control-config-file"),
    })?;
    let api = Arc::new(Api {
        hooks: actions::hooks(&registry, &needs).map_err(anyhow::Error::msg)?,
        actions: actions::actions(&registry, &needs),
        converter: Converter::new(registry.clone(), reflector.clone(), dialer.clone()),
        registry: registry.clone(),
        store,
        reflector,
        admission,
    });

    let authn = Arc::new(access_control::authenticators(&config.security, &api, &keys)?);
    let rbac = Arc::new(Rbac::new(api.clone()));
    let authz: Arc<dyn Authorizer> = Arc::new(access_control::authorizers(&config.security, &api, &rbac)?);
    let _ = access.rbac.set(rbac);
    let _ = access.authz.set(authz.clone());
    let _ = access.authn.set(Arc::downgrade(&authn));
    let node_tls = connect::node_tls::NodeTls::new(api.clone(), &pki, &config.security.insecure_kubelets)?;
    let addresses = node_addresses(&config, &[Some(bound), front])?;
    let nodes = Arc::new(connect::node::Nodes::new(api.clone(), node_tls, addresses));
    usage.connect(&nodes);
    dialer.connect(&nodes);
    let elsewhere = Arc::new(aggregation::routes::RouteTable::default());
    let extensions = Arc::new(Extensions::new(api.clone(), dialer, pki.clone(), elsewhere.clone()));
    let diagnostics = LoopDiagnostics { supervisor: supervisor.clone(), ..LoopDiagnostics::default() };
    let server = Arc::new(Server {
        api: api.clone(),
        filters: access_control::filters(&config.security, &api, &supervisor)?,
        authn,
        authz,
        discovery: Discovery::new(registry.clone(), elsewhere.clone()),
        openapi: OpenApi::new(registry, elsewhere),
        extensions: extensions.clone(),
        tunnels: nodes.tunnels.clone(),
        connectors: connect::connectors(nodes.clone()),
        wellknown: WellKnown {
            // Pods ask for the keys, too, and they know nothing of a socket that was handed over.
            issuer: issuer(&config, &keys, &format!("https://{}", reachable(&config, bound))),
            stop: stop.clone(),
            supervisor: supervisor.clone(),
            checks,
            metrics: Metrics {
                loops: vec![
                    diagnostics.queue_metrics.clone() as Arc<dyn MetricsSource>,
                    diagnostics.scheduler_metrics.clone(),
                ],
                ..Metrics::default()
            },
            waiting: Some(Arc::new(diagnostics.pending.clone())),
            ..WellKnown::default()
        },
    });

    let client = Client::new(api.clone(), User::server());
    let definitions = CrdController::start(api.clone(), client.clone(), supervisor.clone()).await;
    let serving = Arc::new(tls::ServingCertificate::new(&pki.serving, &pki.authority.certificate)?);
    let tls = tls::config(&pki, serving.clone())?;
    let path = config.data_dir.join("admin.kubeconfig");
    let mut custom = JoinSet::new();
    let parts = (client.clone(), supervisor.clone());
    let registering = api.clone();
    let start = move |client, supervisor| CrdController::start(registering, client, supervisor);
    let run = CrdController::run;
    custom.spawn(keep_following("definitions", definitions, parts, start, run));
    let (revocations, maps) = (tls.revocations.clone(), client.cache(&client.kind("", "configmaps")));
    let follow = move || revocations.clone().follow(maps.clone());
    custom.spawn(supervisor.clone().keep("revocations", follow));
    let parts = (pki.clone(), serving, path.clone(), url.clone());
    let renewal = supervisor.spawn("certificate-renewal", move || {
        let (pki, serving, path, url) = parts.clone();
        renew(pki, serving, path, url)
    });
    let memory = supervisor.spawn("memory", coracle_cli::memory::release_unused);
    // A cluster that was here before answers at once; a new one must first have what every cluster has.
    let opening = CancellationToken::new();
    if client.cache(&client.kind("", "namespaces")).get("", "default").is_some() {
        opening.cancel();
    }
    let settled = async {
        bootstrap(&client, &config, bound, &service_ip).await?;
        publish_authentication(&client, &config, &pki).await?;
        kubeconfig::write(&path, &url, &pki.authority.certificate, "admin", &pki.admin)?;
        publish_cluster(&client, &url, &pki.authority.certificate).await?;
        let registrations = ApiServiceController::start(client.clone(), supervisor.clone()).await;
        let parts = (client.clone(), supervisor.clone());
        let (start, run) = (ApiServiceController::start, ApiServiceController::run);
        custom.spawn(keep_following("registrations", registrations, parts.clone(), start, run));
        // Aggregated API servers that are known by now are in the table before this server says that it is ready.
        let known = extensions.clone();
        let first = aggregation::watch_availability(known.clone(), client.clone(), supervisor.clone());
        let start =
            move |client, supervisor| ready(aggregation::watch_availability(known, client, supervisor));
        custom.spawn(keep_following("aggregation", first, parts, start, identity));
        let shown = &server.wellknown;
        let mut loops = match config.api_only {
            true => Vec::new(),
            false => start_loops(
                &client,
                &config,
                &pki,
                (quota_charges, keys, nodes, extensions),
                &diagnostics,
                &stop,
            )?,
        };
        let shared = config.datastore != "embedded";
        let own = own_identity(&config, bound, &pki);
        loops.push(servers::announce(&client, own, shared, &supervisor, &shutdown).await);
        shown.ready.store(true, Ordering::Release);
        tracing::info!(%url, kubeconfig = %path.display(), "serving");
        readiness.tell();
        opening.cancel();
        anyhow::Ok(loops)
    };
    let answered = async {
        opening.cancelled().await;
        let open = std::iter::once(&listeners.own).chain(&listeners.front);
        join_all(open.map(|door| tls::serve(door, tls.clone(), server.clone(), stop.clone()))).await;
        Ok(())
    };
    let ((), mut loops) = tokio::try_join!(answered, settled)?;
    renewal.abort();
    memory.abort();
    for tasks in &mut loops {
        // Those who lead give their leases away, and the server withdraws its own; the others never end by themselves.
        if config.datastore != "embedded" {
            let ended = async { while tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(std::time::Duration::from_secs(5), ended).await;
        }
        tasks.abort_all();
    }
    api.store.flush().await?;
    Ok(listeners)
}

/// Where nodes can be: not where the API itself is. A cluster whose API is at a loopback address lives on one machine, and so
/// do its nodes.
fn node_addresses(config: &Config, bound: &[Option<SocketAddr>]) -> anyhow::Result<Addresses> {
    let services = actions::service_addresses::ServiceAddresses::new(&config.service_cidr)
        .map_err(anyhow::Error::msg)?;
    let mut own: Vec<SocketAddr> = bound.iter().flatten().copied().collect();
    let said = reachable(config, own[0]);
    own.extend(said.parse::<SocketAddr>());
    let host = host_of(&said).trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    Ok(Addresses::new(services, own, loopback))
}

/// Keeps a follower of objects running: the `first`, which has looked at what there is, and after a failure one that is
/// started anew and looks at everything again.
fn keep_following<T, S, F>(
    task: &'static str,
    first: T,
    (client, supervisor): (Client, Supervisor),
    start: impl FnOnce(Client, Supervisor) -> S + Clone + Send,
    run: impl FnOnce(T) -> F + Clone + Send,
) -> impl Future<Output = ()> + Send
where
    T: Send,
    S: Future<Output = T> + Send,
    F: Future<Output = ()> + Send,
{
    let (mut first, parts) = (Some(first), (client, supervisor.clone()));
    supervisor.keep(task, move || {
        let (first, (client, supervisor)) = (first.take(), parts.clone());
        let (start, run) = (start.clone(), run.clone());
        async move {
            let follower = match first {
                Some(follower) => follower,
                None => start(client, supervisor).await,
            };
            run(follower).await;
        }
    })
}

/// Renews the certificates of server and administrator before they end; the next handshake shows the new one.
async fn renew(pki: Arc<Pki>, serving: Arc<tls::ServingCertificate>, kubeconfig: PathBuf, url: String) {
    let authority = &pki.authority.certificate;
    loop {
        tokio::time::sleep(pki.renewal_period()).await;
        let renewed = pki.renewed().map_err(anyhow::Error::from).and_then(|(server, admin)| {
            serving.replace(&server, authority)?;
            Ok(kubeconfig::write(&kubeconfig, &url, authority, "admin", &admin)?)
        });
        if let Err(error) = renewed {
            tracing::error!(%error, "cannot renew certificates");
        }
    }
}

/// Tells aggregated API servers whose certificates and headers to believe.
async fn publish_authentication(client: &Client, config: &Config, pki: &Pki) -> anyhow::Result<()> {
    use coracle_apiserver::authn::front_proxy::{EXTRA, GROUP, UID, USER};
    let list = |header: &str| json!([header]).to_string();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
    "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
    "data": {
        "client-ca-file": pki.authority.certificate,
        "requestheader-allowed-names": json!(config.security.requestheader_allowed_names).to_string(),
        "requestheader-client-ca-file": pki.front_proxy.certificate,
        "requestheader-extra-headers-prefix": list(EXTRA),
        "requestheader-group-headers": list(GROUP),
        "requestheader-uid-headers": list(UID),
        "requestheader-username-headers": list(USER),
    }});
    replace(client, map).await
}

/// Publishes the URL and the CA of the cluster in `kube-public`, for joining nodes.
async fn publish_cluster(client: &Client, url: &str, authority: &str) -> anyhow::Result<()> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster":
        {"server": url, "certificate-authority-data": STANDARD.encode(authority)}}]});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()}});
    replace(client, map).await
}

/// Metrics, pending pods and panics of controllers and scheduler.
#[derive(Default)]
struct LoopDiagnostics {
    queue_metrics: Arc<QueueMetrics>,
    scheduler_metrics: Arc<SchedulerMetrics>,
    pending: PendingReasons,
    supervisor: Supervisor,
}

/// Starts scheduler and controllers: at once on the embedded store, by leader election on a shared one.
fn start_loops(
    client: &Client,
    config: &Config,
    pki: &Pki,
    (quota_charges, keys, nodes, extensions): (
        Arc<PendingCharges>,
        Arc<Keys>,
        Arc<connect::node::Nodes>,
        Arc<Extensions>,
    ),
    diagnostics: &LoopDiagnostics,
    stop: &CancellationToken,
) -> anyhow::Result<Vec<JoinSet<()>>> {
    let ranges = config.cluster_cidr.split(',').map(|cidr| cidr.trim().parse());
    let shared = config.datastore != "embedded";
    let options = controllers::Options {
        ca: pki.authority.certificate.clone(),
        keys: Some(keys),
        pod_ranges: ranges.collect::<Result<_, _>>().context("--cluster-cidr")?,
        signer: Some(controllers::csr::Signer {
            authority: Arc::new(Authority::ensure(&pki.dir, "ca", "coracle-ca")?),
            life: config.security.certificate_life(),
            reserved: reserved_names(pki),
        }),
        charges: Some(quota_charges),
        node_volumes: Some(nodes),
        extensions: Some(extensions),
        queue_metrics: diagnostics.queue_metrics.clone(),
        shared_store: shared,
        supervisor: diagnostics.supervisor.of_part(CONTROLLERS),
        ..controllers::Options::default()
    };
    let profiles = config.scheduler_config.as_deref().map(Profiles::read).transpose()?.unwrap_or_default();
    let (for_controllers, for_scheduler) = (client.clone(), client.clone());
    let controllers = move || {
        let client = for_controllers.clone();
        controllers::start(&move |name: &str| client.controller(name), &options)
    };
    let (metrics, pending) = (diagnostics.scheduler_metrics.clone(), diagnostics.pending.clone());
    let supervisor = diagnostics.supervisor.clone();
    let kept = supervisor.of_part(SCHEDULER);
    let scheduler =
        move || scheduler::start(&for_scheduler, profiles.clone(), metrics.clone(), &pending, &kept);
    if !shared {
        return Ok(vec![controllers(), scheduler()]);
    }
    let host = nix::unistd::gethostname().unwrap_or_default();
    let me = format!("{}_{}", host.to_string_lossy(), uuid::Uuid::new_v4());
    let mut leading = JoinSet::new();
    let parts = (client.clone(), me.clone(), stop.clone(), Arc::new(controllers));
    leading.spawn(supervisor.clone().finish("election kube-controller-manager", move || {
        let (client, me, stop, run) = parts.clone();
        lead(client, "kube-controller-manager", me, stop, move || run())
    }));
    let parts = (client.clone(), me, stop.clone(), Arc::new(scheduler));
    leading.spawn(supervisor.finish("election kube-scheduler", move || {
        let (client, me, stop, run) = parts.clone();
        lead(client, "kube-scheduler", me, stop, move || run())
    }));
    Ok(vec![leading])
}

fn first_service_address(cidr: &str) -> anyhow::Result<String> {
    let range = actions::service_addresses::ServiceAddresses::new(cidr).map_err(anyhow::Error::msg)?;
    Ok(range.first().to_string())
}

/// Where nodes answer DNS for ranges of Service addresses.
pub fn dns_addresses(cidrs: &str) -> Vec<String> {
    let ranges = actions::service_addresses::ServiceAddresses::new(cidrs);
    ranges.map_or_else(|_| Vec::new(), |ranges| ranges.dns().iter().map(ToString::to_string).collect())
}

/// The names of the serving certificate.
fn names(config: &Config, bound: SocketAddr, service_ip: &str) -> Vec<String> {
    let mut names: Vec<String> = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    names.push("kubernetes.default.svc.cluster.local".into());
    names.push("127.0.0.1".into());
    names.push(service_ip.into());
    if !bound.ip().is_unspecified() {
        names.push(bound.ip().to_string());
    }
    names.extend(config.advertise.iter().map(|a| host_of(a).to_owned()));
    names.extend(config.tls_san.iter().cloned());
    names.sort();
    names.dedup();
    names
}

fn host_of(advertise: &str) -> &str {
    match advertise.parse::<IpAddr>() {
        Ok(_) => advertise,
        Err(_) => advertise.rsplit_once(':').map_or(advertise, |(host, _)| host),
    }
}

/// Host and port that clients use.
fn reachable(config: &Config, bound: SocketAddr) -> String {
    match &config.advertise {
        Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]:{}", bound.port()),
        Some(host) if host.contains(':') => host.clone(),
        Some(host) => format!("{host}:{}", bound.port()),
        None if bound.ip().is_unspecified() => format!("127.0.0.1:{}", bound.port()),
        None => bound.to_string(),
    }
}

/// What identity consumers elsewhere need to verify our tokens; nothing when the issuer is no place that they could ask.
fn issuer(config: &Config, keys: &Keys, url: &str) -> serde_json::Value {
    if !keys.issuer().starts_with("https://") {
        tracing::warn!(
            issuer = keys.issuer(),
            "service-account keys are not published: the issuer is no https URL"
        );
        return serde_json::Value::Null;
    }
    let own = || format!("{url}/openid/v1/jwks");
    json!({
        "configuration": {
            "issuer": keys.issuer(),
            "jwks_uri": config.security.service_account_jwks_uri.clone().unwrap_or_else(own),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        },
        "keys": {"keys": [keys.jwk()]},
    })
}

/// The names of the serving certificate that mean this server to others, too.
fn reserved_names(pki: &Pki) -> Vec<String> {
    pki.names().iter().filter(|name| *name != "localhost").cloned().collect()
}

/// Who this server is to the other servers of the cluster.
fn own_identity(config: &Config, bound: SocketAddr, pki: &Pki) -> Identity {
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let (reached, listens) = (reachable(config, bound), bound.to_string());
    Identity::new(&[&host, &reached, &listens], advertised(config, bound), reserved_names(pki))
}

/// Where other machines reach this server. Loopback is nowhere to them.
fn advertised(config: &Config, bound: SocketAddr) -> Option<SocketAddr> {
    let said = reachable(config, bound).parse::<SocketAddr>().ok();
    let address = said.or_else(|| (!bound.ip().is_unspecified()).then_some(bound))?;
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    (!address.ip().is_loopback()).then_some(address)
}

/// Makes what every cluster has from its first moment and is not there yet.
async fn bootstrap(
    client: &Client,
    config: &Config,
    bound: SocketAddr,
    service_ip: &str,
) -> anyhow::Result<()> {
    let ranges: Vec<String> = config.service_cidr.split(',').map(|range| range.trim().to_owned()).collect();
    let cluster = Cluster { service_ranges: &ranges, service_address: service_ip, port: bound.port() };
    // Namespaces first; the rest does not depend on order, and together it costs a few commits instead of hundreds.
    let (namespaces, rest): (Vec<_>, Vec<_>) =
        bootstrap::objects(&cluster).into_iter().partition(|object| object["kind"] == "Namespace");
    for objects in [namespaces, rest] {
        let made = futures::stream::iter(objects.into_iter().map(|object| ensure(client, object)));
        made.buffer_unordered(64).try_collect::<()>().await?;
    }
    let addresses = dns_addresses(&config.service_cidr);
    if !addresses.is_empty()
        && let Err(error) = ensure(client, bootstrap::dns(&addresses)).await
    {
        // A cluster from before may have given an address to somebody else.
        tracing::warn!(?addresses, %error, "cannot create the kube-dns Service");
    }
    Ok(())
}

fn kind_of(client: &Client, object: &serde_json::Value) -> anyhow::Result<Arc<Kind>> {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().unwrap_or_default();
    client.registry().kind(group, version, kind).with_context(|| format!("{kind} is in the table of kinds"))
}

/// Creates an object unless one of its name is there.
async fn ensure(client: &Client, object: serde_json::Value) -> anyhow::Result<()> {
    let kind = kind_of(client, &object)?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if client.get(&kind, &namespace, name).await.is_ok() {
        return Ok(());
    }
    match client.create(&kind, &namespace, object).await {
        Err(error) if !error.is_already_exists() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Creates an object, or makes the one of its name look like it.
async fn replace(client: &Client, object: serde_json::Value) -> anyhow::Result<()> {
    let kind = kind_of(client, &object)?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match client.create(&kind, &namespace, object.clone()).await {
        Err(error) if error.is_already_exists() => {
            client.update(&kind, &namespace, &name, "", object).await?;
            Ok(())
        }
        other => Ok(other.map(|_| ())?),
    }
}
