//! Builds the API server, each part from those that it uses: authentication and authorization read objects, connections to
//! nodes are dialled for webhooks and aggregated servers, and the write pipeline comes before the handler chain.

use super::addresses::{node_addresses, own_identity, reachable};
use super::explain;
use super::features::FeatureMetrics;
use super::open::Opened;
use super::usage_sampling::UsageSampling;
use crate::access_control;
use crate::authentication::{Authenticators, authenticators};
use crate::backup::metrics::BackupMetrics;
use crate::backup::serve::BackupPath;
use crate::backup::source::ServerSource;
use crate::config::Config;
use crate::explain::export::Exporting;
use crate::join::serve::{JoinParts, Joining};
use crate::operations::Operations;
use crate::operations::ca::CaRotation;
use crate::operations::copy::CopyJob;
use crate::operations::status::StatusSource;
use anyhow::Context as _;
use coracle_apiserver::actions::components::LoopPlacement;
use coracle_apiserver::actions::resource_metrics::ResourceMetrics;
use coracle_apiserver::actions::{self, Needs};
use coracle_apiserver::admission::config::{Configuration, ConfigurationError};
use coracle_apiserver::admission::resource_quota::PendingCharges;
use coracle_apiserver::admission::{Chain, plugins};
use coracle_apiserver::aggregation::Extensions;
use coracle_apiserver::aggregation::routes::RouteTable;
use coracle_apiserver::api::Api;
use coracle_apiserver::authn::ca_files::OperatorCas;
use coracle_apiserver::authn::configuration::Reloader;
use coracle_apiserver::authn::front_proxy::FrontProxy;
use coracle_apiserver::authz::Authorizer;
use coracle_apiserver::authz::rbac::Rbac;
use coracle_apiserver::chain::Server;
use coracle_apiserver::connect;
use coracle_apiserver::conversion::Converter;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::in_process::InProcess;
use coracle_apiserver::metrics::{ApiMetrics, Metrics};
use coracle_apiserver::nodes::agent::Nodes;
use coracle_apiserver::nodes::dial::ClusterDialer;
use coracle_apiserver::nodes::node_tls::NodeTls;
use coracle_apiserver::nodes::relay::Peers;
use coracle_apiserver::non_resource::NonResource;
use coracle_apiserver::openapi::OpenApi;
use coracle_apiserver::pending_initializers::WaitingCreates;
use coracle_apiserver::resource::Resources;
use coracle_apiserver::slow::SlowLog;
use coracle_apiserver::tls::{self, ServingCertificate, Tls};
use coracle_apiserver::wellknown::{Issuer, WellKnown};
use coracle_apiserver::zpages::Zpages;
use coracle_cli::supervise::Supervisor;
use coracle_client::Client;
use coracle_client::diagnostics::MetricsSource;
use coracle_client::user::User;
use coracle_informer::queue_metrics::QueueMetrics;
use coracle_pki::service_account::Keys;
use coracle_scheduler::PendingReasons;
use coracle_scheduler::metrics::SchedulerMetrics;
use coracle_store::Store;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio_util::sync::CancellationToken;

/// Metrics, pending pods and panics of controllers and scheduler.
#[derive(Default)]
pub(super) struct LoopDiagnostics {
    pub(super) queue_metrics: Arc<QueueMetrics>,
    pub(super) scheduler_metrics: Arc<SchedulerMetrics>,
    pub(super) pending: PendingReasons,
    pub(super) supervisor: Supervisor,
}

/// The API server, and what its tasks share with it.
pub(super) struct Built {
    pub(super) server: Arc<Server>,
    /// The server's own client.
    pub(super) client: Client,
    pub(super) nodes: Arc<Nodes>,
    pub(super) extensions: Arc<Extensions>,
    pub(super) quota_charges: Arc<PendingCharges>,
    pub(super) diagnostics: LoopDiagnostics,
    pub(super) serving: Arc<ServingCertificate>,
    pub(super) tls: Tls,
    /// Which front proxies are trusted.
    pub(super) front_proxy: FrontProxy,
    /// The file of identity providers, if there is one.
    pub(super) authentication: Option<Arc<Reloader>>,
    pub(super) export: Option<Exporting>,
    /// What backups are made of, and their metrics.
    pub(super) backup: (ServerSource, Arc<BackupMetrics>),
    /// Rotation of the cluster CA.
    pub(super) ca: Arc<CaRotation>,
    /// Usage of nodes and pods.
    pub(super) usage: Arc<ResourceMetrics>,
    /// Its history, if InitialResources is on.
    pub(super) usage_sampling: Option<UsageSampling>,
}

