//! Connections to the servers: found through Services, dialled through the nodes' agents, TLS with the front-proxy
//! certificate.

use super::target::{Target, Unavailable};
use crate::api::Api;
use crate::connect::node::{Io, words};
use crate::connect::reach::{Reach, Spot};
use crate::remote::trusted;
use crate::respond::Body;
use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::judge;
use coracle_pki::Pki;
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

/// How long one address may take to answer.
const DIAL: Duration = Duration::from_secs(10);
/// How long connections wait for the next request.
const IDLE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The Service leads nowhere.
    #[error("{0}")]
    Nowhere(String),
    /// Nobody answers.
    #[error("dial tcp {address}: {why}")]
    Dial {
        /// Where.
        address: String,
        /// Why.
        why: String,
    },
    /// Somebody answers who is not believed, or does not believe us.
    #[error("{0}")]
    Tls(String),
    /// The exchange broke.
    #[error("{0}")]
    Broken(String),
}

/// Connections to one server, kept for the next request.
pub type Pooled = Client<Dial, Body>;

/// Opens connections.
pub struct Dialer {
    /// Where Services are known.
    pub api: Arc<Api>,
    /// The way into the cluster.
    pub reach: Arc<Reach>,
    /// Who this server is to others.
    pub pki: Arc<Pki>,
}

impl Dialer {
    /// Where a server listens, or what is in the way.
    pub fn spots(&self, target: &Target) -> Result<Vec<Spot>, Unavailable> {
        let cache = |group: &str, plural: &str| {
            let kind = self.api.registry.preferred(group, plural)?;
            self.api.cache(&kind).ok()
        };
        let service = cache("", "services").and_then(|cache| cache.get(&target.namespace, &target.service));
        let service = service.map(|service| service.value());
        let slices = cache("discovery.k8s.io", "endpointslices").map(|c| c.list(Some(&target.namespace)));
        let slices: Vec<_> = slices
            .into_iter()
            .flatten()
            .filter(|slice| {
                slice.meta.labels.get("kubernetes.io/service-name").is_some_and(|of| *of == target.service)
            })
            .map(|slice| slice.value())
            .collect();
        target.spots(service.as_ref(), &slices)
    }

    /// A connection to one address; `anybody`: whoever answers is believed.
    pub async fn connect(
        &self,
        target: &Target,
        spot: &Spot,
        anybody: bool,
    ) -> Result<TlsStream<Box<dyn Io>>, LinkError> {
        let tls = self.tls(target, anybody).map_err(LinkError::Tls)?;
        let name = target.host();
        let server = ServerName::try_from(name.clone()).map_err(|e| LinkError::Tls(e.to_string()))?;
        let address = address(spot);
        let connect = async {
            let dialled = self.reach.dial(spot).await;
            let stream = dialled.map_err(|error| LinkError::Dial {
                address: address.clone(),
                why: format!("connect: {}", words(&error)),
            })?;
            tls.connect(server, stream).await.map_err(|error| LinkError::Tls(handshake(&error, &name)))
        };
        let late = || LinkError::Dial { address: address.clone(), why: "i/o timeout".into() };
        tokio::time::timeout(DIAL, connect).await.unwrap_or_else(|_| Err(late()))
    }

    /// To the first address that answers.
    async fn any(&self, target: &Target) -> Result<TlsStream<Box<dyn Io>>, LinkError> {
        use rand::seq::SliceRandom;
        let mut spots = self.spots(target).map_err(|why| LinkError::Nowhere(why.message))?;
        spots.shuffle(&mut rand::rng());
        let mut last = LinkError::Nowhere(format!("no endpoints available for service {:?}", target.service));
        for spot in &spots {
            match self.connect(target, spot, target.insecure).await {
                Err(error @ LinkError::Dial { .. }) => last = error,
                other => return other,
            }
        }
        Err(last)
    }

    fn tls(&self, target: &Target, anybody: bool) -> Result<TlsConnector, String> {
        let builder = if anybody {
            judge::client(Arc::new(judge::Anybody)).map_err(|e| e.to_string())?
        } else {
            let pem = STANDARD.decode(&target.authorities).map_err(|e| e.to_string())?;
            let roots = trusted(Some(pem.as_slice()).filter(|pem| !pem.is_empty()))?;
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|e| e.to_string())?
                .with_root_certificates(roots)
        };
        let signed = self.pki.front_proxy_client().map_err(|e| e.to_string())?;
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(signed.certificate.as_bytes()).collect();
        let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).map_err(|e| e.to_string())?;
        let chain = chain.map_err(|e| e.to_string())?;
        let mut config = builder.with_client_auth_cert(chain, key).map_err(|e| e.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// `host:port`.
pub fn address(spot: &Spot) -> String {
    let Spot { host, port, .. } = spot;
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

/// What opens the connections of a pool.
#[derive(Clone)]
pub struct Dial {
    dialer: Arc<Dialer>,
    target: Arc<Target>,
}

/// The connections to one server.
pub fn pooled(dialer: &Arc<Dialer>, target: &Target) -> Pooled {
    let dial = Dial { dialer: dialer.clone(), target: Arc::new(target.clone()) };
    let mut builder = Client::builder(TokioExecutor::new());
    builder.pool_idle_timeout(IDLE).pool_max_idle_per_host(8).pool_timer(TokioTimer::new());
    builder.build(dial)
}

impl tower::Service<Uri> for Dial {
    type Response = Link;
    type Error = LinkError;
    type Future = BoxFuture<'static, Result<Link, LinkError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), LinkError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { dialer, target } = self.clone();
        async move { Ok(Link(TokioIo::new(dialer.any(&target).await?))) }.boxed()
    }
}

/// A connection of a pool.
pub struct Link(TokioIo<TlsStream<Box<dyn Io>>>);

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl hyper::rt::Write for Link {
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
