//! TLS clients with a custom check of the server certificate: by hash, by issuer only, or none. In every case the handshake
//! verifies that the server holds the private key.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};
use std::fmt::Debug;
use std::sync::Arc;

/// The certificate that a server presented in the handshake.
#[derive(Debug)]
pub struct PresentedCert<'a> {
    /// The end-entity certificate.
    pub certificate: &'a CertificateDer<'a>,
    /// The other certificates that the server sent: intermediates, or the root.
    pub chain: &'a [CertificateDer<'a>],
    /// The server name that the client connected to.
    pub name: &'a ServerName<'a>,
    /// Stapled OCSP response.
    pub ocsp: &'a [u8],
    /// The time of the handshake.
    pub now: UnixTime,
}

/// Decides whether a server certificate is accepted.
pub trait ServerCertCheck: Debug + Send + Sync {
    /// An error aborts the handshake, before any request is sent.
    fn check(&self, presented: &PresentedCert<'_>, provider: &Arc<CryptoProvider>) -> Result<(), Error>;
}

/// Accepts every certificate, as `InsecureSkipVerify` does: for HTTPS probes and servers with verification disabled.
#[derive(Debug)]
pub struct SkipVerify;

impl ServerCertCheck for SkipVerify {
    fn check(&self, _: &PresentedCert<'_>, _: &Arc<CryptoProvider>) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Debug)]
struct CheckVerifier<C> {
    check: Arc<C>,
    provider: Arc<CryptoProvider>,
}

impl<C: ServerCertCheck> ServerCertVerifier for CheckVerifier<C> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = PresentedCert { certificate, chain, name, ocsp, now };
        self.check.check(&presented, &self.provider).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A client configuration that uses `check`; the caller adds the client certificate.
pub fn client_config<C: ServerCertCheck + 'static>(
    check: Arc<C>,
) -> Result<ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(CheckVerifier { check, provider })))
}
