//! Connections to aggregated API servers: endpoints from Services, dialled through the node agents, TLS with the
//! front-proxy client certificate.

use super::target::{Target, Unavailable};
use crate::https_client::{KeyError, root_store};
use crate::nodes::address::os_error_text;
use crate::nodes::connection::Io;
use crate::nodes::dial::{ClusterDialer, Endpoint};
use crate::objects::Objects;
use crate::respond::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::server_cert;
use coracle_pki::{Pki, PkiError};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Dial timeout per endpoint.
const DIAL: Duration = Duration::from_secs(10);
/// Idle timeout of pooled connections.
const IDLE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The Service has no usable endpoint.
    #[error("{0}")]
    NoEndpoint(String),
    /// The endpoint cannot be dialled.
    #[error("dial tcp {address}: {why}")]
    Dial {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// The TLS client cannot be configured.
    #[error("{0}")]
    Keys(ClientTlsError),
    /// The TLS handshake failed.
    #[error("{0}")]
    Tls(String),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Broken(String),
}

// Not a source: callers show the innermost one, which does not say whose keys are meant.
impl From<ClientTlsError> for TransportError {
    fn from(error: ClientTlsError) -> Self {
        Self::Keys(error)
    }
}

/// Why the TLS client cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The authorities of the APIService are not base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// A key or certificate cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no front-proxy certificate.
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// Connections to one server, kept for the next request.
pub type PooledClient = Client<DialService, Body>;

/// Dials aggregated API servers.
pub struct BackendDialer {
    /// For Services and EndpointSlices.
    pub objects: Arc<Objects>,
    /// Dials endpoints in the cluster.
    pub dialer: Arc<ClusterDialer>,
    /// For the front-proxy client certificate.
    pub pki: Arc<Pki>,
}

impl BackendDialer {
    /// The endpoints of a server, or why there are none.
    pub fn endpoints(&self, target: &Target) -> Result<Vec<Endpoint>, Unavailable> {
        let cache = |group: &str, plural: &str| {
            let kind = self.objects.registry.preferred(group, plural)?;
            self.objects.cache(&kind).ok()
        };
        let service = cache("", "services").and_then(|cache| cache.get(&target.namespace, &target.service));
        let service = service.as_ref().map(|service| service.doc());
        let slices = cache("discovery.k8s.io", "endpointslices").map(|c| c.list(Some(&target.namespace)));
        let slices: Vec<_> = slices
            .into_iter()
            .flatten()
            .filter(|slice| {
                slice.meta.labels.get("kubernetes.io/service-name").is_some_and(|of| *of == target.service)
            })
            .collect();
        let slices: Vec<_> = slices.iter().map(|slice| slice.doc()).collect();
        let slices: Vec<_> = slices.iter().map(|slice| slice.view()).collect();
        target.endpoints(service.as_ref().map(|service| service.view()), &slices)
    }

    /// Connects to one endpoint; with `insecure` its certificate is not verified.
    pub async fn connect(
        &self,
        target: &Target,
        endpoint: &Endpoint,
        insecure: bool,
    ) -> Result<TlsStream<Box<dyn Io>>, TransportError> {
        let tls = self.tls(target, insecure)?;
        let name = target.host();
        let server = ServerName::try_from(name.clone()).map_err(|e| TransportError::Tls(e.to_string()))?;
        let address = address(endpoint);
        let connect = async {
            let dialled = self.dialer.dial(endpoint).await;
            let stream = dialled.map_err(|error| TransportError::Dial {
                address: address.clone(),
                why: format!("connect: {}", os_error_text(&error)),
            })?;
            tls.connect(server, stream).await.map_err(|error| TransportError::Tls(handshake(&error, &name)))
        };
        let late = || TransportError::Dial { address: address.clone(), why: "i/o timeout".into() };
        tokio::time::timeout(DIAL, connect).await.unwrap_or_else(|_| Err(late()))
    }

    /// Connects to the first endpoint that can be dialled.
    async fn connect_any(&self, target: &Target) -> Result<TlsStream<Box<dyn Io>>, TransportError> {
        use rand::seq::SliceRandom;
        let mut endpoints = self.endpoints(target).map_err(|why| TransportError::NoEndpoint(why.message))?;
        endpoints.shuffle(&mut rand::rng());
        let mut last =
            TransportError::NoEndpoint(format!("no endpoints available for service {:?}", target.service));
        for endpoint in &endpoints {
            match self.connect(target, endpoint, target.insecure).await {
                Err(error @ TransportError::Dial { .. }) => last = error,
                other => return other,
            }
        }
        Err(last)
    }

    fn tls(&self, target: &Target, insecure: bool) -> Result<TlsConnector, ClientTlsError> {
        let builder = if insecure {
            server_cert::client_config(Arc::new(server_cert::SkipVerify)).map_err(KeyError::from)?
        } else {
            let pem = STANDARD.decode(&target.authorities)?;
            let roots = root_store(Some(pem.as_slice()).filter(|pem| !pem.is_empty()))?;
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(KeyError::from)?
                .with_root_certificates(roots)
        };
        let signed = self.pki.front_proxy_client()?;
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(signed.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).map_err(KeyError::from)?;
        let chain = chain.map_err(KeyError::from)?;
        let mut config = builder.with_client_auth_cert(chain, key).map_err(KeyError::from)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// `host:port`.
pub fn address(endpoint: &Endpoint) -> String {
    let Endpoint { host, port, .. } = endpoint;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A handshake that failed, in Go's words where people look for them.
fn handshake(error: &std::io::Error, name: &str) -> String {
    use rustls::CertificateError::{NotValidForName, NotValidForNameContext, UnknownIssuer};
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let head = "tls: failed to verify certificate: x509: certificate";
    match cause {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer)) => {
            format!("{head} signed by unknown authority")
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            format!("{head} is not valid for {name}")
        }
        _ => format!("tls: {error}"),
    }
}

/// Connector of a pooled client.
#[derive(Clone)]
pub struct DialService {
    dialer: Arc<BackendDialer>,
    target: Arc<Target>,
}

/// A pooled client of one server.
pub fn pooled_client(dialer: &Arc<BackendDialer>, target: &Target) -> PooledClient {
    let dial = DialService { dialer: dialer.clone(), target: Arc::new(target.clone()) };
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(8).pool_timer(TokioTimer::new());
    builder.build(dial)
}

impl tower::Service<Uri> for DialService {
    type Response = BackendStream;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<BackendStream, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { dialer, target } = self.clone();
        async move { Ok(BackendStream(TokioIo::new(dialer.connect_any(&target).await?))) }.boxed()
    }
}

/// A connection of a pool.
pub struct BackendStream(TokioIo<TlsStream<Box<dyn Io>>>);

impl Connection for BackendStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for BackendStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for BackendStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
