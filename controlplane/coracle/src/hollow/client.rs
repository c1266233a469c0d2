//! Requests over a few HTTP/2 connections; a connection that broke is made again for the next request.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use coracle_cli::kubeconfig::{ContextError, check_context};
use coracle_cli::yaml::YamlError;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;

/// How many connections.
const LANES: usize = 4;
/// How long a request that is no watch may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The configuration cannot be used.
    #[error("{0}: {1}")]
    Kubeconfig(PathBuf, KubeconfigError),
    /// No connection, or it broke.
    #[error("the server is not reached: {0}")]
    Connection(Box<dyn std::error::Error + Send + Sync>),
    /// The server refused.
    #[error("{0}: {1}")]
    Refused(u16, String),
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// Its context names what it does not have.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// It lacks a field.
    #[error("{0} is missing")]
    Missing(String),
    /// A certificate or key in it is no base64.
    #[error(transparent)]
    Base64(#[from] base64::DecodeError),
    /// The server has no name that a certificate could have.
    #[error(transparent)]
    Server(#[from] rustls_pki_types::InvalidDnsNameError),
    /// A certificate or key in it is no PEM.
    #[error(transparent)]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// Certificates and key cannot be used.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

impl ClientError {
    /// Whether the server refused with this code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Self::Refused(own, _) if *own == code)
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// A client of one server.
pub struct Client {
    address: String,
    host: ServerName<'static>,
    tls: TlsConnector,
    lanes: Vec<Mutex<Option<Sender>>>,
    next: AtomicUsize,
}

pub(super) fn broken(error: impl std::error::Error + Send + Sync + 'static) -> ClientError {
    ClientError::Connection(Box::new(error))
}

/// What is read of a kubeconfig: the cluster and the user of the current context; without one, the first of each. As for kubectl,
/// which writes empty lists as null, a field that is null is not set.
#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Kubeconfig {
    #[serde(deserialize_with = "or_default")]
    current_context: String,
    #[serde(deserialize_with = "or_default")]
    contexts: Vec<Option<NamedContext>>,
    #[serde(deserialize_with = "or_default")]
    clusters: Vec<Option<NamedCluster>>,
    #[serde(deserialize_with = "or_default")]
    users: Vec<Option<NamedUser>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    context: Context,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    #[serde(deserialize_with = "or_default")]
    cluster: String,
    #[serde(deserialize_with = "or_default")]
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    #[serde(deserialize_with = "or_default")]
    server: String,
    #[serde(deserialize_with = "or_default")]
    certificate_authority_data: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    #[serde(deserialize_with = "or_default")]
    name: String,
    #[serde(deserialize_with = "or_default")]
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    #[serde(deserialize_with = "or_default")]
    client_certificate_data: String,
    #[serde(deserialize_with = "or_default")]
    client_key_data: String,
}

/// The value, or that of a field that is not there.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Kubeconfig {
    /// The names of the cluster and the user that the current context has, which are there; `None` without a context.
    fn named(&self) -> Result<Option<(&str, &str)>, ContextError> {
        let name = &self.current_context;
        if name.is_empty() {
            return Ok(None);
        }
        let found = self.contexts.iter().flatten().find(|context| context.name == *name);
        let Context { cluster, user } = &found.ok_or_else(|| ContextError::NoContext(name.clone()))?.context;
        let clusters = self.clusters.iter().flatten().map(|entry| entry.name.as_str());
        let users = self.users.iter().flatten().map(|entry| entry.name.as_str());
        check_context(name, (cluster.as_str(), clusters), (user.as_str(), users))?;
        Ok(Some((cluster.as_str(), user.as_str())))
    }
}

fn parse(text: &str) -> Result<(Cluster, User), KubeconfigError> {
    let file: Kubeconfig = coracle_cli::yaml::from_str(text)?;
    let (cluster, user) = match file.named()? {
        Some((cluster, user)) => (
            file.clusters.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.name == cluster)),
            file.users.iter().position(|entry| entry.as_ref().is_some_and(|entry| entry.name == user)),
        ),
        None => (Some(0), Some(0)),
    };
    let at = cluster.unwrap_or(0);
    let cluster = file.clusters.into_iter().nth(at).flatten().unwrap_or_default().cluster;
    let user = user.and_then(|at| file.users.into_iter().nth(at).flatten()).unwrap_or_default().user;
    let needed =
        [("server", &cluster.server), ("certificate-authority-data", &cluster.certificate_authority_data)];
    let missing = needed.into_iter().find(|(_, text)| text.is_empty()).map(|(field, _)| field);
    match missing {
        Some(field) => Err(KubeconfigError::Missing(format!("clusters[{at}].cluster.{field}"))),
        None => Ok((cluster, user)),
    }
}

/// The address and the name of the server, and how to connect to it.
fn read(path: &Path) -> Result<(String, ServerName<'static>, rustls::ClientConfig), KubeconfigError> {
    let text = std::fs::read_to_string(path)?;
    let (cluster, user) = parse(&text)?;
    let address = cluster.server.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let host = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&STANDARD.decode(&cluster.certificate_authority_data)?)?)?;
    let certificate = STANDARD.decode(&user.client_certificate_data)?;
    let key = STANDARD.decode(&user.client_key_data)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    // Without credentials the server decides what anonymous users may do.
    let mut config = if certificate.is_empty() && key.is_empty() {
        config.with_no_client_auth()
    } else {
        let certificate = vec![CertificateDer::from_pem_slice(&certificate)?];
        config.with_client_auth_cert(certificate, PrivateKeyDer::from_pem_slice(&key)?)?
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok((address, host, config))
}

