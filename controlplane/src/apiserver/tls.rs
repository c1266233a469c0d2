//! Accepts connections: TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2 by ALPN, and the client's certificate when it shows one.

use super::authn::x509;
use super::chain::Server;
use super::user::User;
use crate::pki::Pki;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);
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

/// The configuration for the server's own certificate and clients of its CA.
pub fn config(pki: &Pki) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.authority.certificate.as_bytes())?)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let chain = vec![
        CertificateDer::from_pem_slice(pki.serving.certificate.as_bytes())?,
        CertificateDer::from_pem_slice(pki.authority.certificate.as_bytes())?,
    ];
    let key = PrivateKeyDer::from_pem_slice(pki.serving.key.as_bytes())?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What is known of a connection.
pub struct Peer {
    /// The identity in the client's certificate.
    pub certificate: Option<User>,
    /// Its address.
    pub address: SocketAddr,
}

/// Serves until `stop` is cancelled, then lets requests in flight end.
pub async fn serve(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    server: Arc<Server>,
    stop: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(config);
    let graceful = GracefulShutdown::new();
    let watcher = Arc::new(graceful);
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
        let watch = watcher.watcher();
        tokio::spawn(connection(stream, address, acceptor.clone(), server.clone(), watch));
    }
    if let Ok(graceful) = Arc::try_unwrap(watcher) {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    server: Arc<Server>,
    watch: hyper_util::server::graceful::Watcher,
) {
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let certificate =
        stream.get_ref().1.peer_certificates().and_then(|c| c.first()).and_then(|c| x509::user(c));
    let peer = Arc::new(Peer { certificate, address });
    let service = hyper::service::service_fn(move |request| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(server.handle(request, peer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(Duration::from_secs(30));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let _ = watch.watch(connection.into_owned()).await;
}
