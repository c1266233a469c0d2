//! One call of `grpc.health.v1.Health/Check`, over bare HTTP/2: two fields do not need a generated client.

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Collected, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpStream;

use super::http::dial_error;

const SERVING: u8 = 1;
/// The longest answer that is read; a health status takes seven bytes.
const LONGEST: usize = 64 << 10;

/// Asks for the health of a service; the error says what to show.
pub async fn check(host: &str, port: u16, service: &str, timeout: Duration) -> Result<(), String> {
    match tokio::time::timeout(timeout, call(host, port, service)).await {
        Ok(result) => result,
        Err(_) => Err(format!(
            "timeout: failed to connect service \"{host}:{port}\" within {timeout:?}: context deadline exceeded"
        )),
    }
}

async fn call(host: &str, port: u16, service: &str) -> Result<(), String> {
    let address = format!("{host}:{port}");
    let failed = |error: String| format!("error: failed to connect service {address:?}: {error}");
    let tcp = TcpStream::connect((host, port)).await.map_err(|error| failed(dial_error(&address, &error)))?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
            .await
            .map_err(|error| failed(error.to_string()))?;
    let connection = tokio::spawn(connection);
    let result = exchange(&mut sender, &address, service).await;
    connection.abort();
    result
}

async fn exchange(
    sender: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    address: &str,
    service: &str,
) -> Result<(), String> {
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.35")
        .body(Full::new(encode(service)))
        .map_err(|error| error.to_string())?;
    let broken = |error: hyper::Error| format!("error: health rpc probe failed: {error}");
    let response = sender.send_request(request).await.map_err(broken)?;
    let head = response.headers().get("grpc-status").cloned();
    let body = collect(response.into_body()).await?;
    let status = head.or_else(|| body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()));
    match status.as_ref().and_then(|status| status.to_str().ok()) {
        Some("0") => {}
        Some("12") => {
            return Err(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
                    .into(),
            );
        }
        code => return Err(format!("error: health rpc probe failed: code = {}", code.unwrap_or("unknown"))),
    }
    match decode(&body.to_bytes()) {
        SERVING => Ok(()),
        other => Err(format!("service unhealthy (responded with {:?})", name(other))),
    }
}

/// Reads an answer with its trailers. The server under test decides how much it sends, so the length is limited.
async fn collect<B>(body: B) -> Result<Collected<Bytes>, String>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    Limited::new(body, LONGEST).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return format!("error: health rpc probe failed: the response is longer than {LONGEST} bytes");
        }
        format!("error: health rpc probe failed: {error}")
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
    use super::*;

    #[tokio::test]
    async fn a_response_that_is_too_long_fails_the_probe() {
        let sent = |length: usize| collect(Full::new(Bytes::from(vec![0_u8; length])));
        assert_eq!(sent(LONGEST).await.map(|body| body.to_bytes().len()), Ok(LONGEST));
        let error = sent(LONGEST + 1).await.map(|_| ());
        assert_eq!(
            error,
            Err("error: health rpc probe failed: the response is longer than 65536 bytes".to_owned())
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
