//! Non-resource paths other than discovery: health, version, metrics, scheduling diagnostics, and service-account keys.

use super::context::Context;
use super::discovery::Discovery;
use super::respond::{self, Body};
use super::version::version;
use crate::metrics::Metrics;
use crate::objects::Objects;
use coracle_cli::health::{self, CheckError, Checks, HealthRequest, Outcome};
use coracle_cli::supervise::Supervisor;
use coracle_client::diagnostics::PendingPods;
use coracle_client::user;
use coracle_proto::exposition::Form;
use coracle_proto::status::ApiError;
use coracle_store::Store;
use http::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long the store may take to answer a health check.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

/// Readiness, version and counters.
pub struct WellKnown {
    /// What is stored, for metrics.
    pub objects: Arc<Objects>,
    /// The store, for health checks.
    pub store: Arc<dyn Store>,
    /// The paths that this server serves.
    pub discovery: Arc<Discovery>,
    /// Whether the caches are filled and bootstrap objects are there.
    pub ready: AtomicBool,
    /// Cancelled when the server is about to end.
    pub stop: CancellationToken,
    /// What is counted.
    pub metrics: Metrics,
    /// Keeps the server's tasks running.
    pub supervisor: Supervisor,
    /// What `/livez` and `/readyz` ask, besides the store.
    pub checks: Checks,
    /// Why pods wait for a node.
    pub waiting: Option<Arc<dyn PendingPods>>,
    /// Documents of the token issuer, when they are published.
    pub issuer: Option<Issuer>,
}

/// Paths that need no name.
pub fn is_public(path: &str) -> bool {
    let head = path.trim_start_matches('/').split('/').next().unwrap_or("");
    matches!(head, "healthz" | "livez" | "readyz" | "version")
}

/// Whether the store can be written, for health pages and ComponentStatuses.
pub async fn store_health(store: &dyn Store) -> Outcome {
    let health = match tokio::time::timeout(STORE_PATIENCE, store.health()).await {
        Ok(health) => health.map_err(|why| CheckError::Failed(Arc::new(why))),
        Err(_) => Err(CheckError::StoreSilent),
    };
    Outcome::new("etcd", health)
}

/// What others need to verify our tokens.
pub struct Issuer {
    /// The OpenID discovery document.
    pub configuration: Value,
    /// The set of public keys.
    pub keys: Value,
}

impl WellKnown {
    fn issued(&self, document: fn(&Issuer) -> &Value) -> Result<Response<Body>, ApiError> {
        let issuer = self.issuer.as_ref().ok_or_else(ApiError::no_such_path)?;
        Ok(respond::json(200, document(issuer)))
    }

    /// Serves a path, or 404.
    pub async fn serve(&self, context: &Context) -> Result<Response<Body>, ApiError> {
        let path = context.info.path.trim_end_matches('/');
        match path {
            "/version" => Ok(respond::json(200, &version())),
            "/metrics" => {
                let form = Form::accepted(context.header("accept"));
                let page = self.metrics.render(&self.objects, &self.supervisor, form);
                Ok(respond::bytes(200, form.content_type(), page))
            }
            "/.well-known/openid-configuration" => self.issued(|issuer| &issuer.configuration),
            "/openid/v1/jwks" => self.issued(|issuer| &issuer.keys),
            "/debug/scheduler" => {
                let waiting = self.waiting.as_ref().map(|pods| pods.reasons()).unwrap_or_default();
                let lines: String = waiting.iter().map(|(pod, why)| format!("{pod}: {why}\n")).collect();
                Ok(respond::text(200, lines))
            }
            "" => Ok(respond::json(200, &json!({"paths": self.discovery.paths()}))),
            _ if is_public(path) => Ok(self.health(path, context).await),
            _ if path.starts_with("/debug/scheduler/") => self.why(path),
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// `/debug/scheduler/NAMESPACE/POD`: the verdict of every node on a pod that waits.
    fn why(&self, path: &str) -> Result<Response<Body>, ApiError> {
        let pod = path.trim_start_matches("/debug/scheduler/");
        let verdict =
            pod.split_once('/').and_then(|(namespace, name)| self.waiting.as_ref()?.explain(namespace, name));
        let Some(text) = verdict else {
            let text = format!("the scheduler of this server has no pod \"{pod}\" that waits for a node");
            return Err(ApiError::new(404, "NotFound", text));
        };
        Ok(respond::text(200, text))
    }

    async fn health(&self, path: &str, context: &Context) -> Response<Body> {
        let path = path.trim_start_matches('/');
        let (page, only) = path.split_once('/').map_or((path, None), |(page, only)| (page, Some(only)));
        let store = store_health(self.store.as_ref()).await;
        let mut outcomes = vec![Outcome::new("ping", Ok(())), store];
        if page == "readyz" {
            let ready = self.ready.load(Ordering::Acquire);
            let begun = || if ready { Ok(()) } else { Err(CheckError::Starting) };
            outcomes.push(Outcome::new("informer-sync", begun()));
            outcomes.push(Outcome::new("poststarthook/bootstrap", begun()));
            let stays = if self.stop.is_cancelled() { Err(CheckError::Stopping) } else { Ok(()) };
            outcomes.push(Outcome::new("shutdown", stays));
        }
        outcomes.extend(self.checks.ask(page));
        let trusted = context.user.name != user::ANONYMOUS;
        let question = HealthRequest {
            page,
            only,
            verbose: context.query.iter().any(|(key, _)| key == "verbose"),
            exclude: context.query.iter().filter(|(k, _)| k == "exclude").map(|(_, v)| v.as_str()).collect(),
            trusted,
            remarks: health::quarantine_remarks(&self.supervisor, trusted),
        };
        let (code, text) = health::answer(&question, &outcomes);
        respond::text(code, text)
    }
}
