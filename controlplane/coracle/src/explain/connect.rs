//! The kubeconfig flags of kubectl, and the client that they describe.

use clap::Args;
use coracle_proto::time::parse_duration;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use serde_json::Value;
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
    /// Namespace; that of the context by default.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
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
        /// What is wrong with it.
        source: http::uri::InvalidUri,
    },
    /// The timeout.
    #[error("{0} is no duration: want one such as 5s or 1m")]
    Timeout(String),
    /// The client.
    #[error("cannot make a client")]
    Client(#[source] kube::Error),
    /// The server does not answer, or does not know the user.
    #[error("cannot ask {server}")]
    Server {
        /// Its address.
        server: String,
        /// What failed.
        source: Box<kube::Error>,
    },
}

impl ConnectError {
    /// Whether the flags or the kubeconfig have to be changed.
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Server { .. })
    }
}

/// A client, and what it implies.
pub struct Connected {
    /// The client.
    pub client: kube::Client,
    /// Namespace of the flags or of the context.
    pub namespace: String,
    /// Whether the server is Coracle's.
    pub is_coracle: bool,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Address of the server.
    pub server: String,
}

/// Makes a client and asks the server for its version.
pub async fn connect(arguments: &ConnectArgs) -> Result<Connected, ConnectError> {
    let mut config = arguments.base().await?;
    arguments.apply(&mut config)?;
    let timeout = arguments.timeout()?;
    // The libraries of this program contain more than one provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (namespace, server) = (config.default_namespace.clone(), config.cluster_url.to_string());
    let client = kube::Client::try_from(config).map_err(ConnectError::Client)?;
    let mut connected = Connected { client, namespace, is_coracle: false, timeout, server };
    match connected.get("/version").await {
        Ok(version) => {
            let version = version.get("gitVersion").and_then(Value::as_str).unwrap_or_default();
            connected.is_coracle = version.contains("+coracle");
        }
        // A server may hide its version.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {}
        Err(source) => {
            return Err(ConnectError::Server { server: connected.server, source: Box::new(source) });
        }
    }
    Ok(connected)
}

impl Connected {
    /// Reads a path as JSON, within the timeout.
    pub async fn get(&self, path: &str) -> Result<Value, kube::Error> {
        self.get_as(path, "application/json").await
    }

    /// Reads a path as JSON in one of the formats of an `Accept` header.
    pub async fn get_as(&self, path: &str, accept: &str) -> Result<Value, kube::Error> {
        let request = Request::get(path).header(http::header::ACCEPT, accept);
        let request = request.body(Vec::new()).map_err(kube::Error::HttpError)?;
        let text = match tokio::time::timeout(self.timeout, self.client.request_text(request)).await {
            Ok(answer) => answer?,
            Err(late) => return Err(kube::Error::Service(late.into())),
        };
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

impl ConnectArgs {
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
        if let Some(namespace) = &self.namespace {
            config.default_namespace.clone_from(namespace);
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

fn address(url: &str) -> Result<http::Uri, ConnectError> {
    let full = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    full.parse().map_err(|source| ConnectError::Address { url: url.to_owned(), source })
}

/// What a request failed for, in the words of the server if it answered.
pub(crate) fn failure(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => coracle_why::connect::reason(other)
            .map_or_else(|| coracle_cli::causes::chain(other), str::to_owned),
    }
}

/// A text as a part of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
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
    fn addresses_without_a_scheme() {
        assert_eq!(address("10.0.0.1:6443").unwrap().to_string(), "https://10.0.0.1:6443/");
        assert!(address("http://bad host").is_err());
    }

    #[test]
    fn queries() {
        assert_eq!(encode("a b&c=d/ü"), "a%20b%26c%3Dd%2F%C3%BC");
    }
}
