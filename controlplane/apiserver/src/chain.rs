//! The handler chain that every request passes through, top down.

use super::authn;
use super::authorize::authorize;
use super::authz::Authorizer;
use super::context::Context;
use super::discovery::Discovery;
use super::explain::Explain;
use super::filters::audit::Stage;
use super::filters::cors::Cors;
use super::filters::flow_control::Permit;
use super::filters::{Filters, impersonate};
use super::non_resource::{self, NonResource};
use super::openapi::OpenApi;
use super::pending_response::SendPolicy;
use super::pretty;
use super::request_info::RequestInfo;
use super::request_trace::{RequestTrace, header};
use super::resource::Resources;
use super::respond::{self, Body};
use super::scoped::scoped;
use super::slow::SlowLog;
use super::tls::{Handler, Peer};
use super::wellknown::{WellKnown, is_public};
use crate::aggregation::Extensions;
use crate::nodes::{relay, tunnel};
use crate::request_body::RequestBody;
use crate::verb::Verb;
use coracle_cli::supervise::catch_panic_async;
use coracle_client::user::User;
use coracle_kinds::registry::index::Registry;
use coracle_proto::status::ApiError;
use coracle_trace::{Recorder, RequestMark, is_detailed, mark};
use http::{Method, Request, Response};
use std::pin::pin;
use std::sync::Arc;

/// Dependencies of the handler chain.
pub struct Server {
    /// The kinds, for the labels of metrics.
    pub registry: Arc<Registry>,
    /// Who asks.
    pub authn: Arc<authn::Union>,
    /// Authorization.
    pub authz: Arc<dyn Authorizer>,
    /// Discovery documents.
    pub discovery: Arc<Discovery>,
    /// OpenAPI documents.
    pub openapi: OpenApi,
    /// Handlers of resources.
    pub resources: Resources,
    /// Connections that agents opened.
    pub tunnels: Arc<tunnel::Tunnels>,
    /// Aggregated API servers.
    pub extensions: Arc<Extensions>,
    /// Health and metrics.
    pub wellknown: WellKnown,
    /// CORS, audit, flow control.
    pub filters: Filters,
    /// Timelines, spans of nodes and the page.
    pub explain: Option<Arc<dyn Explain>>,
    /// Paths of the servers themselves; the first that takes a path serves it.
    pub non_resource: Vec<Arc<dyn NonResource>>,
    /// Records requests.
    pub recorder: Recorder,
    /// Logs slow requests.
    pub slow: SlowLog,
}

impl Handler for Server {
    /// Failures become `metav1.Status` here.
    async fn handle(self: Arc<Self>, request: Request<RequestBody>, peer: Arc<Peer>) -> Response<Body> {
        if let Some(answer) = self.filters.cors.preflight(&request) {
            return answer;
        }
        let origin = self.filters.cors.origin(request.headers());
        let head = request.method() == Method::HEAD;
        let mut trace = RequestTrace::begin(self.recorder, &request);
        let scope = trace.span.scope();
        // One broken request is not to end the server, nor the other requests of its connection.
        let answer = scoped(scope, pin!(catch_panic_async(self.run(request, &peer, &mut trace)))).await;
        let answer = answer.unwrap_or_else(|panicked| {
            self.wellknown.supervisor.panicked("request", &panicked);
            Err(ApiError::internal("the server has panicked"))
        });
        let response = answer.unwrap_or_else(|error| {
            tracing::debug!(code = error.code, reason = error.reason, message = error.message, "refused");
            let mut refusal = respond::error(&error);
            if trace.wants_pretty() {
                pretty::print_whole(&mut refusal, &error.to_json());
            }
            refusal
        });
        let mut response = trace.answered(response, &self.slow).await;
        if head {
            // HTTP/2 clients take a body here for a broken connection.
            *response.body_mut() = respond::full(bytes::Bytes::new());
        }
        if let Some(origin) = origin {
            Cors::allow(&mut response, origin);
        }
        response
    }
}

