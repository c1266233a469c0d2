//! Accepts connections: TLS 1.2 and 1.3, HTTP/1.1 and HTTP/2 by ALPN, with an optional client certificate.

use super::authn::ca_files::OperatorCas;
use super::authn::x509::{self, Issuer};
use super::idle_timeout::{ConnectionTimeout, ConnectionTimer, TimedStream, Timeouts};
use super::respond::Body;
use super::revocation::Revocations;
use crate::request_body::RequestBody;
use arc_swap::ArcSwap;
use coracle_cli::causes;
use coracle_cli::client_cert;
use coracle_pki::Pki;
use coracle_pki::authority::{Authority, Signed};
use coracle_trace::{Stage, current};
use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::socket::{setsockopt, sockopt};
use parking_lot::Mutex;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a client may take for its handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);
/// How long the last answers of a connection that is closed for its silence may take on their way.
const FLUSH: Duration = Duration::from_secs(60);
/// How long after their handshake clients are expected to say the request that they came with, at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// A client that connects for a request sends it at once. A handshake that is longer ago is not part of the request: neither is the
/// time in which the client did something else.
const CONNECTED_FOR_IT: Duration = Duration::from_millis(20);
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
pub struct ServingCertificate(ArcSwap<CertifiedKey>);

impl ServingCertificate {
    /// With its first certificate; the authority's own is sent along, so that joining nodes can pin it.
    pub fn new(signed: &Signed, authority: &Authority) -> Result<Self, TlsError> {
        Ok(Self(ArcSwap::from(certified(signed, authority)?)))
    }

    /// Shows another certificate from the next handshake on.
    pub fn replace(&self, signed: &Signed, authority: &Authority) -> Result<(), TlsError> {
        self.0.store(certified(signed, authority)?);
        Ok(())
    }
}

fn certified(signed: &Signed, authority: &Authority) -> Result<Arc<CertifiedKey>, TlsError> {
    let mut chain = vec![CertificateDer::from_pem_slice(signed.certificate.as_bytes())?];
    chain.extend(certificates(&authority.chain())?);
    let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?;
    // Refused if the key belongs to another certificate.
    Ok(Arc::new(CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())?))
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Knows client certificates of the given authorities, DER.
pub fn client_verifier(
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(client_cert::ca_verifier(roots)?)
}

/// The certificates of a PEM text.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    Ok(CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?)
}

/// What listeners need to speak TLS.
#[derive(Clone)]
pub struct Tls {
    /// Replaced when the authority is rotated; open connections stay.
    trust: Arc<ArcSwap<Trust>>,
    serving: Arc<ServingCertificate>,
    /// Authorities of the operator, held while `trust` is made from them.
    operator: Arc<Mutex<OperatorCas>>,
    /// Connections that end before the client closes them: of nodes that are shut out, and of clients whose authority the operator
    /// has replaced.
    pub revocations: Arc<Revocations>,
}

/// How clients are verified.
struct Trust {
    config: Arc<ServerConfig>,
    verifier: x509::Verifier,
}

impl Tls {
    /// Uses the authorities as they are now, for connections from now on.
    pub fn reload(&self, pki: &Pki) -> Result<(), TlsError> {
        let operator = self.operator.lock();
        self.trust.store(Arc::new(Trust::new(pki, &self.serving, &operator)?));
        Ok(())
    }

    /// The authorities of the operator.
    pub fn operator_cas(&self) -> OperatorCas {
        self.operator.lock().clone()
    }

    /// Uses other authorities of the operator; whether they differ. Open connections with a certificate of such an authority are
    /// closed: what the operator has removed must not count any longer.
    pub fn replace_operator_cas(&self, pki: &Pki, cas: OperatorCas) -> Result<bool, TlsError> {
        let mut operator = self.operator.lock();
        if *operator == cas {
            return Ok(false);
        }
        self.trust.store(Arc::new(Trust::new(pki, &self.serving, &cas)?));
        *operator = cas;
        self.revocations.close_operators();
        Ok(true)
    }
}

