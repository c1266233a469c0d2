//! The node API's certificate, and the authority whose clients it knows.

use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why the node API cannot have TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is in a file.
    #[error("{path}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// Why.
        source: rustls_pki_types::pem::Error,
    },
    /// A certificate cannot be made.
    #[error("serving certificate")]
    Make(#[from] rcgen::Error),
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
    /// The node's own certificate in `dir`, made and signed by itself when it is not there.
    pub fn ensure(dir: &Path, names: &[String]) -> Result<Self, TlsError> {
        let pair = Self { certificate: dir.join("node-api.crt"), key: dir.join("node-api.key") };
        if pair.certificate.exists() && pair.key.exists() {
            return Ok(pair);
        }
        let made = rcgen::generate_simple_self_signed(names.to_vec())?;
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::File { path, source }
        };
        std::fs::create_dir_all(dir).map_err(file(dir))?;
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut key = options.open(&pair.key).map_err(file(&pair.key))?;
        io::Write::write_all(&mut key, made.signing_key.serialize_pem().as_bytes())
            .map_err(file(&pair.key))?;
        std::fs::write(&pair.certificate, made.cert.pem()).map_err(file(&pair.certificate))?;
        Ok(pair)
    }

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
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let config = match authority {
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(
                    CertificateDer::pem_slice_iter(authority).filter_map(Result::ok),
                );
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .allow_unauthenticated()
                    .build()?;
                config.with_client_cert_verifier(verifier)
            }
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_certificate_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["node1".to_owned(), "192.0.2.1".to_owned()];
        let pair = Pair::ensure(dir.path(), &names).unwrap();
        let first = std::fs::read(&pair.certificate).unwrap();
        let again = Pair::ensure(dir.path(), &names).unwrap();
        assert_eq!(std::fs::read(again.certificate).unwrap(), first);
        pair.acceptor(None).map(drop).unwrap();
        pair.acceptor(Some(&first)).map(drop).unwrap();
    }
}
