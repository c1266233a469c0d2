//! A small HTTPS client for JSON: webhooks, identity providers, and the commands that call a server.

use base64::{Engine, engine::general_purpose::STANDARD};
use coracle_cli::causes::chain;
use coracle_cli::kubeconfig::{ContextError, check_context};
use coracle_cli::yaml::YamlError;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE};
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde_json::Value;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The largest answer that is read.
const LIMIT: usize = 8 * 1024 * 1024;

/// Why a remote did not answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpsClientError {
    /// A file cannot be read.
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The kubeconfig is none.
    #[error("{0} is not a usable kubeconfig: {1}")]
    Kubeconfig(PathBuf, KubeconfigError),
    /// A key or certificate cannot be used.
    #[error("keys for {0}: {1}")]
    Tls(String, Box<KeyError>),
    /// No connection, or it broke.
    #[error("{url}: {why}")]
    Connection {
        /// Where to.
        url: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("{0}: no answer in time")]
    Timeout(String),
}

/// Why a file is not a kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It is not YAML, or has fields of other types.
    #[error(transparent)]
    Yaml(YamlError),
    /// A certificate or key in it is not base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// Its context names what it does not have.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// It names no cluster.
    #[error("it names no cluster")]
    NoCluster,
    /// Its cluster has no address.
    #[error("its cluster has no server")]
    NoServer,
}

/// Why a key or certificate cannot be used for TLS.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It is not PEM.
    #[error(transparent)]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// TLS does not take it.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// The HTTP client does not take the configuration.
    #[error(transparent)]
    Client(#[from] reqwest::Error),
    /// There is no authority to trust.
    #[error("no certificate is in what is to be trusted")]
    NoAuthority,
}

/// Keys of a connection, all PEM.
#[derive(Debug, Default, Clone)]
pub struct ClientTls {
    /// Whom to trust; the system's authorities when none is given.
    pub authority: Option<String>,
    /// Our certificate and key.
    pub client: Option<(String, String)>,
}

/// A place that takes and gives JSON.
pub struct HttpsClient {
    base: String,
    token: Option<String>,
    timeout: Duration,
    client: reqwest::Client,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct UserEntry {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Names {
    cluster: String,
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    name: String,
    cluster: Cluster,
    user: UserEntry,
    context: Names,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    clusters: Vec<Entry>,
    users: Vec<Entry>,
    contexts: Vec<Entry>,
    current_context: String,
}

impl Kubeconfig {
    fn check_context(&self) -> Result<(), ContextError> {
        let name = &self.current_context;
        let context = match self.contexts.iter().find(|entry| entry.name == *name) {
            Some(entry) => &entry.context,
            None if name.is_empty() => return Ok(()),
            None => return Err(ContextError::NoContext(name.clone())),
        };
        let clusters = self.clusters.iter().map(|entry| entry.name.as_str());
        let users = self.users.iter().map(|entry| entry.name.as_str());
        check_context(name, (context.cluster.as_str(), clusters), (context.user.as_str(), users))
    }
}

impl HttpsClient {
    /// A place by its URL.
    pub fn new(url: &str, tls: &ClientTls) -> Result<Self, HttpsClientError> {
        let client = http_client(tls).map_err(|error| HttpsClientError::Tls(url.into(), Box::new(error)))?;
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { base, token: None, timeout: Duration::from_secs(10), client })
    }

    /// The server of a kubeconfig's current context, as its user.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, HttpsClientError> {
        let text = std::fs::read_to_string(path).map_err(|e| HttpsClientError::Read(path.into(), e))?;
        let bad = |error: KubeconfigError| HttpsClientError::Kubeconfig(path.into(), error);
        let file: Kubeconfig =
            coracle_cli::yaml::from_str(&text).map_err(|e| bad(KubeconfigError::Yaml(e)))?;
        file.check_context().map_err(|error| bad(error.into()))?;
        let context = file.contexts.iter().find(|c| c.name == file.current_context);
        // Webhook configurations often have one cluster, one user and no context.
        let cluster = match context {
            Some(context) => file.clusters.iter().find(|c| c.name == context.context.cluster),
            None => file.clusters.first(),
        };
        let user = match context {
            Some(context) => file.users.iter().find(|u| u.name == context.context.user),
            None => file.users.first(),
        };
        let cluster = &cluster.ok_or_else(|| bad(KubeconfigError::NoCluster))?.cluster;
        if cluster.server.is_empty() {
            return Err(bad(KubeconfigError::NoServer));
        }
        let here = path.parent().unwrap_or(Path::new("."));
        let pem =
            |data: &Option<String>, file: &Option<PathBuf>| -> Result<Option<String>, HttpsClientError> {
                if let Some(data) = data {
                    let bytes = STANDARD.decode(data.trim()).map_err(|e| bad(e.into()))?;
                    return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
                }
                let Some(file) = file else { return Ok(None) };
                let file = here.join(file);
                std::fs::read_to_string(&file).map(Some).map_err(|e| HttpsClientError::Read(file, e))
            };
        let nobody = UserEntry::default();
        let user = user.map_or(&nobody, |user| &user.user);
        let certificate = pem(&user.client_certificate_data, &user.client_certificate)?;
        let key = pem(&user.client_key_data, &user.client_key)?;
        let tls = ClientTls {
            authority: pem(&cluster.certificate_authority_data, &cluster.certificate_authority)?,
            client: certificate.zip(key),
        };
        let mut remote = Self::new(&cluster.server, &tls)?;
        remote.token.clone_from(&user.token);
        Ok(remote)
    }