/// The configuration for the server's own certificate and clients of its authorities and the operator's. Those with a
/// certificate of somebody else are answered too; they are nobody.
pub fn config(pki: &Pki, serving: Arc<ServingCertificate>, operator: OperatorCas) -> Result<Tls, TlsError> {
    let trust = Trust::new(pki, &serving, &operator)?;
    Ok(Tls {
        trust: Arc::new(ArcSwap::from_pointee(trust)),
        serving,
        operator: Arc::new(Mutex::new(operator)),
        revocations: Arc::default(),
    })
}

impl Trust {
    fn new(pki: &Pki, serving: &Arc<ServingCertificate>, operator: &OperatorCas) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let front_proxy = certificates(&pki.front_proxy.certificate)?;
        let cluster = certificates(&pki.authority().certificate)?;
        let known = [
            (Issuer::Cluster, &cluster[..]),
            (Issuer::Operator, operator.clients.certificates()),
            (Issuer::FrontProxy, &front_proxy[..]),
            (Issuer::OperatorProxy, operator.proxies.certificates()),
        ];
        let holder = client_cert::ProofOfPossession(client_verifier(&known.map(|(_, all)| all).concat())?);
        let mut authorities = Vec::new();
        for (issuer, certificates) in known.into_iter().filter(|(_, all)| !all.is_empty()) {
            authorities.push((issuer, client_verifier(certificates)?));
        }
        let verifier = x509::Verifier { authorities };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::new(holder))
            .with_cert_resolver(serving.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), verifier })
    }
}

/// What is known of a connection.
pub struct Peer {
    /// The client's certificate, verified or not.
    pub certificate: x509::PresentedCertificate,
    /// Its address.
    pub address: SocketAddr,
    /// How the connection was made.
    pub handshake: Handshake,
}

/// When a connection was accepted, when its handshake began, and when that was done.
pub struct Handshake {
    accepted: Instant,
    begun: Instant,
    done: Instant,
    recorded: AtomicBool,
}

impl Handshake {
    /// Records it below the current request, if that is the first that asks, and the client connected for it.
    pub(super) fn record(&self) {
        let scope = current();
        let Some(clock) = scope.recorder.clock() else { return };
        if self.recorded.swap(true, Ordering::Relaxed) || self.done.elapsed() > CONNECTED_FOR_IT {
            return;
        }
        let [accepted, begun, done] = [self.accepted, self.begun, self.done].map(|at| clock.of(at));
        for (stage, from, to) in [(Stage::Accept, accepted, begun), (Stage::Tls, begun, done)] {
            scope.recorder.span_at(stage, scope.span, (scope.subject, scope.revision), from, to, "", 0);
        }
    }
}

/// Answers the requests of connections.
pub trait Handler: Send + Sync + 'static {
    /// One request, one response. Failures are responses, too.
    fn handle(
        self: Arc<Self>,
        request: Request<RequestBody>,
        peer: Arc<Peer>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Serves until `stop` is cancelled, then lets requests in flight end.
pub async fn serve(listener: &TcpListener, tls: Tls, handler: Arc<impl Handler>, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let (stream, address) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors: let some go before the next try.
                    tracing::warn!(error = %causes::chain(&error), "accepting a connection failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let accepted = Instant::now();
        let _ = stream.set_nodelay(true);
        if let Err(error) = keep_alive(&stream) {
            tracing::debug!(error = %causes::chain(&error), "setting TCP keepalive failed");
        }
        connections.spawn(connection(
            (stream, address, accepted),
            tls.clone(),
            handler.clone(),
            stop.clone(),
        ));
    }
    connections.close();
    if tokio::time::timeout(DRAIN, connections.wait()).await.is_err() {
        let open = connections.len();
        tracing::warn!(open, "requests did not end within the shutdown time, closing their connections");
    }
}

/// Enables TCP keepalive, so that dead peers of quiet connections are detected within minutes.
fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &30)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &15)
}

