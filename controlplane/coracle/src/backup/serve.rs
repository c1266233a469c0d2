//! `/coracle/v1/backup`: GET is a backup, POST takes the result of one, for `coracle status`. A backup has the keys of the
//! cluster, so that only members of `system:masters` get one, whatever roles say.

use super::source::ServerSource;
use crate::json_body;
use async_trait::async_trait;
use coracle_apiserver::context::Context;
use coracle_apiserver::non_resource::NonResource;
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body, BoxError, Proxied};
use coracle_backup::last::{self, LastBackup};
use coracle_client::user::MASTERS;
use coracle_proto::status::ApiError;
use futures::TryStreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The path.
pub(crate) const PATH: &str = "/coracle/v1/backup";
/// More at a time would only be slower.
const AT_A_TIME: usize = 2;
const MAX_RESULT: usize = 64 << 10;

/// Serves backups.
pub(crate) struct BackupPath {
    source: ServerSource,
    turns: Arc<Semaphore>,
}

impl BackupPath {
    pub(crate) fn shared(source: ServerSource) -> Arc<dyn NonResource> {
        Arc::new(Self { source, turns: Arc::new(Semaphore::new(AT_A_TIME)) })
    }

    async fn backup(&self, user: &str) -> Result<Response<Body>, ApiError> {
        let turn = self.turns.clone().try_acquire_owned();
        let turn = turn.map_err(|_| ApiError::too_many_requests("other backups are being made", 10))?;
        let begun = self.source.begin().await;
        let failed = |error| ApiError::internal(coracle_cli::causes::chain(&error));
        let (header, pieces) = begun.map_err(failed)?;
        tracing::info!(user, rv = header.revision, "backup requested");
        // The turn ends with the answer.
        let frames = pieces.map_ok(move |piece| {
            let _ = &turn;
            Frame::data(piece)
        });
        let frames = frames.map_err(|error| {
            tracing::warn!(error = %coracle_cli::causes::chain(&error), "a backup was broken off");
            BoxError::from(error)
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // It is not copied into the audit log.
        response.extensions_mut().insert(Proxied);
        Ok(response)
    }

    async fn result(&self, body: RequestBody) -> Result<Response<Body>, ApiError> {
        let result: LastBackup = json_body::read(body, MAX_RESULT).await?;
        last::write(&*self.source.store, result.clone()).await.map_err(ApiError::internal)?;
        Ok(respond::json(200, &serde_json::to_value(result).unwrap_or_default()))
    }
}

#[async_trait]
impl NonResource for BackupPath {
    fn takes(&self, path: &str) -> bool {
        path.trim_end_matches('/') == PATH
    }

    async fn serve(
        &self,
        context: &Context,
        request: Request<RequestBody>,
    ) -> Result<Response<Body>, ApiError> {
        let user = &context.user;
        if !user.in_group(MASTERS) {
            let why = format!(
                "User {:?} is not in the group {MASTERS}, and backups have the keys of the cluster",
                user.name
            );
            return Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")));
        }
        match *request.method() {
            Method::GET => self.backup(&user.name).await,
            Method::POST => self.result(request.into_body()).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}
