//! Requests over a few HTTP/2 connections; a connection that broke is made again for the next request.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

/// How many connections.
const LANES: usize = 4;
/// How long a request that is no watch may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration cannot be used.
    #[error("{0}: {1}")]
    Kubeconfig(PathBuf, String),
    /// No connection, or it broke.
    #[error("the server is not reached: {0}")]
    Connection(String),
    /// The server refused.
    #[error("{0}: {1}")]
    Refused(u16, String),
}

impl ClientError {
    /// Whether the server refused with this code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Self::Refused(own, _) if *own == code)
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// A client of one server.
pub struct Client {
    address: String,
    host: ServerName<'static>,
    tls: TlsConnector,
    lanes: Vec<Mutex<Option<Sender>>>,
    next: AtomicUsize,
}

fn broken(error: impl std::fmt::Display) -> ClientError {
    ClientError::Connection(error.to_string())
}

impl Client {
    /// The server and user of a kubeconfig with certificates in it.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::Kubeconfig(path.into(), why);
        let text = std::fs::read_to_string(path).map_err(|e| bad(e.to_string()))?;
        let file: Value = serde_saphyr::from_str(&text).map_err(|e| bad(e.to_string()))?;
        let (cluster, user) = (&file["clusters"][0]["cluster"], &file["users"][0]["user"]);
        let pem = |value: &Value| {
            STANDARD.decode(value.as_str().unwrap_or_default()).map_err(|e| bad(e.to_string()))
        };
        let server = cluster["server"].as_str().unwrap_or_default();
        let address = server.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let host =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|e| bad(e.to_string()))?;
        let config = || -> Result<rustls::ClientConfig, String> {
            let text = |e: &dyn std::fmt::Display| e.to_string();
            let mut roots = rustls::RootCertStore::empty();
            let ca = pem(&cluster["certificate-authority-data"]).map_err(|e| text(&e))?;
            roots.add(CertificateDer::from_pem_slice(&ca).map_err(|e| text(&e))?).map_err(|e| text(&e))?;
            let certificate = pem(&user["client-certificate-data"]).map_err(|e| text(&e))?;
            let key = pem(&user["client-key-data"]).map_err(|e| text(&e))?;
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let mut config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|e| text(&e))?
                .with_root_certificates(roots)
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_slice(&certificate).map_err(|e| text(&e))?],
                    PrivateKeyDer::from_pem_slice(&key).map_err(|e| text(&e))?,
                )
                .map_err(|e| text(&e))?;
            config.alpn_protocols = vec![b"h2".to_vec()];
            Ok(config)
        };
        let tls = TlsConnector::from(Arc::new(config().map_err(bad)?));
        let lanes = (0..LANES).map(|_| Mutex::new(None)).collect();
        Ok(Self { address, host, tls, lanes, next: AtomicUsize::new(0) })
    }

    async fn sender(&self) -> Result<Sender, ClientError> {
        let lane = &self.lanes[self.next.fetch_add(1, Ordering::Relaxed) % LANES];
        let mut lane = lane.lock().await;
        if let Some(sender) = lane.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let stream = self.tls.connect(self.host.clone(), stream).await.map_err(broken)?;
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        *lane = Some(sender.clone());
        Ok(sender)
    }

    /// Sends a request; the head of the answer, whatever it is.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut sender = self.sender().await?;
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header("content-type", content_type)
            .body(Full::new(body))
            .map_err(broken)?;
        sender.ready().await.map_err(broken)?;
        sender.send_request(request).await.map_err(broken)
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let exchange = async {
            let response = self.open(method, path, content_type, body.into()).await?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.map_err(broken)?.to_bytes();
            if code >= 300 {
                return Err(ClientError::Refused(code, String::from_utf8_lossy(&bytes).into_owned()));
            }
            serde_json::from_slice(&bytes).map_err(broken)
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(broken)?
    }

    /// A request with a JSON body.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        self.call(method, path, "application/json", body).await
    }

    /// A merge patch.
    pub async fn merge(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call("PATCH", path, "application/merge-patch+json", Some(body)).await
    }

    /// A strategic merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call("PATCH", path, "application/strategic-merge-patch+json", Some(body)).await
    }
}