async fn connection(
    (stream, address, accepted): (TcpStream, SocketAddr, Instant),
    tls: Tls,
    handler: Arc<impl Handler>,
    stop: CancellationToken,
) {
    let begun = Instant::now();
    let trust = tls.trust.load_full();
    let handshake = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(trust.config.clone()).accept(stream));
    let expired = async {
        stop.cancelled().await;
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let handshaken = tokio::select! {
        handshaken = handshake => handshaken,
        () = expired => return,
    };
    let Ok(Ok(stream)) = handshaken else { return };
    let arrived = tokio::time::Instant::now();
    let session = stream.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    let certificate = trust.verifier.verify(chain, UnixTime::now());
    let tracked = tls.revocations.track(&certificate);
    // Authorities that were replaced during the handshake have closed what was tracked by then.
    if tracked.is_some() && !Arc::ptr_eq(&trust, &tls.trust.load()) {
        return;
    }
    let handshake = Handshake { accepted, begun, done: arrived.into_std(), recorded: AtomicBool::new(false) };
    let peer = Arc::new(Peer { certificate, address, handshake });
    let timer = ConnectionTimer::begin(Timeouts::default());
    let reads = (session.alpn_protocol() != Some(b"h2")).then(|| timer.clone());
    let requests = timer.clone();
    let service = hyper::service::service_fn(move |request| {
        let (handler, peer, served) = (handler.clone(), peer.clone(), requests.request());
        async move {
            let request = RequestBody::of(request);
            let version = request.version();
            let answer = handler.handle(request, peer).await;
            Ok::<_, std::convert::Infallible>(served.until_sent(answer, version))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // `idle_timeout` limits the time for request heads; this timeout would also apply to idle connections.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None::<Duration>);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Duration::from_secs(30));
    let io = TokioIo::new(TimedStream::new(stream, reads, tracked));
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
    let idle = tokio::select! {
        ended = timer.drive(connection.as_mut()) => match ended {
            Ok(_) | Err(ConnectionTimeout::NoHead | ConnectionTimeout::WriteStalled) => return,
            Err(ConnectionTimeout::Idle) => true,
        },
        () = stop.cancelled() => false,
    };
    if !idle {
        let waiting = timer.drive_until_request(connection.as_mut());
        if let Ok(Some(_)) = tokio::time::timeout_at(arrived + SHUTDOWN_GRACE, waiting).await {
            return;
        }
    }
    connection.as_mut().graceful_shutdown();
    let rest = if idle { FLUSH } else { DRAIN };
    if tokio::time::timeout(rest, connection).await.is_err() && !idle {
        tracing::warn!(%address, "requests did not end within the shutdown time, closing their connection");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cli::server_cert;
    use coracle_pki::authority::Profile;
    use coracle_pki::cluster_keys::ClusterKeys;
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
    async fn handshaken(tls: &Tls, certificate: &str, key: &str) -> Option<x509::PresentedCertificate> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        let showing = Arc::new(Showing(Arc::new(CertifiedKey::new(vec![certificate], key))));
        let client = server_cert::client_config(Arc::new(server_cert::SkipVerify))
            .unwrap()
            .with_client_cert_resolver(showing);
        let (near, far) = tokio::io::duplex(1 << 16);
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
        let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
        let client = connector.connect(name, near);
        let trust = tls.trust.load_full();
        let (accepted, _client) = tokio::join!(TlsAcceptor::from(trust.config.clone()).accept(far), client);
        let accepted = accepted.ok()?;
        Some(trust.verifier.verify(accepted.get_ref().1.peer_certificates().unwrap(), UnixTime::now()))
    }

    #[tokio::test]
    async fn a_stranger_may_shake_hands_and_nobody_with_the_certificate_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(600)).unwrap();
        let serving = ServingCertificate::new(&pki.serving, &pki.authority()).unwrap();
        let tls = config(&pki, Arc::new(serving), OperatorCas::default()).unwrap();
        let stranger = Authority::ensure(&dir.path().join("other"), "ca", "coracle-ca").unwrap();
        let stranger = stranger.sign(&Profile::client("root", &["system:masters"])).unwrap();
        let shown = handshaken(&tls, &pki.admin.certificate, &pki.admin.key).await;
        assert!(matches!(shown, Some(x509::PresentedCertificate::Verified(_))), "{shown:?}");
        let shown = handshaken(&tls, &stranger.certificate, &stranger.key).await;
        assert!(matches!(shown, Some(x509::PresentedCertificate::Refused(_))), "{shown:?}");
        let shown = handshaken(&tls, &pki.admin.certificate, &stranger.key).await;
        assert!(shown.is_none(), "a certificate without its key: {shown:?}");
    }

    #[tokio::test]
    async fn certificates_of_both_authorities_count_until_a_rotation_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(600)).unwrap();
        let serving = Arc::new(ServingCertificate::new(&pki.serving, &pki.authority()).unwrap());
        let tls = config(&pki, serving.clone(), OperatorCas::default()).unwrap();
        let step = |change: fn(ClusterKeys) -> ClusterKeys| {
            change(ClusterKeys::collect(dir.path()).unwrap()).write_ca(dir.path()).unwrap();
            assert!(pki.reload_authority().unwrap());
            serving.replace(&pki.renewed().unwrap().0, &pki.authority()).unwrap();
            tls.reload(&pki).unwrap();
        };
        let client = || pki.authority().sign(&Profile::client("jane", &[])).unwrap();
        let counts = async |signed: &Signed| {
            let shown = handshaken(&tls, &signed.certificate, &signed.key).await;
            matches!(shown, Some(x509::PresentedCertificate::Verified(_)))
        };
        let old = client();
        step(|keys| keys.prepare("coracle-ca-2").unwrap());
        assert!(counts(&old).await);
        step(|keys| keys.switch().unwrap());
        let new = client();
        assert!(counts(&old).await && counts(&new).await);
        step(|keys| keys.finish().unwrap());
        assert!(!counts(&old).await && counts(&new).await);
    }

    #[tokio::test]
    async fn authorities_of_the_operator_count_until_they_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::ensure(dir.path(), &["localhost".to_owned()], Duration::from_secs(600)).unwrap();
        let serving = ServingCertificate::new(&pki.serving, &pki.authority()).unwrap();
        let tls = config(&pki, Arc::new(serving), OperatorCas::default()).unwrap();
        let company = Authority::ensure(&dir.path().join("company"), "ca", "company").unwrap();
        let ann = company.sign(&Profile::client("ann", &[])).unwrap();
        let file = dir.path().join("company.pem");
        std::fs::write(&file, &company.certificate).unwrap();
        let shown = handshaken(&tls, &ann.certificate, &ann.key).await;
        assert!(matches!(shown, Some(x509::PresentedCertificate::Refused(_))), "{shown:?}");
        let cas = OperatorCas::read(Some(&file), None).unwrap();
        assert!(tls.replace_operator_cas(&pki, cas.clone()).unwrap());
        tls.reload(&pki).unwrap();
        let shown = handshaken(&tls, &ann.certificate, &ann.key).await.unwrap();
        assert!(matches!(shown, x509::PresentedCertificate::Verified(_)), "{shown:?}");
        let open = tls.revocations.track(&shown).unwrap();
        assert!(!tls.replace_operator_cas(&pki, cas).unwrap());
        assert!(open.check().is_ok(), "the same file again");
        assert!(tls.replace_operator_cas(&pki, OperatorCas::default()).unwrap());
        assert!(open.check().is_err(), "an open connection");
        let shown = handshaken(&tls, &ann.certificate, &ann.key).await;
        assert!(matches!(shown, Some(x509::PresentedCertificate::Refused(_))), "{shown:?}");
    }
}
