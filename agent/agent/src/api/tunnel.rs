//! Tunnels to an API server that cannot dial the node: a few idle connections are kept open, each serves the node API once.

use coracle_cli::causes;
use http::Request;
use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::NodeApi;
use coracle_cli::supervise::Supervisor;

/// The protocol that is upgraded to.
const PROTOCOL: &str = "coracle-tunnel";
/// Connections kept idle.
const IDLE: usize = 4;
/// Idle connections are replaced after this time, before NAT entries expire.
const MAX_IDLE: Duration = Duration::from_secs(45);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
enum TunnelError {
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("{0}")]
    Client(#[from] kube::Error),
    #[error("the server answered {0}")]
    Refused(http::StatusCode),
    #[error("{0}")]
    Upgrade(#[from] hyper::Error),
    #[error("{0}")]
    Read(#[from] std::io::Error),
}

/// Keeps tunnels open for as long as the node runs.
pub fn open(api: &Arc<NodeApi>, client: &kube::Client, supervisor: &Supervisor) {
    for _ in 0..IDLE {
        let (kept, client) = (api.clone(), client.clone());
        supervisor.spawn("tunnel", move || keep(kept.clone(), client.clone()));
    }
}

async fn keep(api: Arc<NodeApi>, client: kube::Client) {
    let mut pause = Duration::from_millis(500);
    loop {
        match one(&api, &client).await {
            Ok(()) => pause = Duration::from_millis(500),
            Err(error) => {
                tracing::debug!(error = %causes::chain(&error), "tunnel not opened, will retry");
                let scattered = pause.mul_f64(rand::rng().random_range(0.5..1.5));
                tokio::time::sleep(scattered).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            }
        }
    }
}

/// Opens a tunnel and waits until it is used or too old.
async fn one(api: &Arc<NodeApi>, client: &kube::Client) -> Result<(), TunnelError> {
    let request = Request::get(format!("/coracle/tunnel/{}", api.config.name))
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, PROTOCOL)
        .body(kube::client::Body::empty())?;
    let response = client.send(request).await?;
    if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
        return Err(TunnelError::Refused(response.status()));
    }
    let mut stream = BufReader::new(TokioIo::new(hyper::upgrade::on(response).await?));
    match tokio::time::timeout(MAX_IDLE, stream.fill_buf()).await {
        Ok(begun) => {
            if begun?.is_empty() {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
        }
        Err(_) => return Ok(()),
    }
    tokio::spawn(api.clone().connection(stream, None));
    Ok(())
}
