//! What other servers ask, `POST /coracle/v1/spans`: records as they are on this disk, for their searches. They are not filtered, and
//! no further server is asked for them.

use crate::explain::ingest::BLOCKS;
use crate::explain::peers::connection::{INCOMPLETE, MOST_BYTES, MOST_RECORDS};
use coracle_apiserver::context::Context;
use coracle_apiserver::explain::may_ask_unfiltered;
use coracle_apiserver::request_body::RequestBody;
use coracle_apiserver::respond::{self, Body};
use coracle_cli::causes;
use coracle_client::user::MASTERS;
use coracle_proto::status::ApiError;
use coracle_timeline::{CollectorHandle, KeepError, StoredRecord, Wanted, encode};
use http::Response;
use http::header::HeaderValue;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Questions of other servers that are searched at a time. They do not wait for own searches, which wait for other servers.
const SEARCHES: usize = 4;

pub(super) struct BetweenServers {
    collector: CollectorHandle,
    searches: Arc<Semaphore>,
}

impl BetweenServers {
    pub(super) fn new(collector: CollectorHandle) -> Self {
        Self { collector, searches: Arc::new(Semaphore::new(SEARCHES)) }
    }

    /// Answers with the open spans, if nothing is named, or with what is wanted.
    pub(super) async fn serve(
        &self,
        context: &Context,
        body: RequestBody,
    ) -> Result<Response<Body>, ApiError> {
        // Rules may let others use the path: they see the users of requests, and not more.
        if !may_ask_unfiltered(&context.user) && !context.user.in_group(MASTERS) {
            let why = format!("User {:?} is no API server", context.user.name);
            return Err(ApiError::new(403, "Forbidden", format!("forbidden: {why}")));
        }
        let body = read(body).await?;
        let wanted = match body.is_empty() {
            true => None,
            false => {
                Some(Wanted::read(&body).ok_or_else(|| ApiError::bad_request("the body is no question"))?)
            }
        };
        let place = self.searches.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let collector = self.collector.clone();
        let search = move || {
            // A search goes on when nobody waits for its answer any more.
            let _place = place;
            let (records, is_more) = match wanted {
                Some(wanted) => collector.find_wanted(&wanted, MOST_RECORDS)?,
                None => collector.open_spans(),
            };
            Ok::<_, KeepError>(blocks(&records, is_more))
        };
        let found = tokio::task::spawn_blocking(search).await.map_err(ApiError::internal)?;
        let (blocks, is_more) = found.map_err(|error| ApiError::internal(causes::chain(&error)))?;
        let mut response = respond::bytes(200, BLOCKS, blocks);
        if is_more {
            response.headers_mut().insert(INCOMPLETE, HeaderValue::from_static("true"));
        }
        Ok(response)
    }
}

async fn read(body: RequestBody) -> Result<bytes::Bytes, ApiError> {
    let read = Limited::new(body, Wanted::MOST_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return ApiError::too_large(format!("questions have at most {} bytes", Wanted::MOST_BYTES));
        }
        ApiError::bad_request(format!("the body cannot be read: {error}"))
    })?;
    Ok(read.to_bytes())
}

/// Blocks with the records, as many as an answer may have, and whether there are more.
fn blocks(records: &[StoredRecord], is_more: bool) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    for block in encode(records) {
        if bytes.len() + block.bytes.len() > MOST_BYTES {
            return (bytes, true);
        }
        bytes.extend(block.bytes);
    }
    (bytes, is_more)
}