impl Server {
    async fn run(
        &self,
        request: Request<RequestBody>,
        peer: &Peer,
        trace: &mut RequestTrace,
    ) -> Result<Response<Body>, ApiError> {
        let query: Vec<(String, String)> =
            form_urlencoded::parse(request.uri().query().unwrap_or("").as_bytes()).into_owned().collect();
        let info = RequestInfo::parse(request.method(), request.uri().path(), &query);
        let (labels, scope, is_recorded) = self.metric_labels(&info);
        trace.timer = Some(self.wellknown.metrics.requests.begin(labels, scope));
        trace.is_recorded = is_recorded;
        self.respond(request, (info, query), peer, trace).await
    }

    async fn respond(
        &self,
        mut request: Request<RequestBody>,
        (info, query): (RequestInfo, Vec<(String, String)>),
        peer: &Peer,
        trace: &mut RequestTrace,
    ) -> Result<Response<Body>, ApiError> {
        let (user, permit) = self.check_access(&mut request, &info, peer, trace).await?;
        // Not before: what is recorded below a request keeps it, and nobody is to fill the timeline with requests that are refused.
        if trace.is_recorded {
            peer.handshake.record();
        }
        let audit_annotations =
            trace.audit.as_ref().map(|(audit, _)| audit.annotations.clone()).unwrap_or_default();
        let mut context =
            Context { info, query, user, headers: request.headers().clone(), audit_annotations };
        // Those who serve elsewhere print for people themselves.
        let pretty = pretty::wanted(&context.query, context.header("user-agent"))
            && self.extensions.table.route(&context.info).is_none();
        if pretty {
            context.headers.remove(http::header::ACCEPT_ENCODING);
        }
        let long = context.info.long_running();
        let served = match long {
            true => Ok(self.serve(context, request).await),
            false => tokio::time::timeout(self.filters.timeout, self.serve(context, request)).await,
        };
        mark(RequestMark::Handled);
        let answer = match served {
            Ok(Ok(answer)) if pretty && !long => Ok(pretty::print(answer).await),
            Ok(answer) => answer,
            Err(_) => Err(ApiError::timeout("request did not complete within the allotted timeout")),
        };
        let mut response = answer?;
        if let Some((schema, level)) = permit.as_ref().and_then(|permit| permit.uids.as_ref()) {
            for (name, uid) in
                [("x-kubernetes-pf-flowschema-uid", schema), ("x-kubernetes-pf-prioritylevel-uid", level)]
            {
                if let Ok(value) = uid.parse() {
                    response.headers_mut().insert(name, value);
                }
            }
        }
        // A body without end says so itself.
        let endless = response.extensions().get::<SendPolicy>().is_some();
        match permit {
            _ if endless => {}
            Some(permit) if !long => {
                response.extensions_mut().insert(SendPolicy::HoldSeat(Arc::new(permit)));
            }
            // A watch that stands has no seat.
            Some(_) => {}
            None => {
                response.extensions_mut().insert(SendPolicy::NoTimeout);
            }
        }
        mark(RequestMark::Answered);
        Ok(response)
    }

