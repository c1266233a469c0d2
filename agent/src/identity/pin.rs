//! A server that is known only by the hash of its authority's public key: it sends the authority's certificate in its
//! handshake, and nothing is said to it before that certificate has the hash and vouches for the server.

use super::IdentityError;
use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
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
    provider: Arc<CryptoProvider>,
    found: Mutex<Option<CertificateDer<'static>>>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let wrong = |why: String| rustls::Error::General(why);
        let shown = intermediates.iter().find(|der| key_hash(der).is_some_and(|hash| hash == self.hash));
        let Some(authority) = shown else {
            let shown: Vec<String> = intermediates.iter().filter_map(|der| key_hash(der)).collect();
            return Err(wrong(format!(
                "the server's authority is not the one with hash sha256:{} (it shows sha256:{})",
                self.hash,
                shown.join(", sha256:")
            )));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let verified = verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp, now)?;
        *self.found.lock() = Some(authority.clone().into_owned());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Shakes hands with a server and gives its authority's certificate (DER), which has the hash and vouches for the server.
pub async fn authority(server: &http::Uri, hash: &str) -> Result<Vec<u8>, IdentityError> {
    let failed = |why: String| IdentityError::Server { server: server.to_string(), why };
    let host = server.host().ok_or_else(|| failed("the URL names no host".into()))?.trim_matches(['[', ']']);
    let port = server.port_u16().unwrap_or(443);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pinned =
        Arc::new(Pinned { hash: hash.to_lowercase(), provider: provider.clone(), found: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(pinned.clone())
        .with_no_client_auth();
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