impl Client {
    /// The server and user of a kubeconfig with certificates in it.
    pub fn from_kubeconfig(path: &Path) -> Result<Self, ClientError> {
        let (address, host, config) =
            read(path).map_err(|error| ClientError::Kubeconfig(path.into(), error))?;
        let tls = TlsConnector::from(Arc::new(config));
        let lanes = (0..LANES).map(|_| Mutex::new(None)).collect();
        Ok(Self { address, host, tls, lanes, next: AtomicUsize::new(0) })
    }

    async fn sender(&self) -> Result<Sender, ClientError> {
        let lane = &self.lanes[self.next.fetch_add(1, Ordering::Relaxed) % LANES];
        let mut lane = lane.lock().await;
        if let Some(sender) = lane.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        let stream = self.tls.connect(self.host.clone(), stream).await.map_err(broken)?;
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        *lane = Some(sender.clone());
        Ok(sender)
    }

    /// Sends a request; the head of the answer, whatever it is.
    pub async fn open(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let mut sender = self.sender().await?;
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.address))
            .header("content-type", content_type)
            .body(Full::new(body))
            .map_err(broken)?;
        sender.ready().await.map_err(broken)?;
        sender.send_request(request).await.map_err(broken)
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let exchange = async {
            let response = self.open(method, path, content_type, body.into()).await?;
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.map_err(broken)?.to_bytes();
            if code >= 300 {
                return Err(ClientError::Refused(code, String::from_utf8_lossy(&bytes).into_owned()));
            }
            serde_json::from_slice(&bytes).map_err(broken)
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(broken)?
    }

    /// A request with a JSON body.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        self.call(method, path, "application/json", body).await
    }

    /// A merge patch.
    pub async fn merge(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call("PATCH", path, "application/merge-patch+json", Some(body)).await
    }

    /// A strategic merge patch.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call("PATCH", path, "application/strategic-merge-patch+json", Some(body)).await
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_that_are_null_are_not_set() {
        let rest = "apiVersion: v1\nkind: Config\ncontexts: null\npreferences: null\ncurrent-context: null\n";
        let cluster =
            "clusters: [{name: c, cluster: {server: 'https://h:6443', certificate-authority-data: YQ==}}]\n";
        for users in
            ["users: null", "users:", "users: []", "users: [null]", "users: [{name: u, user: null}]", ""]
        {
            let (cluster, user) = parse(&format!("{rest}{cluster}{users}\n")).unwrap();
            assert_eq!(
                (cluster.server.as_str(), user.client_key_data.as_str()),
                ("https://h:6443", ""),
                "{users}"
            );
        }
        let user =
            "users: [{name: u, user: {client-certificate-data: Yg==, client-key-data: Yw==, token: null}}]\n";
        let (_, user) = parse(&format!("{rest}{cluster}{user}")).unwrap();
        assert_eq!((user.client_certificate_data.as_str(), user.client_key_data.as_str()), ("Yg==", "Yw=="));
        for (clusters, missing) in [
            ("clusters: null", "clusters[0].cluster.server"),
            ("clusters: [{cluster: null}]", "clusters[0].cluster.server"),
            ("clusters: [{cluster: {server: null}}]", "clusters[0].cluster.server"),
            ("clusters: [{cluster: {server: h}}]", "clusters[0].cluster.certificate-authority-data"),
        ] {
            let refused = parse(&format!("{rest}{clusters}\n")).err().unwrap().to_string();
            assert_eq!(refused, format!("{missing} is missing"), "{clusters}");
        }
        assert!(matches!(parse("users: 1\n"), Err(KubeconfigError::Yaml(_))));
    }

    #[test]
    fn the_current_context_counts() {
        let text = |context: &str| {
            format!(
                "current-context: {context}
contexts: [{{name: x, context: {{cluster: d, user: v}}}}, {{name: y, context: {{cluster: d, user: w}}}}, {{name: z, context: {{cluster: e}}}}]
clusters: [{{name: c, cluster: {{server: 'https://c', certificate-authority-data: YQ==}}}},
  {{name: d, cluster: {{server: 'https://d', certificate-authority-data: YQ==}}}}]
users: [{{name: u, user: {{client-key-data: Yg==}}}}, {{name: v, user: {{client-key-data: Yw==}}}}]
"
            )
        };
        let (cluster, user) = parse(&text("x")).unwrap();
        assert_eq!((cluster.server.as_str(), user.client_key_data.as_str()), ("https://d", "Yw=="));
        for (context, why) in [
            ("y", "user \"w\" was not found for context \"y\""),
            ("z", "cluster \"e\" was not found for context \"z\""),
            ("w", "context \"w\" does not exist"),
        ] {
            assert_eq!(parse(&text(context)).err().unwrap().to_string(), why);
        }
    }
}
