//! Bodies of requests as JSON, of limited size.

use coracle_apiserver::request_body::RequestBody;
use coracle_proto::status::ApiError;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read<T: DeserializeOwned>(body: RequestBody, limit: usize) -> Result<T, ApiError> {
    let read = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return ApiError::too_large(format!("the body is larger than {limit} bytes"));
        }
        ApiError::bad_request(format!("the body cannot be read: {error}"))
    })?;
    serde_json::from_slice(&read.to_bytes())
        .map_err(|error| ApiError::bad_request(format!("the body cannot be read: {error}")))
}
