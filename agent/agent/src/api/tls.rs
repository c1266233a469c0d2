//! TLS of the node API: serving certificate and client CA.

use super::auth::Peer;
use arc_swap::ArcSwap;
use coracle_cli::causes;
use coracle_cli::client_cert::{self, ProofOfPossession};
use rustls::server::ResolvesServerCert;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why the node API cannot have TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// What is in a file.
    #[error("{path}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rustls_pki_types::pem::Error,
    },
    /// There is no certificate in a file.
    #[error("{path}: there is no certificate in it")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Certificate and key do not fit.
    #[error("{key} is not the private key of {certificate}")]
    Mismatch {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
    },
    /// Certificate or key cannot be used.
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
    /// Checks that there are a certificate and its key.
    pub fn check(&self) -> Result<(), TlsError> {
        self.read().map(drop)
    }

    /// TLS with this certificate. Clients may show one of `authority` (PEM); without an authority none is asked for.
    pub fn serve(&self, authority: Option<&[u8]>) -> Result<Tls, TlsError> {
        Tls::new(Arc::new(SingleCertAndKey::from(self.read()?)), authority)
    }

    fn read(&self) -> Result<CertifiedKey, TlsError> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let chain = CertificateDer::pem_file_iter(&self.certificate)
            .map_err(pem(&self.certificate))?
            .collect::<Result<Vec<_>, _>>()
            .map_err(pem(&self.certificate))?;
        if chain.is_empty() {
            return Err(TlsError::Empty { path: self.certificate.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(pem(&self.key))?;
        let pair = CertifiedKey::new(chain, rustls::crypto::ring::sign::any_supported_type(&key)?);
        match pair.keys_match() {
            // Not every kind of key tells.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(pair),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err(TlsError::Mismatch { key: self.key.clone(), certificate: self.certificate.clone() })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Verifies clients with these authorities (PEM), of which there must be at least one.
pub fn client_verifier(authority: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(authority).filter_map(Result::ok));
    Ok(client_cert::ca_verifier(roots)?)
}

/// TLS configuration of the node API. Clones are the same one.
#[derive(Clone)]
pub struct Tls {
    certificate: Arc<dyn ResolvesServerCert>,
    trust: Arc<ArcSwap<Trust>>,
}

/// How clients are verified.
struct Trust {
    /// Accepts connections with or without a client certificate.
    acceptor: TlsAcceptor,
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Trust {
    fn new(certificate: Arc<dyn ResolvesServerCert>, authority: Option<&[u8]>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let clients = authority.map(client_verifier).transpose()?;
        let config = match &clients {
            Some(clients) => config.with_client_cert_verifier(Arc::new(ProofOfPossession(clients.clone()))),
            None => config.with_no_client_auth(),
        };
        let mut config = config.with_cert_resolver(certificate);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), clients })
    }
}

impl Tls {
    /// TLS with whatever certificate the resolver has at the moment of a handshake. Clients may show one of `authority`
    /// (PEM); without an authority none is asked for.
    pub fn new(certificate: Arc<dyn ResolvesServerCert>, authority: Option<&[u8]>) -> Result<Self, TlsError> {
        let trust = Trust::new(certificate.clone(), authority)?;
        Ok(Self { certificate, trust: Arc::new(ArcSwap::from_pointee(trust)) })
    }

    /// Verifies clients with other authorities (PEM) from the next connection on.
    pub fn replace_authority(&self, authority: &[u8]) -> Result<(), TlsError> {
        self.trust.store(Arc::new(Trust::new(self.certificate.clone(), Some(authority))?));
        Ok(())
    }

    /// Accepts connections with or without a client certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.trust.load().acceptor.clone()
    }

    /// The client according to its certificate; anonymous without a valid one.
    pub fn peer(&self, connection: &ServerConnection) -> Peer {
        self.known(connection.peer_certificates().unwrap_or_default()).unwrap_or_default()
    }

    fn known(&self, chain: &[CertificateDer<'_>]) -> Option<Peer> {
        let (certificate, between) = chain.split_first()?;
        match self.trust.load().clients.as_ref()?.verify_client_cert(certificate, between, UnixTime::now()) {
            Ok(_) => Peer::from_der(certificate),
            Err(error) => {
                tracing::debug!(error = %causes::chain(&error), "client certificate refused");
                None
            }
        }
    }
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
        assert!(pair.serve(None).is_err(), "without a key");
        std::fs::write(&pair.key, made.signing_key.serialize_pem()).unwrap();
        pair.serve(None).map(drop).unwrap();
        let other = Pair { certificate: pair.certificate.clone(), key: dir.path().join("other") };
        std::fs::write(&other.key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
        assert!(matches!(other.check(), Err(TlsError::Mismatch { .. })));
        let empty = Pair { certificate: pair.key.clone(), key: pair.key.clone() };
        assert!(matches!(empty.check(), Err(TlsError::Empty { .. })));
        assert!(client_verifier(b"").is_err());
        let tls = pair.serve(Some(made.cert.pem().as_bytes())).map_err(|error| error.to_string()).unwrap();
        assert_eq!(tls.known(&[]), None);
        let stranger = rcgen::generate_simple_self_signed(["root".to_owned()]).unwrap();
        assert_eq!(tls.known(&[stranger.cert.der().clone()]), None, "nobody vouches for it");
        let mut clients = rcgen::CertificateParams::new(Vec::new()).unwrap();
        clients.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let authority = clients.self_signed(&key).unwrap().pem();
        let mut client = rcgen::CertificateParams::new(Vec::new()).unwrap();
        client.distinguished_name.push(rcgen::DnType::CommonName, "server");
        client.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = rcgen::Issuer::new(clients, key);
        let client = client.signed_by(&rcgen::KeyPair::generate().unwrap(), &issuer).unwrap();
        assert_eq!(tls.known(&[client.der().clone()]), None);
        tls.clone().replace_authority(authority.as_bytes()).map_err(|error| error.to_string()).unwrap();
        assert_eq!(tls.known(&[client.der().clone()]).unwrap().user.as_deref(), Some("server"));
    }
}
