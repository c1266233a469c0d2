//! Reads the whole body of a request, up to a size limit.

use crate::filters::audit::CapturedBody;
use crate::request_body::RequestBody;
use bytes::{Bytes, BytesMut};
use coracle_proto::status::ApiError;
use coracle_trace::{RequestMark, is_detailed, mark};
use http::Request;
use http_body_util::BodyExt;

/// The largest body a client may send.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// A request body in memory, with its content type.
pub struct BufferedBody {
    /// The media type, as sent.
    pub content_type: String,
    /// All of it.
    pub bytes: Bytes,
}

/// What the body is said to be.
pub fn content_type(request: &Request<RequestBody>) -> String {
    request.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
}

impl BufferedBody {
    /// Reads the whole body, or fails with 413. The rest of a body that is too large is read and discarded, within limits:
    /// a client that is still sending would otherwise not receive the response.
    pub async fn read(mut request: Request<RequestBody>) -> Result<Self, ApiError> {
        let capture = request.extensions_mut().remove::<CapturedBody>();
        let content_type = content_type(&request);
        let mut body = request.into_body();
        let mut bytes = BytesMut::new();
        let (mut total, mut frames) = (0, 0);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|e| ApiError::bad_request(format!("the request body could not be read: {e}")))?;
            let Some(data) = frame.data_ref() else { continue };
            total += data.len();
            frames += 1;
            if total <= BODY_LIMIT {
                bytes.extend_from_slice(data);
            } else {
                bytes.clear();
            }
            if total > BODY_LIMIT * 8 {
                break;
            }
        }
        if total > BODY_LIMIT {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {BODY_LIMIT}")));
        }
        // Most bodies are here with the head, and no time is spent on them.
        if frames > 1 || is_detailed() {
            mark(RequestMark::BodyRead);
        }
        let bytes = bytes.freeze();
        if let Some(CapturedBody(place)) = capture {
            *place.lock() = Some((content_type.clone(), bytes.clone()));
        }
        Ok(Self { content_type, bytes })
    }
}
