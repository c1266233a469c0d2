//! The certificate that a running server shows.

use coracle_cli::server_cert::{SkipVerify, client_config};
use coracle_pki::inspect::CertificateInfo;
use rustls_pki_types::ServerName;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why it is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServedError {
    #[error("{0}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{0} names no server")]
    NoServer(PathBuf),
    #[error("the server at {0} does not answer")]
    Connect(String, #[source] std::io::Error),
    #[error("TLS")]
    Tls(#[from] rustls::Error),
    #[error("the server at {0} shows no certificate that can be read")]
    Unreadable(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kubeconfig {
    clusters: Vec<Entry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    cluster: Cluster,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cluster {
    server: String,
}

/// Host and port of the server that the administrator's kubeconfig of a data directory names.
fn address(data_dir: &Path) -> Result<String, ServedError> {
    let path = data_dir.join("admin.kubeconfig");
    let text = std::fs::read_to_string(&path).map_err(|source| ServedError::Read(path.clone(), source))?;
    let read: Option<Kubeconfig> = coracle_cli::yaml::from_str(&text).ok();
    let server = read.and_then(|read| read.clusters.into_iter().next()).map(|entry| entry.cluster.server);
    let address = server.as_deref().and_then(|server| server.strip_prefix("https://"));
    address.map(|address| address.trim_end_matches('/').to_owned()).ok_or(ServedError::NoServer(path))
}

/// The certificate that the server of a data directory shows now, and its address. It is not verified.
pub(super) async fn read(data_dir: &Path) -> Result<(String, CertificateInfo), ServedError> {
    let address = address(data_dir)?;
    let away = |source| ServedError::Connect(address.clone(), source);
    let config = client_config(Arc::new(SkipVerify))?.with_no_client_auth();
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).trim_matches(['[', ']']);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| away(std::io::Error::other(error)))?;
    let connect = async {
        let stream = TcpStream::connect(&address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let connected = tokio::time::timeout(PATIENCE, connect).await;
    let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(away)?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let info = shown.and_then(|shown| CertificateInfo::from_der(shown));
    let info = info.ok_or_else(|| ServedError::Unreadable(address.clone()))?;
    Ok((address, info))
}
