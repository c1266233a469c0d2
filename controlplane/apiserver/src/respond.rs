//! Responses: bytes with a content type, compressed if they are large, and streams.

use bytes::Bytes;
use coracle_proto::status::ApiError;
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, UPGRADE, VARY,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::Value;
use std::collections::HashSet;
use std::io::Write;

/// The body of every reply.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;
/// What may break while a body is sent.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Marks a reply that another server made and that is passed on as it comes. Its length is not known, and is not limited.
#[derive(Debug, Clone, Copy)]
pub struct Proxied;

/// JSON, the only form that objects leave the server in.
pub const JSON: &str = "application/json";

/// Bodies from this size on are compressed for clients that take it, as upstream does.
pub const COMPRESS_FROM: usize = 128 * 1024;

/// A body that is there as a whole.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A reply of bytes.
pub fn bytes(code: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if let Ok(value) = HeaderValue::from_str(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, value);
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A reply of JSON.
pub fn json(code: u16, value: &Value) -> Response<Body> {
    bytes(code, JSON, serde_json::to_vec(value).unwrap_or_default())
}

/// A reply of plain text.
pub fn text(code: u16, text: impl Into<String>) -> Response<Body> {
    bytes(code, "text/plain; charset=utf-8", text.into())
}

/// The answer that changes the protocol of the connection.
pub fn switched(protocol: &'static str) -> Response<Body> {
    let mut response = Response::new(full(Bytes::new()));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// The wire form of every failure: here and nowhere else. As upstream it ends with a newline, which some clients show or
/// compare.
pub fn error(error: &ApiError) -> Response<Body> {
    let mut body = serde_json::to_vec(&error.to_json()).unwrap_or_default();
    body.push(b'\n');
    let mut response = bytes(error.code, JSON, body);
    if error.details.retry_after > 0 {
        response.headers_mut().insert("retry-after", HeaderValue::from(error.details.retry_after));
    }
    response
}

/// Adds `Warning` headers, every sentence once; what cannot stand in a header is left out. As upstream: when all of them are
/// too long, every one is cut, and what is still too much is not said.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    const TOTAL: usize = 4 * 1024;
    const ITEM: usize = 256;
    let length = |text: &str| text.chars().take(TOTAL + 1).count();
    let mut seen = HashSet::new();
    let once = warnings.iter().map(String::as_str).filter(|text| !text.is_empty() && seen.insert(*text));
    // Whatever is beyond this cannot be said, cut or not.
    let all: Vec<&str> = once.take(TOTAL).collect();
    let cut = all.iter().map(|warning| length(warning)).sum::<usize>() > TOTAL;
    let mut written = 0;
    for warning in all {
        if cut && written >= TOTAL {
            break;
        }
        let text: String = warning.chars().take(if cut { ITEM } else { TOTAL }).collect();
        written += length(&text);
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(HeaderName::from_static("warning"), value);
        }
    }
}

/// JSON bytes, gzipped when they are large and the client takes it.
pub fn compressible(code: u16, content_type: &str, body: Bytes, accept_encoding: &str) -> Response<Body> {
    if body.len() < COMPRESS_FROM || !accept_encoding.contains("gzip") {
        return bytes(code, content_type, body);
    }
    let mut encoder =
        flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 6), flate2::Compression::fast());
    let Ok(compressed) = encoder.write_all(&body).and_then(|()| encoder.finish()) else {
        return bytes(code, content_type, body);
    };
    let mut response = bytes(code, content_type, compressed);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(warnings: &[String]) -> Vec<usize> {
        let mut response = text(200, "");
        warn(&mut response, warnings);
        response.headers().get_all("warning").iter().map(|value| value.len() - "299 - \"\"".len()).collect()
    }

    #[tokio::test]
    async fn failures_end_with_a_newline() {
        let body = error(&ApiError::no_such_path()).into_body().collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        assert!(body.ends_with(b"}\n"), "{body:?}");
    }

    #[test]
    fn warnings_are_said_once_and_not_without_end() {
        assert_eq!(said(&["a".into(), String::new(), "b\nc".into(), "a".into()]), [1, 3]);
        assert_eq!(said(&["x".repeat(4096)]), [4096]);
        assert_eq!(said(&["x".repeat(5000)]), [256]);
        let many: Vec<String> = (0..100_000).map(|n| format!("{n:0>300}")).collect();
        assert_eq!(said(&many), [256; 16]);
    }
}
