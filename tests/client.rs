//! A client that keeps its connections, over TLS with the administrator's certificate.

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How to reach a server.
#[derive(Clone)]
pub struct Target {
    address: String,
    tls: TlsConnector,
}

impl Target {
    /// The server whose state is in `data_dir`.
    pub fn new(data_dir: &Path, url: &str) -> anyhow::Result<Self> {
        let pem =
            |name: &str| std::fs::read(data_dir.join("pki").join(name)).with_context(|| name.to_owned());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem("ca.crt")?)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(&pem("admin.crt")?)?],
                PrivateKeyDer::from_pem_slice(&pem("admin.key")?)?,
            )?;
        let address = url.trim_start_matches("https://").to_owned();
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// One more connection.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        let (sender, connection) = handshake(TokioIo::new(self.raw().await?)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender })
    }

    /// The same without HTTP on it.
    pub async fn raw(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(self.tls.connect(ServerName::try_from("localhost")?, stream).await?)
    }
}

/// A connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

impl Connection {
    /// Waits until a request can be sent; false when the server has closed the connection, and nothing was sent.
    pub async fn is_ready(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and gives the head of the answer.
    pub async fn open(
        &mut self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        self.open_as(method, path, "application/json", body).await
    }

    /// The same with a body of another type.
    pub async fn open_as(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", content_type)
            .body(Full::new(body))?;
        Ok(self.sender.send_request(request).await?)
    }

    /// A request without a body, for those who care how they are answered.
    pub async fn open_accepting(
        &mut self,
        method: &str,
        path: &str,
        accept: &str,
    ) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("accept", accept).body(Full::new(Bytes::new()))?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer, which must be a success.
    pub async fn call(&mut self, method: &str, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        let response = self.open(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        anyhow::ensure!(status.is_success(), "{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }
}
