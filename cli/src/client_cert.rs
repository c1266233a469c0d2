//! Verification of client certificates, in two steps. In the handshake, [`ProofOfPossession`] only checks that the client
//! holds the private key, so that a client with an unknown issuer gets a 401 response instead of a closed connection. It
//! authenticates nobody: the issuer is verified after the handshake, with [`ca_verifier`].

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Verifies client certificates: chain to one of the authorities, validity period, and extended key usage.
pub fn ca_verifier(authorities: RootCertStore) -> Result<Arc<dyn ClientCertVerifier>, VerifierBuilderError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
    verifier.allow_unauthenticated().build()
}

/// Accepts any certificate whose private key the client holds. The authorities of the inner verifier are sent to clients as
/// a hint which certificate to present.
#[derive(Debug)]
pub struct ProofOfPossession(pub Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for ProofOfPossession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _between: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        ParsedCertificate::try_from(certificate).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
