//! Accepts connections: TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2 by ALPN, and the client's certificate when it shows one.

use super::attendance::{Attendance, Heard, Patience, Silence};
use super::authn::x509;
use super::chain::Server;
use crate::apiserver::inbound::Inbound;
use crate::pki::Pki;
use crate::pki::authority::Signed;
use arc_swap::ArcSwap;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long the last answers of a connection that is closed for its silence may take on their way.
const FLUSH: Duration = Duration::from_secs(60);
/// How long requests in flight may go on at shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// Why TLS could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A key or certificate is unusable.
    #[error("the server's certificate or key cannot be used")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// rustls does not want it.
    #[error("TLS configuration")]
    Rustls(#[from] rustls::Error),
    /// No way to verify clients.
    #[error("client certificate verification")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// The server's certificate, which may change while connections come in.
#[derive(Debug)]
pub struct Serving(ArcSwap<CertifiedKey>);

impl Serving {
    /// With its first certificate; the authority's own is sent along, so that joining nodes can pin it.
    pub fn new(signed: &Signed, authority: &str) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from(certified(signed, authority)?)))
    }

    /// Shows another certificate from the next handshake on.
    pub fn replace(&self, signed: &Signed, authority: &str) -> Result<(), TlsError> {
        self.0.store(certified(signed, authority)?);
        Ok(())
    }
}

fn certified(signed: &Signed, authority: &str) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = vec![
        CertificateDer::from_pem_slice(signed.certificate.as_bytes())?,
        CertificateDer::from_pem_slice(authority.as_bytes())?,
    ];
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// What listeners need to speak TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// The authority of front proxies, DER.
    front_proxy: Arc<CertificateDer<'static>>,
}

/// The configuration for the server's own certificate and clients of its authorities.
pub fn config(pki: &Pki, serving: Arc<Serving>) -> Result<Tls, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let front_proxy = CertificateDer::from_pem_slice(pki.front_proxy.certificate.as_bytes())?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.authority.certificate.as_bytes())?)?;
    roots.add(front_proxy.clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), front_proxy: Arc::new(front_proxy) })
}

/// What is known of a connection.
pub struct Peer {
    /// The client's certificate.
    pub certificate: Option<x509::Certificate>,
    /// Its address.
    pub address: SocketAddr,
}

/// Serves until `stop` is cancelled, then lets requests in flight end.
pub async fn serve(listener: TcpListener, tls: Tls, server: Arc<Server>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors: let some go before the next try.
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        if let Err(error) = keep_alive(&stream) {
            tracing::debug!(%error, "keep-alive of a connection");
        }
        connections.spawn(connection(stream, address, tls.clone(), server.clone(), stop.clone()));
    }
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
}

/// Clients that vanish while nobody says anything, as in a quiet exec, are noticed within minutes.
fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &30)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &15)
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Tls,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let handshake = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls.config).accept(stream));
    let Some(Ok(Ok(stream))) = stop.run_until_cancelled(handshake).await else { return };
    let session = stream.get_ref().1;
    let shown = session.peer_certificates().and_then(|chain| chain.first());
    let certificate = shown.and_then(|shown| x509::Certificate::read(shown, &tls.front_proxy));
    let peer = Arc::new(Peer { certificate, address });
    let attendance = Attendance::begin(Patience::default());
    let listens = (session.alpn_protocol() != Some(b"h2")).then(|| attendance.clone());
    let requests = attendance.clone();
    let service = hyper::service::service_fn(move |request| {
        let (server, peer, served) = (server.clone(), peer.clone(), requests.request());
        async move {
            let answer = server.handle(Inbound::of(request), peer).await;
            Ok::<_, std::convert::Infallible>(served.until_sent(answer))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Heads have a time of their own in `attendance`; this one would count for connections between requests, too.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None::<Duration>);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(30));
    let io = TokioIo::new(Heard::new(stream, listens));
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    let silence = tokio::select! {
        ended = attendance.attend(connection.as_mut()) => match ended {
            Ok(_) | Err(Silence::NoHead) => return,
            Err(Silence::Idle) => true,
        },
        () = stop.cancelled() => false,
    };
    connection.as_mut().graceful_shutdown();
    let rest = if silence { FLUSH } else { DRAIN };
    let _ = tokio::time::timeout(rest, connection).await;
}
