//! A TLS client that judges the server's certificate in its own way: by a hash, by who signed it, or not at all. Whatever
//! the judge says, the server proves that it holds the certificate's key, as in every handshake.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};
use std::fmt::Debug;
use std::sync::Arc;

/// What a server showed of itself.
#[derive(Debug)]
pub struct Shown<'a> {
    /// Its certificate.
    pub certificate: &'a CertificateDer<'a>,
    /// What it sent along: authorities between it and a root, or the root itself.
    pub chain: &'a [CertificateDer<'a>],
    /// The name it was called by.
    pub name: &'a ServerName<'a>,
    /// Its word on revocation.
    pub ocsp: &'a [u8],
    /// The time of the handshake.
    pub now: UnixTime,
}

/// Decides whether a server is the one that was meant.
pub trait Judge: Debug + Send + Sync {
    /// An error ends the handshake before anything is said.
    fn judge(&self, shown: &Shown<'_>, provider: &Arc<CryptoProvider>) -> Result<(), Error>;
}

/// Takes everybody: for those who ask whether something answers, not who it is.
#[derive(Debug)]
pub struct Anybody;

impl Judge for Anybody {
    fn judge(&self, _: &Shown<'_>, _: &Arc<CryptoProvider>) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Debug)]
struct Judged<J> {
    judge: Arc<J>,
    provider: Arc<CryptoProvider>,
}

impl<J: Judge> ServerCertVerifier for Judged<J> {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Shown { certificate, chain, name, ocsp, now };
        self.judge.judge(&shown, &self.provider).map(|()| ServerCertVerified::assertion())
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

/// A client whose servers are judged by `judge`; the caller says who the client itself is.
pub fn client<J: Judge + 'static>(
    judge: Arc<J>,
) -> Result<ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(Judged { judge, provider })))
}
