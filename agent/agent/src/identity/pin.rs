//! Verifies a server by the hash of its CA's public key: the server sends the CA certificate in the handshake, and
//! nothing is sent before that certificate has the hash and has signed the server's.

use super::IdentityError;
use coracle_cli::server_cert::{self, PresentedCert, ServerCertCheck};
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Handshake timeout.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// SHA-256 of a certificate's public key, in hex, as kubeadm prints it.
pub fn key_hash(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(Sha256::digest(certificate.public_key().raw).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[derive(Debug)]
struct Pinned {
    hash: String,
    found: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertCheck for Pinned {
    fn check(&self, shown: &PresentedCert<'_>, provider: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        let wrong = |why: String| rustls::Error::General(why);
        let meant = shown.chain.iter().find(|der| key_hash(der).is_some_and(|hash| hash == self.hash));
        let Some(authority) = meant else {
            let hashes: Vec<String> = shown.chain.iter().filter_map(|der| key_hash(der)).collect();
            return Err(wrong(format!(
                "the server's authority is not the one with hash sha256:{} (it shows sha256:{})",
                self.hash,
                hashes.join(", sha256:")
            )));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        verifier.verify_server_cert(shown.certificate, shown.chain, shown.name, shown.ocsp, shown.now)?;
        *self.found.lock() = Some(authority.clone().into_owned());
        Ok(())
    }
}

/// What a failed handshake says. Our own words are in an error whose text rustls begins with others.
fn refusal(error: &std::io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::General(why)) => why.clone(),
        _ => error.to_string(),
    }
}

/// Connects to a server and returns its verified CA certificate (DER).
pub async fn authority(server: &http::Uri, hash: &str) -> Result<Vec<u8>, IdentityError> {
    let failed = |why: String| IdentityError::Server { server: server.to_string(), why };
    let host = server.host().ok_or_else(|| failed("the URL names no host".into()))?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let pinned = Arc::new(Pinned { hash: hash.to_lowercase(), found: Mutex::default() });
    let config = server_cert::client_config(pinned.clone()).map_err(|error| failed(error.to_string()))?;
    let config = config.with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let unreachable = |why: String| IdentityError::Unreachable { server: server.to_string(), why };
    let shake = async {
        let connected = TcpStream::connect((host, port)).await;
        let stream = connected.map_err(|error| unreachable(error.to_string()))?;
        let shaken = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await;
        shaken.map_err(|error| failed(refusal(&error)))
    };
    tokio::time::timeout(HANDSHAKE_TIMEOUT, shake).await.map_err(|_| unreachable("no answer".into()))??;
    let found = pinned.found.lock().take();
    found.map(|der| der.to_vec()).ok_or_else(|| failed("it showed no certificate".into()))
}
