//! A connection to a node's agent: its address from the Node object, TLS with the server's own client certificate.

use super::tunnel::Tunnels;
use crate::apiserver::api::Api;
use crate::pki::Pki;
use crate::pki::authority::Profile;
use bytes::Bytes;
use coracle_cli::judge::{self, Judge, Shown};
use coracle_proto::status::ApiError;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a node may take to answer.
const DIAL: Duration = Duration::from_secs(10);
/// Tunnels that may turn out to be dead.
const TUNNEL_TRIES: usize = 8;
/// The protocol of a raw connection through an agent.
const REACH: &str = "coracle-dial";
/// The agent's port when the Node does not say.
const PORT: u64 = 10250;

/// Dials agents.
pub struct Nodes {
    tls: TlsConnector,
    api: Arc<Api>,
    /// Connections that agents opened.
    pub tunnels: Arc<Tunnels>,
}

/// What carries a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// An agent whose certificate the cluster's authority signed must have one for its address; until the cluster has signed
/// one, an agent serves a certificate of its own, and like upstream without `--kubelet-certificate-authority` the server
/// proves itself to it and takes its word for who it is.
#[derive(Debug)]
struct Agents(Arc<WebPkiServerVerifier>);

impl Judge for Agents {
    fn judge(&self, shown: &Shown<'_>, _: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        if signs_itself(shown.certificate) {
            return Ok(());
        }
        let verified =
            self.0.verify_server_cert(shown.certificate, shown.chain, shown.name, shown.ocsp, shown.now);
        verified.map(|_| ())
    }
}

/// Whether a certificate is its own issuer.
fn signs_itself(der: &CertificateDer<'_>) -> bool {
    use x509_parser::prelude::{FromDer, X509Certificate};
    X509Certificate::from_der(der)
        .is_ok_and(|(_, c)| c.subject() == c.issuer() && c.verify_signature(None).is_ok())
}

