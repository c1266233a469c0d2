//! Questions about the timeline, at `/coracle/v1/`.

// Parameters of questions.
mod query;
// How objects stand now.
mod standing;
// Trees that answer a question, as far as the user may see them.
mod answer;
// Why there is no answer.
mod missing;
// Answers that go on.
mod follow;
// How many of them there may be.
mod followers;
// What other servers ask.
mod between_servers;

use super::authorize::Reader;
use super::ingest::Ingest;
use super::page;
use super::peers::ServerPeers;
use answer::Asker;
use async_trait::async_trait;
use between_servers::BetweenServers;
use coracle_apiserver::authz::Authorizer;
use coracle_apiserver::context::Context;
use coracle_apiserver::explain::{Explain, is_between_servers, node_of};
use coracle_apiserver::objects::Objects;
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body};
use coracle_proto::status::ApiError;
use coracle_timeline::{CollectorHandle, TraceView};
use followers::Followers;
use http::{Method, Request, Response};
use query::{RootsQuery, TraceQuery};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// The paths that are answered here.
const PREFIX: &str = "/coracle/v1/";
const VERSION: &str = "coracle/v1";
/// Questions that are searched at a time; the others wait.
const SEARCHES: usize = 2;

/// Dependencies of answers.
pub struct ExplainParts {
    /// The timeline.
    pub collector: CollectorHandle,
    /// Objects as they are now.
    pub objects: Arc<Objects>,
    /// Who may see what.
    pub authz: Arc<dyn Authorizer>,
    /// Other servers, where there may be some.
    pub peers: Option<ServerPeers>,
    /// Takes spans of agents.
    pub ingest: Arc<Ingest>,
    /// Ends answers that go on.
    pub stop: CancellationToken,
}

/// Answers questions about the timeline.
pub struct Explainer {
    asker: Arc<Asker>,
    between_servers: BetweenServers,
    authz: Arc<dyn Authorizer>,
    ingest: Arc<Ingest>,
    followers: Followers,
    stop: CancellationToken,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    kind: &'static str,
    api_version: &'static str,
    items: Vec<T>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsualView {
    kind: &'static str,
    api_version: &'static str,
    stages: BTreeMap<&'static str, u64>,
}

impl Explainer {
    /// The answers of a server.
    #[allow(clippy::new_ret_no_self)]
    pub fn new(parts: ExplainParts) -> Arc<dyn Explain> {
        let ExplainParts { collector, objects, authz, peers, ingest, stop } = parts;
        let searches = Arc::new(Semaphore::new(SEARCHES));
        let between_servers = BetweenServers::new(collector.clone());
        let asker = Arc::new(Asker { collector, objects, peers, searches });
        Arc::new(Self { asker, between_servers, authz, ingest, followers: Followers::default(), stop })
    }

    async fn reader(&self, context: &Context) -> Reader {
        let registry = self.asker.objects.registry.clone();
        Reader::new(self.authz.clone(), registry, context.user.clone()).await
    }

    async fn trace(&self, context: &Context) -> Result<Response<Body>, ApiError> {
        let query = TraceQuery::read(&context.query, &self.asker.objects.registry)?;
        let mut reader = self.reader(context).await;
        let views = self.asker.views(&query, &mut reader).await?;
        if query.follow {
            let place = self
                .followers
                .place(&context.user.name)
                .ok_or_else(|| ApiError::too_many_requests("too many timelines are being followed", 5))?;
            let view = views.into_iter().next().ok_or_else(ApiError::no_such_path)?;
            return Ok(follow::response(follow::Follower {
                asker: self.asker.clone(),
                query,
                reader,
                _place: place,
                stop: self.stop.clone(),
                shown: view,
            }));
        }
        let encoding = context.header("accept-encoding");
        match <[TraceView; 1]>::try_from(views) {
            Ok([view]) if query.last <= 1 => json(&view, encoding),
            Ok([view]) => {
                json(&List { kind: "TraceList", api_version: VERSION, items: vec![view] }, encoding)
            }
            // As in a log: the newest last.
            Err(mut items) => {
                items.reverse();
                json(&List { kind: "TraceList", api_version: VERSION, items }, encoding)
            }
        }
    }

    async fn traces(&self, context: &Context) -> Result<Response<Body>, ApiError> {
        let query = RootsQuery::read(&context.query)?;
        let mut reader = self.reader(context).await;
        let items = self.asker.roots(&query, &mut reader).await?;
        json(&List { kind: "RootList", api_version: VERSION, items }, context.header("accept-encoding"))
    }

    fn usual(&self) -> Result<Response<Body>, ApiError> {
        let stages = self.asker.collector.usual().medians();
        json(&UsualView { kind: "Usual", api_version: VERSION, stages }, "")
    }
}

#[async_trait]
impl Explain for Explainer {
    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let path = context.info.path.trim_end_matches('/');
        if let Some(node) = node_of(path) {
            if request.method() != Method::POST {
                return Err(ApiError::method_not_allowed());
            }
            return self.ingest.serve(context, node, request.into_body()).await;
        }
        if is_between_servers(path) {
            if request.method() != Method::POST {
                return Err(ApiError::method_not_allowed());
            }
            return self.between_servers.serve(context, request.into_body()).await;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        if page::takes(&context.info.path) {
            return page::serve(&context.info.path, request.headers()).ok_or_else(ApiError::no_such_path);
        }
        match path.strip_prefix(PREFIX) {
            Some("trace") => self.trace(context).await,
            Some("traces") => self.traces(context).await,
            Some("usual") => self.usual(),
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn takes(&self, path: &str) -> bool {
        path.starts_with(PREFIX) || page::takes(path)
    }
}

fn json(value: &impl Serialize, accept_encoding: &str) -> Result<Response<Body>, ApiError> {
    let bytes = serde_json::to_vec(value).map_err(ApiError::internal)?;
    Ok(respond::compressible(200, respond::JSON, bytes.into(), accept_encoding))
}
