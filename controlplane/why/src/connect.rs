//! The kubeconfig flags of kubectl, and the client that they describe.

use clap::Args;
use coracle_proto::time::parse_duration;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach the API server, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectArgs {
    /// Kubeconfig; $KUBECONFIG, ~/.kube/config or the pod's own account by default.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig to use.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Address of the API server.
    #[arg(short, long, value_name = "URL")]
    server: Option<String>,
    /// Bearer token.
    #[arg(long)]
    token: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate; may be given several times.
    #[arg(long = "as-group", value_name = "GROUP")]
    impersonate_groups: Vec<String>,
    /// Certificates of the authorities that may have signed the server's certificate.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Accept any certificate of the server.
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// How long a request may take, such as 5s; 0 does not limit it.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    request_timeout: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
    /// The address of the server.
    #[error("{url} is not the address of a server")]
    Address {
        /// As it was given.
        url: String,
        /// Why.
        source: http::uri::InvalidUri,
    },
    /// The timeout.
    #[error("{0} is no duration: want one such as 5s or 1m")]
    Timeout(String),
    /// The client.
    #[error("cannot make a client")]
    Client(#[from] kube::Error),
}

/// A client, and what it implies.
pub struct Connection {
    /// The client.
    pub client: kube::Client,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Namespace of the context.
    pub namespace: String,
    /// Address of the server.
    pub server: String,
}

impl ConnectArgs {
    /// Makes the client. Nothing is sent yet.
    pub async fn connect(&self) -> Result<Connection, ConnectError> {
        let mut config = self.base().await?;
        self.apply(&mut config)?;
        // The libraries of this program contain more than one provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
        Ok(Connection {
            client: kube::Client::try_from(config)?,
            timeout: self.timeout()?,
            namespace,
            server,
        })
    }

    async fn base(&self) -> Result<kube::Config, ConnectError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let file = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        match file {
            Ok(file) => Ok(kube::Config::from_custom_kubeconfig(file, &options).await?),
            Err(error) if self.kubeconfig.is_some() || self.context.is_some() => Err(error.into()),
            Err(error) => match (&self.server, kube::Config::incluster()) {
                (_, Ok(config)) => Ok(config),
                (Some(url), Err(_)) => Ok(kube::Config::new(address(url)?)),
                (None, Err(_)) => Err(error.into()),
            },
        }
    }

    fn apply(&self, config: &mut kube::Config) -> Result<(), ConnectError> {
        if let Some(url) = &self.server {
            config.cluster_url = address(url)?;
        }
        if let Some(token) = &self.token {
            config.auth_info.token = Some(token.clone().into());
        }
        if let Some(path) = &self.certificate_authority {
            config.root_cert_file = Some(path.clone());
        }
        if let Some(user) = &self.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        if !self.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        Ok(())
    }

    fn timeout(&self) -> Result<Duration, ConnectError> {
        let text = self.request_timeout.as_str();
        // kubectl takes a number without a unit as seconds.
        let nanos = match text.parse::<i64>() {
            Ok(seconds) => seconds.checked_mul(1_000_000_000),
            Err(_) => parse_duration(text).ok(),
        };
        match nanos.and_then(|nanos| u64::try_from(nanos).ok()) {
            Some(0) => Ok(Duration::from_secs(3600)),
            Some(nanos) => Ok(Duration::from_nanos(nanos)),
            None => Err(ConnectError::Timeout(text.to_owned())),
        }
    }
}

/// Why a request got no answer, in the words that people look for; nothing when it is not the network.
pub fn reason(error: &kube::Error) -> Option<&'static str> {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(found) = cause {
        if found.is::<tokio::time::error::Elapsed>() {
            return Some("timed out");
        }
        match found.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return Some("connection refused"),
            Some(io::ErrorKind::TimedOut) => return Some("timed out"),
            Some(io::ErrorKind::ConnectionReset) => return Some("connection reset"),
            Some(io::ErrorKind::HostUnreachable) => return Some("no route to host"),
            Some(io::ErrorKind::NetworkUnreachable) => return Some("network is unreachable"),
            _ => cause = found.source(),
        }
    }
    None
}

fn address(url: &str) -> Result<http::Uri, ConnectError> {
    let full = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    full.parse().map_err(|source| ConnectError::Address { url: url.to_owned(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn timeouts_are_those_of_kubectl() {
        let timeout =
            |text: &str| ConnectArgs { request_timeout: text.to_owned(), ..ConnectArgs::default() }.timeout();
        assert_eq!(timeout("5s").unwrap(), Duration::from_secs(5));
        assert_eq!(timeout("7").unwrap(), Duration::from_secs(7));
        assert_eq!(timeout("0").unwrap(), Duration::from_secs(3600));
        assert!(timeout("soon").is_err() && timeout("-1s").is_err());
    }

    #[test]
    fn a_request_without_an_answer_says_why() {
        let of = |kind: io::ErrorKind| kube::Error::Service(io::Error::from(kind).into());
        assert_eq!(reason(&of(io::ErrorKind::ConnectionRefused)), Some("connection refused"));
        assert_eq!(reason(&of(io::ErrorKind::TimedOut)), Some("timed out"));
        assert_eq!(reason(&of(io::ErrorKind::InvalidData)), None);
    }

    #[test]
    fn addresses_without_a_scheme() {
        assert_eq!(address("10.0.0.1:6443").unwrap().to_string(), "https://10.0.0.1:6443/");
        assert!(address("http://bad host").is_err());
    }
}
