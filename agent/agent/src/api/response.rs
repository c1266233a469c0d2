//! Responses of the node API.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// A body of any kind; a client that goes away drops it.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
/// A response.
pub type ApiResponse = Response<Body>;

/// A response with a content type.
pub fn with_type(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> ApiResponse {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Plain text.
pub fn text(status: StatusCode, body: impl Into<Bytes>) -> ApiResponse {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// JSON.
pub fn json(body: &impl serde::Serialize) -> ApiResponse {
    match serde_json::to_vec(body) {
        Ok(bytes) => with_type(StatusCode::OK, "application/json", bytes),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Streams text from a channel, whose capacity bounds the memory.
pub fn streamed(from: tokio::sync::mpsc::Receiver<Bytes>) -> ApiResponse {
    let frames = ReceiverStream::new(from).map(|bytes| Ok(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}
