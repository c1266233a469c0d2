//! A small HTTPS server with an authority of its own, for webhooks and identity providers. It asks for client certificates
//! of the same authority, and says who had one.

use bytes::Bytes;
use coracle_pki::authority::{Authority, Profile};
use coracle_pki::kubeconfig;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// A request.
#[derive(Debug)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// Its body as JSON, null when it is none.
    pub body: Value,
    /// Whether the client had a certificate of the server's authority.
    pub certified: bool,
    /// The headers.
    pub headers: http::HeaderMap,
}

/// Answers requests: code and body.
pub type Answer = dyn Fn(&Asked) -> (u16, Value) + Send + Sync;

/// A running server; it ends with the process.
pub struct Https {
    /// `host:port`.
    pub address: String,
    authority: Authority,
    _dir: tempfile::TempDir,
}

async fn exchange(
    request: Request<Incoming>,
    certified: bool,
    answer: Arc<Answer>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (path, headers) = (request.uri().to_string(), request.headers().clone());
    let body = request.into_body().collect().await?.to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked { path, body, certified, headers };
    // Some answers are slow on purpose.
    let made = tokio::task::spawn_blocking(move || answer(&asked)).await;
    let (code, value) = made.unwrap_or((500, Value::Null));
    let response = Response::builder().status(code).header("content-type", "application/json");
    Ok(response.body(Full::new(value.to_string().into())).expect("a response of ours is one"))
}

impl Https {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// When it cannot.
    pub fn start(answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", answer)
    }

    /// The same at another address, in the network of the calling thread.
    ///
    /// # Panics
    /// When it cannot.
    pub fn start_on(bind: &str, answer: impl Fn(&Asked) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::ensure(dir.path(), "ca", "other-ca").expect("an authority");
        let tls = acceptor(&authority);
        let listener = std::net::TcpListener::bind(bind).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("an address").to_string();
        let answer: Arc<Answer> = Arc::new(answer);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let (tls, answer) = (tls.clone(), answer.clone());
                    tokio::spawn(async move {
                        let Ok(stream) = tls.accept(stream).await else { return };
                        let certified = stream.get_ref().1.peer_certificates().is_some();
                        let service = service_fn(move |request| exchange(request, certified, answer.clone()));
                        let http = hyper::server::conn::http1::Builder::new();
                        let _ = http.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            });
        });
        Self { address, authority, _dir: dir }
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Its authority, PEM.
    pub fn authority(&self) -> &str {
        &self.authority.certificate
    }

    /// A kubeconfig for those who ask it, with a certificate for the asker; its path.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn kubeconfig(&self, dir: &Path, name: &str) -> String {
        let signed = self.authority.sign(&Profile::client("asker", &[])).expect("a certificate");
        let path = dir.join(name);
        kubeconfig::write(&path, &self.url("/"), self.authority(), "asker", &signed).expect("a kubeconfig");
        path.display().to_string()
    }
}

fn acceptor(authority: &Authority) -> tokio_rustls::TlsAcceptor {
    let profile = Profile::server("localhost", &["127.0.0.1".to_owned(), "localhost".to_owned()]);
    let signed = authority.sign(&profile).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let ca = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).expect("PEM");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions")
        .with_client_cert_verifier(clients.allow_unauthenticated().build().expect("a verifier"))
        .with_single_cert(
            CertificateDer::pem_slice_iter(signed.certificate.as_bytes())
                .collect::<Result<_, _>>()
                .expect("PEM"),
            PrivateKeyDer::from_pem_slice(signed.key.as_bytes()).expect("PEM"),
        )
        .expect("the key is the certificate's");
    tokio_rustls::TlsAcceptor::from(Arc::new(config))
}
