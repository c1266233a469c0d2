//! Timelines of the server: answers, deliveries of agents, export and their metrics, if anything is recorded.

use super::addresses::{own_identity, reachable};
use super::open::Opened;
use crate::config::Config;
use crate::explain::counters::{ExportCounters, IngestCounters};
use crate::explain::export::{self, ExportParts, Exporting};
use crate::explain::ingest::Ingest;
use crate::explain::metrics::TraceMetrics;
use crate::explain::peers::ServerPeers;
use crate::explain::placement::Placement;
use crate::explain::serve::{ExplainParts, Explainer};
use anyhow::Context as _;
use coracle_apiserver::authz::Authorizer;
use coracle_apiserver::explain::Explain;
use coracle_apiserver::nodes::relay::Peers;
use coracle_client::diagnostics::MetricsSource;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Answers about the timeline, its metrics, and its export.
#[derive(Default)]
pub(super) struct Timelines {
    pub(super) explain: Option<Arc<dyn Explain>>,
    pub(super) metrics: Option<Arc<dyn MetricsSource>>,
    pub(super) export: Option<Exporting>,
}

/// Builds the answers, and starts the export if there is one.
pub(super) fn build(
    config: &Config,
    opened: &Opened,
    authz: &Arc<dyn Authorizer>,
    stop: &CancellationToken,
) -> anyhow::Result<Timelines> {
    let Some(collector) = &opened.collector else {
        if config.recording.otlp.is_some() {
            tracing::warn!("spans are not exported: nothing is recorded");
        }
        return Ok(Timelines::default());
    };
    let objects = &opened.objects;
    let (delivered, exported) = (Arc::<IngestCounters>::default(), Arc::<ExportCounters>::default());
    let placement = Placement::new(objects.clone(), collector.clone());
    let ingest = Arc::new(Ingest::new(collector.clone(), placement, delivered.clone()));
    let mut export = None;
    if let Some(options) = &config.recording.otlp {
        let parts = ExportParts {
            options: options.clone(),
            collector: collector.clone(),
            instance: reachable(config, opened.bound),
            host: nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned(),
            objects: objects.clone(),
            counters: exported.clone(),
        };
        export = Some(export::start(parts, &opened.supervisor).context("--otlp-endpoint")?);
    }
    let metrics = TraceMetrics { collector: collector.clone(), ingest: ingest.clone(), delivered, exported };
    let explain = Explainer::new(ExplainParts {
        collector: collector.clone(),
        objects: objects.clone(),
        authz: authz.clone(),
        peers: peers(config, opened),
        ingest,
        stop: stop.clone(),
    });
    Ok(Timelines { explain: Some(explain), metrics: Some(Arc::new(metrics)), export })
}

/// The other servers, where there may be some.
fn peers(config: &Config, opened: &Opened) -> Option<ServerPeers> {
    let peers = || {
        let own = own_identity(config, opened.bound, &opened.pki).name;
        ServerPeers::new(Peers::new(opened.objects.clone(), opened.pki.clone(), own))
    };
    config.datastore.is_shared().then(peers)
}
