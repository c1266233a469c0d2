//! HTTP to an extender: no redirects, no proxy of the environment, bounded answers.

use super::error::ExtenderError;
use coracle_cli::causes::chain;
use coracle_cli::server_cert::{self, PresentedCert, ServerCertCheck, SkipVerify};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Answers may have this size in any case, and otherwise twice the size of what was asked: some return the Nodes that they got.
const LEAST: usize = 1 << 20;

/// Keys and certificates, each as PEM or as a file with it.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Whether the certificate of the extender is not verified.
    pub insecure: bool,
    /// The name in the certificate of the extender, if it is not that of the URL.
    pub server_name: Option<String>,
    /// Who signs the certificate of the extender; unset: the authorities of the system.
    pub authority: (Option<Vec<u8>>, Option<PathBuf>),
    /// The certificate of the scheduler.
    pub certificate: (Option<Vec<u8>>, Option<PathBuf>),
    /// Its key.
    pub key: (Option<Vec<u8>>, Option<PathBuf>),
}

/// Why keys or certificates of an extender cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ExtenderSetupError {
    /// A file cannot be read.
    #[error("tlsConfig: {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not PEM.
    #[error("tlsConfig")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// A name that no server can have.
    #[error("tlsConfig.serverName")]
    Name(#[from] rustls::pki_types::InvalidDnsNameError),
    /// Certificates that cannot be used.
    #[error("tlsConfig")]
    Tls(#[from] rustls::Error),
    /// Authorities that cannot be used.
    #[error("tlsConfig")]
    Authority(#[from] rustls::client::VerifierBuilderError),
    /// There is no certificate of an authority in the PEM.
    #[error("tlsConfig: no certificate of an authority")]
    NoAuthority,
    /// A certificate without a key, or a key without a certificate.
    #[error("tlsConfig: certificate and key belong together")]
    HalfPair,
    /// The URL or the client cannot be made.
    #[error("urlPrefix")]
    Client(#[from] reqwest::Error),
}

/// Accepts certificates with a name that is not that of the URL.
#[derive(Debug)]
struct OtherName {
    verifier: Arc<WebPkiServerVerifier>,
    name: ServerName<'static>,
}

impl ServerCertCheck for OtherName {
    fn check(&self, presented: &PresentedCert<'_>, _: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        let PresentedCert { certificate, chain, ocsp, now, .. } = presented;
        self.verifier.verify_server_cert(certificate, chain, &self.name, ocsp, *now).map(drop)
    }
}

/// A client of one extender.
#[derive(Debug)]
pub(super) struct Http {
    url: String,
    client: reqwest::Client,
    timeout: Duration,
}

impl Http {
    pub(super) fn new(url: &str, tls: &Tls, timeout: Duration) -> Result<Self, ExtenderSetupError> {
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config(tls)?)
            .redirect(Policy::none())
            .no_proxy()
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_max_idle_per_host(16)
            .build()?;
        // A URL that is none is found now and not with the first pod.
        client.post(url).build()?;
        Ok(Self { url: url.trim_end_matches('/').to_owned(), client, timeout })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// One exchange.
    pub(super) async fn post(&self, verb: &str, body: Vec<u8>) -> Result<Value, ExtenderError> {
        let url = format!("{}/{verb}", self.url);
        let limit = LEAST.max(body.len().saturating_mul(2));
        let timeout = ExtenderError::Timeout { url: url.clone(), limit: self.timeout };
        let exchange = self.exchange(url, body, limit);
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| timeout)?
    }

    async fn exchange(&self, url: String, body: Vec<u8>, limit: usize) -> Result<Value, ExtenderError> {
        let failed = |error: reqwest::Error| {
            let why = match error.source() {
                Some(source) => chain(source),
                None => error.to_string(),
            };
            ExtenderError::Connection { url: url.clone(), why }
        };
        let request = self.client.post(&url).header(CONTENT_TYPE, "application/json").body(body);
        let mut response = request.send().await.map_err(failed)?;
        let code = response.status().as_u16();
        if code != 200 {
            return Err(ExtenderError::Status { url, code });
        }
        let mut content = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if content.len() + chunk.len() > limit {
                return Err(ExtenderError::TooLarge { url, limit });
            }
            content.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&content).map_err(|source| ExtenderError::Malformed { url, source })
    }
}

fn pem((data, file): &(Option<Vec<u8>>, Option<PathBuf>)) -> Result<Option<Vec<u8>>, ExtenderSetupError> {
    match (data, file) {
        (Some(data), _) => Ok(Some(data.clone())),
        (None, Some(path)) => match std::fs::read(path) {
            Ok(content) => Ok(Some(content)),
            Err(source) => Err(ExtenderSetupError::Read { path: path.clone(), source }),
        },
        (None, None) => Ok(None),
    }
}

fn authorities(tls: &Tls) -> Result<RootCertStore, ExtenderSetupError> {
    let mut roots = RootCertStore::empty();
    match pem(&tls.authority)? {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                roots.add(certificate?)?;
            }
            if roots.is_empty() {
                return Err(ExtenderSetupError::NoAuthority);
            }
        }
        None => {
            let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn tls_config(tls: &Tls) -> Result<ClientConfig, ExtenderSetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = match (&tls.server_name, tls.insecure) {
        (_, true) => server_cert::client_config(Arc::new(SkipVerify))?,
        (Some(name), false) => {
            let roots = Arc::new(authorities(tls)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
            let name = ServerName::try_from(name.clone())?;
            server_cert::client_config(Arc::new(OtherName { verifier, name }))?
        }
        (None, false) => ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities(tls)?),
    };
    match (pem(&tls.certificate)?, pem(&tls.key)?) {
        (Some(certificate), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
            Ok(builder.with_client_auth_cert(chain?, PrivateKeyDer::from_pem_slice(&key)?)?)
        }
        (None, None) => Ok(builder.with_no_client_auth()),
        _ => Err(ExtenderSetupError::HalfPair),
    }
}
