//! Connections to Unix sockets.

use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use tower::service_fn;

use crate::CallError;

/// Largest answer: Go's default for clients.
pub const MAX_MESSAGE: usize = 4 << 20;

/// A channel that connects on first use, and again after the connection broke.
pub fn channel(path: PathBuf) -> Channel {
    Endpoint::from_static("http://plugin.invalid").connect_with_connector_lazy(service_fn(move |_| {
        let path = path.clone();
        async move { tokio::net::UnixStream::connect(path).await.map(TokioIo::new) }
    }))
}

/// Waits for an answer, but not for ever.
pub async fn answer<T>(
    call: &'static str,
    socket: &std::path::Path,
    limit: Duration,
    request: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(limit, request).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(CallError::new(call, socket, &status)),
        Err(_) => Err(CallError::Timeout { call, socket: socket.to_owned(), limit }),
    }
}
