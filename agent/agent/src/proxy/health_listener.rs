//! The listener of health checks: answers every request at an address, and closes the connection.

use coracle_cli::causes;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Status lines of answers.
pub(super) const OK: &str = "200 OK";
/// The proxy or the service cannot take connections.
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable";
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers every request at an address with a whole response, made from the path.
pub(super) async fn serve(
    address: SocketAddr,
    respond: impl Fn(&str) -> String + Clone + Send + Sync + 'static,
) {
    let listener = loop {
        let bound = match TcpListener::bind(address).await {
            // Without IPv6.
            Err(_) if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        match bound {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::warn!(%address, error = %causes::chain(&error), "health check port not bound, will retry");
                tokio::time::sleep(REQUEST_TIMEOUT).await;
            }
        }
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let respond = respond.clone();
                tokio::spawn(async move {
                    // A client that goes away is its own business.
                    let _ = tokio::time::timeout(REQUEST_TIMEOUT, reply(stream, respond)).await;
                });
            }
            Err(error) => {
                tracing::warn!(%address, error = %causes::chain(&error), "health check not answered");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn reply(mut stream: TcpStream, respond: impl Fn(&str) -> String) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 512];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 8192 {
        let n = stream.read(&mut part).await?;
        if n == 0 {
            break;
        }
        request.extend_from_slice(&part[..n]);
    }
    // `GET /path HTTP/1.1`.
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let target = line.split(' ').nth(1).unwrap_or_default();
    let text = respond(target.split('?').next().unwrap_or_default());
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}