    /// Authentication, impersonation, flow control and authorization: everything before the body is read.
    async fn check_access(
        &self,
        request: &mut Request<RequestBody>,
        info: &RequestInfo,
        peer: &Peer,
        trace: &mut RequestTrace,
    ) -> Result<(User, Option<Permit>), ApiError> {
        // Health, version and joining are open to everybody unless configured otherwise; all else needs a name. Those who join
        // prove in another way that they may.
        let path = &info.path;
        let open = self.authn.anonymous.admits(path, is_public(path)) || non_resource::is_open(path);
        let user = self.authn.authenticate(&peer.certificate, request.headers(), open).await;
        mark(RequestMark::Authenticated);
        // HTTP/2 has scheme and host before it, which nobody who reads a log is looking for.
        let uri = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let mut user = match user {
            Ok(user) => user,
            Err(error) => {
                let (nobody, headers) = (User::default(), request.headers());
                let agent = header(headers, "user-agent").unwrap_or_default();
                let address = peer.address.ip();
                let begun = self.filters.audit.begin(&trace.id, &nobody, info, &uri, agent, address);
                if let Some(mut begun) = begun {
                    begun.refused(&error, &authn::attempted(&peer.certificate, headers));
                    begun.record(Stage::ResponseStarted).await;
                }
                return Err(error);
            }
        };
        self.authn.strip(request.headers_mut());
        let agent = header(request.headers(), "user-agent").unwrap_or_default();
        let begun = self.filters.audit.begin(&trace.id, &user, info, &uri, agent, peer.address.ip());
        if let Some(mut begun) = begun {
            begun.record(Stage::RequestReceived).await;
            if let Some(capture) = &begun.capture {
                request.extensions_mut().insert(capture.clone());
            }
            if begun.wants_response() {
                // Compressed answers cannot be written down.
                request.headers_mut().remove(http::header::ACCEPT_ENCODING);
            }
            trace.audit = Some((begun, info.long_running()));
        }
        let impersonated =
            impersonate::impersonate(self.authz.as_ref(), &user, info, request.headers_mut()).await?;
        if trace.audit.is_some() || impersonated.is_some() || is_detailed() {
            mark(RequestMark::Filtered);
        }
        if let Some(other) = impersonated {
            tracing::debug!(user = user.name, acting_as = other.user.name, "impersonation");
            if let Some((audit, _)) = &mut trace.audit {
                audit.acting_as(&other);
            }
            user = other.user;
        }
        trace.authenticated(&user);
        // Streams of containers last as long as people like, and watches count only until they stand.
        let counted = !info.long_running() || info.verb == Verb::Watch;
        let permit = match counted {
            true => Some(self.filters.flow.admit(&user, info).await?),
            false => None,
        };
        if is_detailed() {
            mark(RequestMark::Seated);
        }
        let allowed = authorize(self.authz.as_ref(), &user, info).await;
        mark(RequestMark::Authorized);
        if let Some((audit, _)) = &mut trace.audit {
            audit.decided(&allowed);
        }
        allowed?;
        Ok((user, permit))
    }

    /// The request as labelled in metrics, and its scope: unknown names are dropped, so that clients cannot grow the number of
    /// series. And whether it changes objects whose writes are recorded.
    fn metric_labels(&self, info: &RequestInfo) -> (RequestInfo, &'static str, bool) {
        let known = self.registry.resource(&info.group, &info.version, &info.resource).filter(|kind| {
            info.subresource.is_empty() || kind.subresources.iter().any(|s| s.name() == info.subresource)
        });
        if let Some(kind) = known {
            let labels = RequestInfo {
                verb: info.verb.clone(),
                group: info.group.clone(),
                version: info.version.clone(),
                resource: info.resource.clone(),
                subresource: info.subresource.clone(),
                ..RequestInfo::default()
            };
            return (labels, info.scope(), kind.stored && !kind.lazy && !info.verb.reads());
        }
        let verb = match &info.verb {
            Verb::DeleteCollection
            | Verb::Impersonate
            | Verb::Bind
            | Verb::Escalate
            | Verb::Approve
            | Verb::Sign
            | Verb::Custom(_) => Verb::None,
            usual => usual.clone(),
        };
        (RequestInfo { verb, ..RequestInfo::default() }, "", false)
    }

    async fn serve(
        &self,
        context: Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        if let Some(route_error) = &context.info.route_error {
            return Err(route_error.error());
        }
        if let Some(elsewhere) = self.extensions.table.route(&context.info) {
            return Box::pin(self.extensions.proxy(&elsewhere, &context.user, request)).await;
        }
        if context.info.is_resource {
            return self.resources.serve(context, request).await;
        }
        if let Some(own) = self.non_resource.iter().find(|own| own.takes(&context.info.path)) {
            return own.serve(&context, request).await;
        }
        if let Some(explain) = self.explain.as_ref().filter(|explain| explain.takes(&context.info.path)) {
            return explain.serve(&context, request).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let path = context.info.path.trim_end_matches('/');
        if path == "/api" || path == "/apis" || path.starts_with("/api/") || path.starts_with("/apis/") {
            return self.discovery.serve(path, context.header("accept"), context.header("if-none-match"));
        }
        if let Some(node) = tunnel::node_of(path) {
            return self.tunnels.accept(node, request);
        }
        if let Some(node) = relay::node_of(path) {
            return relay::serve(&self.tunnels, node, request).await;
        }
        if path.starts_with("/openapi/") {
            return self.openapi.serve(path, &context);
        }
        Box::pin(self.wellknown.serve(&context)).await
    }
}
