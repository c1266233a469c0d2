//! One call of `grpc.health.v1.Health/Check`, over bare HTTP/2: two fields do not need a generated client.

use bytes::{BufMut, Bytes, BytesMut};
use coracle_proto::version::PROBE_AGENT;
use http::Request;
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpStream;

use super::dial::DialError;

const SERVING: u8 = 1;
/// The longest answer that is read; a health status takes seven bytes.
const MAX_RESPONSE: usize = 64 << 10;

/// Why a service is not healthy, or not known to be.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The time of the caller is over.
    #[error("timeout: failed to connect service {address:?} within {timeout:?}: context deadline exceeded")]
    Timeout {
        /// `host:port`.
        address: String,
        /// The time that it had.
        timeout: Duration,
    },
    /// No connection.
    #[error("error: failed to connect service {:?}: {source}", .source.address)]
    Dial {
        /// The cause.
        #[from]
        source: DialError,
    },
    /// The server does not speak HTTP/2.
    #[error("error: failed to connect service {address:?}: {source}")]
    Handshake {
        /// `host:port`.
        address: String,
        /// Why the handshake failed.
        source: hyper::Error,
    },
    /// The address cannot be requested.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The call was not answered.
    #[error("error: health rpc probe failed: {0}")]
    Call(#[source] hyper::Error),
    /// The answer broke off.
    #[error("error: health rpc probe failed: {0}")]
    Answer(#[source] Box<dyn Error + Send + Sync>),
    /// The answer is not a health status.
    #[error("error: health rpc probe failed: the response is longer than {limit} bytes")]
    TooLong {
        /// How much is read.
        limit: usize,
    },
    /// gRPC without health checks.
    #[error("error: this server does not implement the grpc health protocol (grpc.health.v1.Health)")]
    Unimplemented,
    /// The call failed.
    #[error("error: health rpc probe failed: code = {code}")]
    Code {
        /// The gRPC status, or `unknown`.
        code: String,
    },
    /// The service says that it does not serve.
    #[error("service unhealthy (responded with {status:?})")]
    Unhealthy {
        /// The health status.
        status: &'static str,
    },
}

/// Asks for the health of a service.
pub async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), HealthError> {
    let address = format!("{host}:{port}");
    match tokio::time::timeout(timeout, call(host, port, service)).await {
        Ok(result) => result,
        Err(_) => Err(HealthError::Timeout { address, timeout }),
    }
}

async fn call(host: &str, port: u16, service: &str) -> Result<(), HealthError> {
    let address = format!("{host}:{port}");
    let tcp = TcpStream::connect((host, port))
        .await
        .map_err(|source| DialError { address: address.clone(), source })?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
            .await
            .map_err(|source| HealthError::Handshake { address: address.clone(), source })?;
    let connection = tokio::spawn(connection);
    let result = exchange(&mut sender, &address, service).await;
    connection.abort();
    result
}

async fn exchange(
    sender: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    address: &str,
    service: &str,
) -> Result<(), HealthError> {
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", PROBE_AGENT)
        .body(Full::new(encode(service)))?;
    let response = sender.send_request(request).await.map_err(HealthError::Call)?;
    let head = response.headers().get("grpc-status").cloned();
    let body = collect(response.into_body()).await?;
    let status = head.or_else(|| body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()));
    match status.as_ref().and_then(|status| status.to_str().ok()) {
        Some("0") => {}
        Some("12") => return Err(HealthError::Unimplemented),
        code => return Err(HealthError::Code { code: code.unwrap_or("unknown").to_owned() }),
    }
    match decode(&body.to_bytes()) {
        SERVING => Ok(()),
        other => Err(HealthError::Unhealthy { status: name(other) }),
    }
}

/// Reads an answer with its trailers. The server under test decides how much it sends, so the length is limited.
async fn collect<B>(body: B) -> Result<Collected<Bytes>, HealthError>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Limited::new(body, MAX_RESPONSE).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
        true => HealthError::TooLong { limit: MAX_RESPONSE },
        false => HealthError::Answer(error),
    })
}

fn encode(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        message.put_u8(u8::try_from(length).unwrap_or(0));
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(0));
    frame.put_slice(&message);
    frame.freeze()
}

/// The status field of the answer; absent means unknown.
fn decode(frame: &[u8]) -> u8 {
    match frame.get(5..) {
        Some([0x08, status, ..]) => *status,
        _ => 0,
    }
}

fn name(status: u8) -> &'static str {
    match status {
        1 => "SERVING",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_response_that_is_too_long_fails_the_probe() {
        let sent = |length: usize| collect(Full::new(Bytes::from(vec![0_u8; length])));
        assert_eq!(sent(MAX_RESPONSE).await.unwrap().to_bytes().len(), MAX_RESPONSE);
        let error = sent(MAX_RESPONSE + 1).await.map(|_| ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error: health rpc probe failed: the response is longer than 65536 bytes"
        );
    }

    #[test]
    fn wire_format() {
        assert_eq!(encode("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(encode("ab").as_ref(), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(encode(&"x".repeat(200)).len(), 5 + 1 + 2 + 200);
        for (frame, want) in [
            (vec![0, 0, 0, 0, 2, 8, 1], "SERVING"),
            (vec![0, 0, 0, 0, 2, 8, 2], "NOT_SERVING"),
            (vec![0, 0, 0, 0, 0], "UNKNOWN"),
        ] {
            assert_eq!(name(decode(&frame)), want);
        }
    }
}
