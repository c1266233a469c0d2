//! Accepts connections: TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2 by ALPN, and the client's certificate when it shows one.

use super::attendance::{Attendance, Heard, Patience, Silence};
use super::authn::x509;
use super::chain::Server;
use super::revocation::Revocations;
use crate::inbound::Inbound;
use arc_swap::ArcSwap;
use coracle_cli::clients;
use coracle_pki::Pki;
use coracle_pki::authority::Signed;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
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
/// How long after their handshake clients are expected to say the request that they came with, at shutdown.
const LATE: Duration = Duration::from_secs(1);
/// Bytes of an answer that HTTP/2 may hold: 250 are sent at a time.
const SEND_BUFFER: usize = 128 * 1024;
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

/// Knows client certificates of the given authorities, DER.
pub fn knows(authorities: &[CertificateDer<'static>]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(clients::known(roots)?)
}

/// What listeners need to speak TLS.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    verifier: x509::Verifier,
    /// Connections of nodes, which end when the node is shut out.
    pub revocations: Arc<Revocations>,
}

/// The configuration for the server's own certificate and clients of its authorities. Those with a certificate of somebody
/// else are answered too; they are nobody.
pub fn config(pki: &Pki, serving: Arc<Serving>) -> Result<Tls, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let front_proxy = CertificateDer::from_pem_slice(pki.front_proxy.certificate.as_bytes())?;
    let cluster = CertificateDer::from_pem_slice(pki.authority.certificate.as_bytes())?;
    let holder = clients::Holder(knows(&[cluster.clone(), front_proxy.clone()])?);
    let verifier = x509::Verifier { cluster: knows(&[cluster])?, front_proxy: knows(&[front_proxy])? };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(holder))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Tls { config: Arc::new(config), verifier, revocations: Arc::default() })
}

/// What is known of a connection.
pub struct Peer {
    /// The client's certificate, verified or not.
    pub certificate: x509::Shown,
    /// Its address.
    pub address: SocketAddr,
}

/// Serves until `stop` is cancelled, then lets requests in flight end.
pub async fn serve(listener: &TcpListener, tls: Tls, server: Arc<Server>, stop: CancellationToken) {
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
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LATE).await;
    };
    let shaken = tokio::select! {
        shaken = handshake => shaken,
        () = late => return,
    };
    let Ok(Ok(stream)) = shaken else { return };
    let arrived = tokio::time::Instant::now();
    let session = stream.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    let certificate = tls.verifier.verify(chain, UnixTime::now());
    let entered = tls.revocations.enter(&certificate);
    let peer = Arc::new(Peer { certificate, address });
    let attendance = Attendance::begin(Patience::default());
    let listens = (session.alpn_protocol() != Some(b"h2")).then(|| attendance.clone());
    let requests = attendance.clone();
    let service = hyper::service::service_fn(move |request| {
        let (server, peer, served) = (server.clone(), peer.clone(), requests.request());
        async move {
            let request = Inbound::of(request);
            let version = request.version();
            let answer = server.handle(request, peer).await;
            Ok::<_, std::convert::Infallible>(served.until_sent(answer, version))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Heads have a time of their own in `attendance`; this one would count for connections between requests, too.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None::<Duration>);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Duration::from_secs(30));
    let io = TokioIo::new(Heard::new(stream, listens, entered));
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    let silence = tokio::select! {
        ended = attendance.attend(connection.as_mut()) => match ended {
            Ok(_) | Err(Silence::NoHead | Silence::Unread) => return,
            Err(Silence::Idle) => true,
        },
        () = stop.cancelled() => false,
    };
    if !silence {
        let heard = attendance.hear(connection.as_mut());
        if let Ok(Some(_)) = tokio::time::timeout_at(arrived + LATE, heard).await {
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    let rest = if silence { FLUSH } else { DRAIN };
    let _ = tokio::time::timeout(rest, connection).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::judge;
    use coracle_pki::authority::{Authority, Profile};
    use rustls::SignatureScheme;
    use rustls::client::ResolvesClientCert;

    #[derive(Debug)]
    struct Showing(Arc<CertifiedKey>);

    impl ResolvesClientCert for Showing {
        fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
            Some(self.0.clone())
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    /// What the server makes of a client with this certificate and this key; `None` when it hangs up.
    async fn shaken(tls: &Tls, certificate: &str, key: &str) -> Option<x509::Shown> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        let showing = Arc::new(Showing(Arc::new(CertifiedKey::new(vec![certificate], key))));
        let client = judge::client(Arc::new(judge::Anybody)).unwrap().with_client_cert_resolver(showing);
        let (near, far) = tokio::io::duplex(1 << 16);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
        let client = connector.connect(name, near);
        let (accepted, _client) = tokio::join!(TlsAcceptor::from(tls.config.clone()).accept(far), client);
        let accepted = accepted.ok()?;
        Some(tls.verifier.verify(accepted.get_ref().1.peer_certificates().unwrap(), UnixTime::now()))
    }

    #[tokio::test]
    async fn a_stranger_may_shake_hands_and_nobody_with_the_certificate_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(600)).unwrap();
        let serving = Serving::new(&pki.serving, &pki.authority.certificate).unwrap();
        let tls = config(&pki, Arc::new(serving)).unwrap();
        let stranger = Authority::ensure(&dir.path().join("other"), "ca", "coracle-ca").unwrap();
        let stranger = stranger.sign(&Profile::client("root", &["system:masters"])).unwrap();
        let shown = shaken(&tls, &pki.admin.certificate, &pki.admin.key).await;
        assert!(matches!(shown, Some(x509::Shown::Verified(_))), "{shown:?}");
        let shown = shaken(&tls, &stranger.certificate, &stranger.key).await;
        assert!(matches!(shown, Some(x509::Shown::Refused(_))), "{shown:?}");
        let shown = shaken(&tls, &pki.admin.certificate, &stranger.key).await;
        assert!(shown.is_none(), "a certificate without its key: {shown:?}");
    }
}
