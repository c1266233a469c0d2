//! A server that is known only by the hash of its authority's public key: it sends the authority's certificate in its
//! handshake, and nothing is said to it before that certificate has the hash and vouches for the server.

use super::IdentityError;
use coracle_cli::judge::{self, Judge, Shown};
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

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(10);

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

impl Judge for Pinned {
    fn judge(&self, shown: &Shown<'_>, provider: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
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

/// Shakes hands with a server and gives its authority's certificate (DER), which has the hash and vouches for the server.
pub async fn authority(server: &http::Uri, hash: &str) -> Result<Vec<u8>, IdentityError> {
    let failed = |why: String| IdentityError::Server { server: server.to_string(), why };
    let host = server.host().ok_or_else(|| failed("the URL names no host".into()))?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let pinned = Arc::new(Pinned { hash: hash.to_lowercase(), found: Mutex::default() });
    let config = judge::client(pinned.clone()).map_err(|error| failed(error.to_string()))?;
    let config = config.with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let shake = async {
        let stream = TcpStream::connect((host, port)).await?;
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let shaken = tokio::time::timeout(PATIENCE, shake).await.map_err(|_| failed("no answer".into()))?;
    // rustls wraps our own words in "unexpected error".
    shaken.map_err(|error| failed(error.to_string().replace("unexpected error: ", "")))?;
    let found = pinned.found.lock().take();
    found.map(|der| der.to_vec()).ok_or_else(|| failed("it showed no certificate".into()))
}