impl Nodes {
    /// With a client certificate of the cluster's authority.
    pub fn new(api: Arc<Api>, pki: &Pki) -> anyhow::Result<Self> {
        let profile = Profile::client("kube-apiserver-kubelet-client", &["system:masters"]);
        let signed = pki.authority.ensure_signed(&pki.dir, "apiserver-kubelet-client", &profile)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pki.authority.certificate.as_bytes())?)?;
        let cluster = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let mut config = judge::client(Arc::new(Agents(cluster)))?.with_client_auth_cert(
            vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes())?],
            PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?,
        )?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), api, tunnels: Arc::default() })
    }

    /// The server.
    pub fn api(&self) -> &Arc<Api> {
        &self.api
    }

    /// Host and port of a node's agent.
    fn address(&self, node: &str) -> Result<(String, u16), ApiError> {
        let kind = self.api.registry.resource("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
        let object = self.api.cached(&kind, "", node)?.value();
        let addresses = object["status"]["addresses"].as_array().cloned().unwrap_or_default();
        let find =
            |kind: &str| addresses.iter().find(|a| a["type"] == kind).and_then(|a| a["address"].as_str());
        let host = find("InternalIP").or_else(|| find("ExternalIP")).or_else(|| find("Hostname"));
        let host =
            host.ok_or_else(|| ApiError::internal(format!("no preferred addresses found for node {node}")))?;
        let port = &object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
        Ok((host.to_owned(), u16::try_from(port.as_u64().unwrap_or(PORT)).unwrap_or(10250)))
    }

    /// Opens a connection to a node's agent: through a tunnel when the node keeps some, by its address otherwise.
    pub async fn dial(&self, node: &str) -> Result<TlsStream<Box<dyn Io>>, ApiError> {
        let failed = |why: String| ApiError::internal(format!("error dialing backend: {why}"));
        // A node that is not there cannot be dialled either way, and the answer says so.
        let address = self.address(node);
        if self.tunnels.has(node) {
            let tunnelled = async {
                let mut tries = 0;
                loop {
                    // An idle connection may have died unseen: the next one is younger.
                    let stream: Box<dyn Io> = Box::new(self.tunnels.take(node).await);
                    let host = address.as_ref().map_or_else(|_| node.to_owned(), |(host, _)| host.clone());
                    let name = ServerName::try_from(host).map_err(|e| e.to_string())?;
                    match self.tls.connect(name, stream).await {
                        Ok(stream) => return Ok(stream),
                        Err(error) if tries == TUNNEL_TRIES => {
                            return Err(format!("tunnel of {node}: {error}"));
                        }
                        Err(_) => tries += 1,
                    }
                }
            };
            return match tokio::time::timeout(DIAL, tunnelled).await {
                Ok(result) => result.map_err(failed),
                Err(_) => Err(failed(format!("tunnel of {node}: i/o timeout"))),
            };
        }
        let (host, port) = address?;
        let connect = async {
            let stream = TcpStream::connect((host.as_str(), port))
                .await
                .map_err(|e| format!("dial tcp {host}:{port}: connect: {}", words(&e)))?;
            let _ = stream.set_nodelay(true);
            let name = ServerName::try_from(host.clone()).map_err(|e| e.to_string())?;
            let stream: Box<dyn Io> = Box::new(stream);
            self.tls.connect(name, stream).await.map_err(|e| format!("tls to {host}:{port}: {e}"))
        };
        match tokio::time::timeout(DIAL, connect).await {
            Ok(result) => result.map_err(failed),
            Err(_) => Err(failed(format!("dial tcp {host}:{port}: i/o timeout"))),
        }
    }

    /// One request to a node's agent.
    pub async fn send<B>(&self, node: &str, request: Request<B>) -> Result<Response<Incoming>, ApiError>
    where
        B: hyper::body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.dial(node).await?;
        exchange(stream, request).await
    }

    /// What a node's agent answers to a request without a body; an answer that is no success is an error with its text.
    pub async fn ask(&self, method: Method, node: &str, path: &str) -> Result<Bytes, ApiError> {
        let request = Request::builder().method(method).uri(path).header("host", node);
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        let response = self.send(node, request).await?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        if !status.is_success() {
            let why = String::from_utf8_lossy(&body);
            return Err(ApiError::internal(format!("{node} answered {path} with {status}: {}", why.trim())));
        }
        Ok(body)
    }

    /// A raw connection to something on a node's network, or in a pod of it, through the node's agent.
    pub async fn reach(&self, node: &str, address: &str) -> Result<Box<dyn Io>, ApiError> {
        let request = Request::get(format!("/dial/{address}"))
            .header("host", node)
            .header("connection", "Upgrade")
            .header("upgrade", REACH)
            .body(Empty::<Bytes>::new())
            .map_err(ApiError::internal)?;
        let mut response = self.send(node, request).await?;
        if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let why =
                format!("error trying to reach service: dial tcp {address}: connect: connection refused");
            return Err(ApiError::new(503, "ServiceUnavailable", why));
        }
        let upgraded = hyper::upgrade::on(&mut response).await.map_err(ApiError::internal)?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    /// A small JSON document from a node's agent, such as `/stats/summary`.
    pub async fn json(&self, node: &str, path: &str) -> Result<Value, ApiError> {
        let body = self.ask(Method::GET, node, path).await?;
        serde_json::from_slice(&body).map_err(ApiError::internal)
    }
}

/// A failure of the system in its own words, without the number.
pub fn words(error: &std::io::Error) -> String {
    let known = error.raw_os_error().map(|code| nix::errno::Errno::from_raw(code).desc().to_lowercase());
    known.unwrap_or_else(|| error.to_string())
}

/// One HTTP/1.1 exchange over a connection of its own.
pub async fn exchange<S, B>(stream: S, request: Request<B>) -> Result<Response<Incoming>, ApiError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
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