/// Builds the server; nothing runs yet but what writes the audit log.
pub(super) fn build(config: &Config, opened: &Opened, stop: &CancellationToken) -> anyhow::Result<Built> {
    let Opened { pki, keys, store, objects, supervisor, .. } = opened;
    let registry = &objects.registry;
    let security = &config.security;
    let front_proxy = security.front_proxy()?;
    security.warn_of_missing_headers();
    let own = own_identity(config, opened.bound, pki);
    let Authenticators { union, issuers, reloader } =
        authenticators(security, objects, keys, front_proxy.clone(), &own.name)?;
    let authn = Arc::new(union);
    let rbac = Arc::new(Rbac::new(objects.clone()));
    let authz: Arc<dyn Authorizer> = Arc::new(access_control::authorizers(&config.security, objects, &rbac)?);

    let node_tls = NodeTls::new(objects.clone(), pki, &config.security.insecure_kubelets)?;
    let addresses = node_addresses(config, &[Some(opened.bound), opened.front])?;
    let peers = Peers::new(objects.clone(), pki.clone(), own.name);
    let nodes = Arc::new(Nodes::new(objects.clone(), node_tls, addresses, peers));
    let dialer = Arc::new(ClusterDialer::new(nodes.clone()));
    let routes = Arc::new(RouteTable::default());
    let extensions = Arc::new(Extensions::new(objects.clone(), dialer.clone(), pki.clone(), routes.clone()));

    let quota_charges = Arc::new(PendingCharges::default());
    let admission_options = admission_options(config)?;
    let usage_sampling = UsageSampling::of(&admission_options, &config.data_dir);
    let usage_sampling = usage_sampling.context("--admission-control-config-file")?;
    let plugins = plugins::Needs {
        authz: authz.clone(),
        roles: rbac,
        quota_charges: quota_charges.clone(),
        dialer: dialer.clone(),
        usage_history: usage_sampling.as_ref().map(|sampling| sampling.history.clone()),
    };
    let api = Arc::new(Api {
        objects: objects.clone(),
        store: store.clone(),
        converter: Converter::new(registry.clone(), objects.reflector.clone(), dialer),
        admission: admission(&admission_options, &plugins)?,
        hooks: actions::hooks(registry, &config.service_cidr).map_err(anyhow::Error::msg)?,
        recorder: opened.recorder,
        trace_annotations: config.recording.annotations,
        metrics: Arc::<ApiMetrics>::default(),
        waiting_creates: WaitingCreates::default(),
    });
    let usage = Arc::new(ResourceMetrics::new(nodes.clone()));
    let needs = Needs {
        keys: keys.clone(),
        authn: authn.clone(),
        authz: authz.clone(),
        usage: usage.clone(),
        loops: match (config.api_only, config.datastore.is_shared()) {
            (true, false) => LoopPlacement::Unknown,
            (false, false) => LoopPlacement::Here,
            (_, true) => LoopPlacement::Elected,
        },
        checks: opened.checks.clone(),
    };
    let actions = Arc::new(actions::actions(registry, &needs));

    let diagnostics = LoopDiagnostics { supervisor: supervisor.clone(), ..LoopDiagnostics::default() };
    let discovery = Arc::new(Discovery::new(registry.clone(), routes.clone()));
    let filters = access_control::filters(&config.security, objects, supervisor)?;
    let audit = filters.audit.clone();
    let timelines = explain::build(config, opened, &authz, stop)?;
    let mut sources: Vec<Arc<dyn MetricsSource>> = vec![
        Arc::new(filters.flow.clone()),
        diagnostics.queue_metrics.clone(),
        diagnostics.scheduler_metrics.clone(),
        api.clone(),
        issuers,
        Arc::new(FeatureMetrics::new(config.switches)),
    ];
    sources.extend(reloader.clone().map(|reloader| reloader as Arc<dyn MetricsSource>));
    sources.extend(timelines.metrics);
    let joining = Joining::new(JoinParts {
        store: opened.pausable.clone(),
        datastore: config.datastore.clone(),
        pki: pki.clone(),
        sealing: opened.sealing.clone(),
    });
    let ca = Arc::new(CaRotation {
        pki: pki.clone(),
        objects: objects.clone(),
        shared: config
            .datastore
            .is_shared()
            .then(|| (opened.pausable.clone() as Arc<dyn Store>, opened.sealing.clone())),
        running: tokio::sync::Mutex::default(),
    });
    let backup = ServerSource {
        store: opened.pausable.clone(),
        pki: pki.dir.clone(),
        encryption: opened.encryption.as_ref().and_then(|own| own.file_of_its_own()).map(Into::into),
    };
    let backup_metrics = Arc::<BackupMetrics>::default();
    if config.backup.is_some() {
        sources.push(backup_metrics.clone());
    }
    let zpages = Arc::new(Zpages::new(config.flags.clone(), discovery.clone()));
    let server = Arc::new(Server {
        registry: registry.clone(),
        openapi: OpenApi::new(registry.clone(), routes),
        extensions: extensions.clone(),
        tunnels: nodes.tunnels.clone(),
        wellknown: well_known(config, opened, &discovery, (sources, &diagnostics), stop),
        filters,
        discovery,
        resources: Resources {
            api: api.clone(),
            actions: actions.clone(),
            connectors: connect::connectors(&nodes, &authz, config.split_log_streams),
            authz: authz.clone(),
            stop: stop.clone(),
        },
        authn,
        authz,
        explain: timelines.explain,
        non_resource: vec![
            Arc::new(joining),
            operations(config, opened, &ca),
            BackupPath::shared(backup.clone()),
            zpages,
        ],
        recorder: opened.recorder,
        slow: SlowLog::new(config.recording.slow),
    });
    let serving = Arc::new(ServingCertificate::new(&pki.serving, &pki.authority())?);
    let (clients, proxies) =
        (security.client_ca_file.as_deref(), security.requestheader_client_ca_file.as_deref());
    let operator =
        OperatorCas::read(clients, proxies).context("--client-ca-file or --requestheader-client-ca-file")?;
    let tls = tls::config(pki, serving.clone(), operator)?;
    let client = Client::new(Arc::new(InProcess { api, actions, audit }), User::server());
    let export = timelines.export;
    let backup = (backup, backup_metrics);
    Ok(Built {
        server,
        client,
        nodes,
        extensions,
        quota_charges,
        diagnostics,
        serving,
        tls,
        front_proxy,
        authentication: reloader,
        export,
        backup,
        ca,
        usage,
        usage_sampling,
    })
}

