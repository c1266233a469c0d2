//! The chain every request runs through, top down.

use super::api::Api;
use super::authn;
use super::authz::{self, Authorizer, Decision};
use super::discovery::Discovery;
use super::hook::Connector;
use super::openapi::OpenApi;
use super::request_info::RequestInfo;
use super::respond::{self, Body};
use super::tls::Peer;
use super::user::User;
use super::{resource, wellknown};
use coracle_proto::status::ApiError;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a request that is not a stream may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Everything behind the listener.
pub struct Server {
    /// Objects.
    pub api: Arc<Api>,
    /// Who asks.
    pub authn: Arc<authn::Union>,
    /// Who may.
    pub authz: Arc<dyn Authorizer>,
    /// What is served.
    pub discovery: Discovery,
    /// What it looks like.
    pub openapi: OpenApi,
    /// Subresources that take over the connection, by resource and subresource.
    pub connectors: HashMap<(String, String), Arc<dyn Connector>>,
    /// Health and metrics.
    pub wellknown: wellknown::WellKnown,
}

/// A request on its way down the chain.
pub struct Context {
    /// Method and path, understood.
    pub info: RequestInfo,
    /// The query.
    pub query: Vec<(String, String)>,
    /// Who asks.
    pub user: User,
    /// Its headers, without credentials.
    pub headers: HeaderMap,
}

impl Context {
    /// A header's text, empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }
}

impl Server {
    /// One request, one answer; failures become `metav1.Status` here.
    pub async fn handle(self: Arc<Self>, request: Request<Incoming>, peer: Arc<Peer>) -> Response<Body> {
        let id = uuid::Uuid::new_v4().to_string();
        let mut response = match self.run(request, &peer).await {
            Ok(response) => response,
            Err(error) => {
                tracing::debug!(code = error.code, reason = error.reason, message = error.message, "refused");
                respond::error(&error)
            }
        };
        if let Ok(value) = id.parse() {
            response.headers_mut().insert("audit-id", value);
        }
        response
    }

    async fn run(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<Response<Body>, ApiError> {
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes()).into_owned().collect();
        let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
        let _timer = self.wellknown.metrics.begin(&info);
        let user = self.authn.authenticate(peer.certificate.as_ref(), request.headers()).await;
        let user = match user {
            Ok(user) => user,
            // Health is open to everybody; all else needs a name.
            Err(_) if wellknown::is_public(&info.path) => User::anonymous(),
            Err(error) => return Err(error),
        };
        request.headers_mut().remove(http::header::AUTHORIZATION);
        self.authorize(&user, &info)?;
        let context = Context { info, query, user, headers: request.headers().clone() };
        if context.info.long_running() {
            return self.serve(context, request).await;
        }
        match tokio::time::timeout(TIMEOUT, self.serve(context, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout")),
        }
    }

    fn authorize(&self, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
        if wellknown::is_public(&info.path) {
            return Ok(());
        }
        match self.authz.authorize(user, info) {
            Decision::Allow => Ok(()),
            Decision::Deny(why) | Decision::NoOpinion(why) => {
                let why = authz::refusal(user, info, &why);
                if info.is_resource {
                    return Err(ApiError::forbidden(&info.group, &info.resource, &info.name, why));
                }
                Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")))
            }
        }
    }

    async fn serve(
        self: &Arc<Self>,
        context: Context,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, ApiError> {
        if context.info.is_resource {
            return resource::serve(self, context, request).await;
        }
        let path = context.info.path.trim_end_matches('/');
        if path == "/api" || path == "/apis" || path.starts_with("/api/") || path.starts_with("/apis/") {
            return self.discovery.serve(path, context.header("accept"), context.header("if-none-match"));
        }
        if path.starts_with("/openapi/") {
            return self.openapi.serve(path, &context);
        }
        self.wellknown.serve(self, &context).await
    }
}