    /// The same with another patience.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Another place, with the same keys and the same patience.
    #[must_use]
    pub fn at(&self, url: &str) -> Self {
        Self {
            base: url.trim_end_matches('/').to_owned(),
            token: self.token.clone(),
            timeout: self.timeout,
            client: self.client.clone(),
        }
    }

    /// Where requests go to.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// One exchange: the status code, and the body as JSON (null when it is none).
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), HttpsClientError> {
        let url = format!("{}{path}", self.base);
        let broken = |why: String| HttpsClientError::Connection { url: url.clone(), why };
        let failed = |error: reqwest::Error| broken(cause(&error));
        let mut request = self.client.request(method, &url).header(ACCEPT, "application/json");
        if let Some(body) = body {
            let bytes = serde_json::to_vec(body).unwrap_or_default();
            request = request.header(CONTENT_TYPE, "application/json").body(bytes);
        }
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let exchange = async {
            let mut response = request.send().await.map_err(failed)?;
            let code = response.status().as_u16();
            let mut body = Vec::new();
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if body.len() + chunk.len() > LIMIT {
                    return Err(broken("length limit exceeded".into()));
                }
                body.extend_from_slice(&chunk);
            }
            Ok((code, serde_json::from_slice(&body).unwrap_or(Value::Null)))
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .map_err(|_| HttpsClientError::Timeout(url.clone()))?
    }
}

/// How long an answer may pause while it is read piece by piece.
const PAUSE: Duration = Duration::from_secs(60);

/// An answer that is read piece by piece, however long it is.
pub struct LongAnswer {
    url: String,
    response: reqwest::Response,
}

impl LongAnswer {
    /// The status code.
    pub fn code(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next piece; `None` at the end of a whole answer.
    pub async fn piece(&mut self) -> Result<Option<bytes::Bytes>, HttpsClientError> {
        match tokio::time::timeout(PAUSE, self.response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece),
            Ok(Err(error)) => Err(HttpsClientError::Connection { url: self.url.clone(), why: cause(&error) }),
            Err(_) => Err(HttpsClientError::Timeout(self.url.clone())),
        }
    }
}

impl HttpsClient {
    /// Asks for something that is too long to be held in memory.
    pub async fn get_long(&self, path: &str) -> Result<LongAnswer, HttpsClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.client.get(&url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let sent = tokio::time::timeout(PAUSE, request.send()).await;
        let sent = sent.map_err(|_| HttpsClientError::Timeout(url.clone()))?;
        match sent {
            Ok(response) => Ok(LongAnswer { url, response }),
            Err(error) => Err(HttpsClientError::Connection { why: cause(&error), url }),
        }
    }
}

/// Whom to trust: the authorities of a PEM text and nobody else, or the system's when there is none.
pub fn root_store(authority: Option<&[u8]>) -> Result<RootCertStore, KeyError> {
    static SYSTEM: std::sync::OnceLock<RootCertStore> = std::sync::OnceLock::new();
    let mut roots = RootCertStore::empty();
    let Some(pem) = authority else {
        // Read once: there are hundreds, and admission webhooks ask for them with every request.
        let system = SYSTEM.get_or_init(|| {
            let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            roots
        });
        return Ok(system.clone());
    };
    for certificate in CertificateDer::pem_slice_iter(pem) {
        roots.add(certificate?)?;
    }
    if roots.is_empty() {
        return Err(KeyError::NoAuthority);
    }
    Ok(roots)
}

/// HTTP/1.1 to the configured place alone: no redirects, and no proxy of the environment.
fn http_client(tls: &ClientTls) -> Result<reqwest::Client, KeyError> {
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(client_config(tls)?)
        .redirect(Policy::none())
        .no_proxy()
        .pool_idle_timeout(Duration::from_secs(20))
        .pool_max_idle_per_host(4)
        .build()?;
    Ok(client)
}

/// Why an exchange failed, without reqwest's own text: that is the URL, which the message has already.
fn cause(error: &reqwest::Error) -> String {
    match error.source() {
        Some(source) => chain(source),
        None => error.to_string(),
    }
}

pub(crate) fn client_config(tls: &ClientTls) -> Result<ClientConfig, KeyError> {
    let roots = root_store(tls.authority.as_deref().map(str::as_bytes))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some((certificate, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
    Ok(builder.with_client_auth_cert(chain?, key)?)
}

#[cfg(test)]
mod tests;
