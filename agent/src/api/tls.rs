//! The node API's certificate, and the authority whose clients it knows.

use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why the node API cannot have TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// What is in a file.
    #[error("{path}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// Certificate and key do not fit.
    #[error("serving certificate")]
    Config(#[from] rustls::Error),
    /// The clients' authority.
    #[error("client certificate authority")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// Certificate and key on disk.
#[derive(Debug, Clone)]
pub struct Pair {
    /// PEM.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
}

impl Pair {
    /// TLS with this certificate. Clients may show one of `authority` (PEM); without an authority none is asked for.
    pub fn acceptor(&self, authority: Option<&[u8]>) -> Result<TlsAcceptor, TlsError> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .map_err(pem(&self.certificate))?
            .collect::<Result<Vec<_>, _>>()
            .map_err(pem(&self.certificate))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(pem(&self.key))?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        acceptor(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))), authority)
    }
}

/// TLS with whatever certificate the resolver has at the moment of a handshake. Clients may show one of `authority` (PEM);
/// without an authority none is asked for.
pub fn acceptor(
    certificate: Arc<dyn ResolvesServerCert>,
    authority: Option<&[u8]>,
) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let config = match authority {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authority).filter_map(Result::ok));
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()?;
            config.with_client_cert_verifier(verifier)
        }
        None => config.with_no_client_auth(),
    };
    let mut config = config.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pair_of_files_makes_tls() {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["node1".to_owned()]).unwrap();
        let pair = Pair { certificate: dir.path().join("crt"), key: dir.path().join("key") };
        std::fs::write(&pair.certificate, made.cert.pem()).unwrap();
        assert!(pair.acceptor(None).is_err(), "without a key");
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).unwrap();
        pair.acceptor(None).map(drop).unwrap();
        pair.acceptor(Some(made.cert.pem().as_bytes())).map(drop).unwrap();
    }
}