/// What operators ask for.
fn operations(config: &Config, opened: &Opened, ca: &Arc<CaRotation>) -> Arc<dyn NonResource> {
    let name = own_identity(config, opened.bound, &opened.pki).name;
    Arc::new(Operations {
        ca: ca.clone(),
        copy: Arc::new(CopyJob::new(opened.pausable.clone(), opened.objects.clone(), name.clone())),
        encryption: opened.encryption.clone(),
        status: StatusSource {
            name,
            datastore: config.datastore.to_string(),
            shared: config.datastore.is_shared(),
            store: opened.pausable.clone(),
            pki: opened.pki.dir.clone(),
            supervisor: opened.supervisor.clone(),
        },
    })
}

/// Which admission plugins are on, and their settings.
fn admission_options(config: &Config) -> anyhow::Result<plugins::Options> {
    let settings = config.admission_control_config_file.as_deref().map(Configuration::read).transpose();
    let settings = settings.context("--admission-control-config-file")?;
    Ok(plugins::Options {
        enabled: config.enable_admission_plugins.clone(),
        disabled: config.disable_admission_plugins.clone(),
        configuration: settings.unwrap_or_default(),
        initializers: config.features.initializers,
    })
}

/// The admission chain, by the options.
fn admission(options: &plugins::Options, needs: &plugins::Needs) -> anyhow::Result<Chain> {
    plugins::chain(needs, options).map_err(|error| match error {
        ConfigurationError::Unknown { .. } | ConfigurationError::NeededByGate(_) => {
            anyhow::Error::from(error)
        }
        ConfigurationError::Plugin { plugin, .. } if !options.configuration.names(plugin) => {
            anyhow::Error::from(error).context("--enable-admission-plugins")
        }
        error => anyhow::Error::from(error).context("--admission-control-config-file"),
    })
}

fn well_known(
    config: &Config,
    opened: &Opened,
    discovery: &Arc<Discovery>,
    (sources, diagnostics): (Vec<Arc<dyn MetricsSource>>, &LoopDiagnostics),
    stop: &CancellationToken,
) -> WellKnown {
    // Pods ask for the keys, too, and they know nothing of a socket that was handed over.
    let url = format!("https://{}", reachable(config, opened.bound));
    WellKnown {
        objects: opened.objects.clone(),
        store: opened.store.clone(),
        discovery: discovery.clone(),
        ready: AtomicBool::new(false),
        stop: stop.clone(),
        metrics: Metrics { sources, ..Metrics::default() },
        supervisor: opened.supervisor.clone(),
        checks: opened.checks.clone(),
        waiting: Some(Arc::new(diagnostics.pending.clone())),
        issuer: issuer(config, &opened.keys, &url),
    }
}

/// What identity consumers elsewhere need to verify our tokens; nothing when the issuer is no place that they could ask.
fn issuer(config: &Config, keys: &Keys, url: &str) -> Option<Issuer> {
    if !keys.issuer().starts_with("https://") {
        tracing::warn!(
            issuer = keys.issuer(),
            "service-account keys are not published: the issuer is no https URL"
        );
        return None;
    }
    let own = || format!("{url}/openid/v1/jwks");
    let configuration = json!({
        "issuer": keys.issuer(),
        "jwks_uri": config.security.service_account_jwks_uri.clone().unwrap_or_else(own),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    });
    Some(Issuer { configuration, keys: json!({"keys": [keys.jwk()]}) })
}
