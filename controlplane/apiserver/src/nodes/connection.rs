//! Connections, and an HTTP exchange over one.

use coracle_proto::status::ApiError;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// What carries a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One HTTP/1.1 exchange over a connection of its own.
pub async fn exchange<S, B>(stream: S, request: Request<B>) -> Result<Response<Incoming>, ApiError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |e: hyper::Error| {
        ApiError::new(502, "ServiceUnavailable", format!("error trying to reach service: {e}"))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(failed)
}
