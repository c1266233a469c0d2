//! The kubeconfig flags of kubectl, and the client that they describe.

use clap::Args;
use coracle_cli::causes;
use coracle_cli::kubeconfig::{ContextError, check_context};
use coracle_proto::time::parse_duration;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to reach the API server, and as whom.
#[derive(Debug, Clone, Default, Args)]
pub struct KubeconfigArgs {
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
    /// Uid to impersonate.
    #[arg(long = "as-uid", value_name = "UID", requires = "impersonate")]
    impersonate_uid: Option<String>,
    /// Certificate of the user.
    #[arg(long, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// Key of the user's certificate.
    #[arg(long, value_name = "FILE")]
    client_key: Option<PathBuf>,
    /// Certificates of the authorities that may have signed the server's certificate.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Name that the server's certificate must have, if not that of its address.
    #[arg(long, value_name = "NAME")]
    tls_server_name: Option<String>,
    /// Accept any certificate of the server.
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// How long a request may take, such as 5s; 0 does not limit it.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    request_timeout: String,
}

/// Where a kubeconfig can be from.
const HINT: &str = "on the machine of a server, `sudo coracle kubeconfig --merge` writes ~/.kube/config; --kubeconfig FILE or \
                    $KUBECONFIG name another one";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig.
    #[error("cannot use the kubeconfig")]
    Kubeconfig(#[from] KubeconfigError),
    /// No kubeconfig was named, and there is none where it is looked for.
    #[error("no kubeconfig can be read: {0}\n{hint}", hint = HINT)]
    NoKubeconfig(String),
    /// The context names what the kubeconfig does not have.
    #[error("cannot use the kubeconfig")]
    Context(#[from] ContextError),
    /// The address of the server.
    #[error("{url} is not the address of a server")]
    Address {
        /// As it was given.
        url: String,
        /// Why.
        source: http::uri::InvalidUri,
    },
    /// The name of a file.
    #[error("{} is not text", .0.display())]
    Path(PathBuf),
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

impl KubeconfigArgs {
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
            Ok(file) => {
                self.check(&file, &options)?;
                Ok(kube::Config::from_custom_kubeconfig(file, &options).await?)
            }
            Err(error) if self.kubeconfig.is_some() || self.context.is_some() => Err(error.into()),
            Err(error) => match (&self.server, kube::Config::incluster()) {
                (_, Ok(config)) => Ok(config),
                (Some(url), Err(_)) => Ok(kube::Config::new(address(url)?)),
                (None, Err(_)) => Err(unusable(error)),
            },
        }
    }

    /// Refuses a context that names a cluster or user which is not there. Credentials of flags need no user.
    fn check(&self, file: &Kubeconfig, options: &KubeConfigOptions) -> Result<(), ContextError> {
        let Some(name) = options.context.as_ref().or(file.current_context.as_ref()) else { return Ok(()) };
        let context = file.contexts.iter().find(|context| context.name == *name);
        let context = context.and_then(|context| context.context.as_ref());
        let context = context.ok_or_else(|| ContextError::NoContext(name.clone()))?;
        let cluster = options.cluster.as_ref().unwrap_or(&context.cluster);
        let has_credentials = self.token.is_some() || self.client_certificate.is_some();
        let user = options.user.as_ref().or(context.user.as_ref().filter(|_| !has_credentials));
        let clusters = file.clusters.iter().map(|cluster| cluster.name.as_str());
        let users = file.auth_infos.iter().map(|user| user.name.as_str());
        check_context(name, (cluster.as_str(), clusters), (user.map_or("", String::as_str), users))
    }

    fn apply(&self, config: &mut kube::Config) -> Result<(), ConnectError> {
        if let Some(url) = &self.server {
            config.cluster_url = address(url)?;
        }
        if let Some(token) = &self.token {
            config.auth_info.token = Some(token.clone().into());
        }
        // Contents of the kubeconfig would win over files.
        if let Some(path) = &self.client_certificate {
            config.auth_info.client_certificate = Some(text(path)?);
            config.auth_info.client_certificate_data = None;
        }
        if let Some(path) = &self.client_key {
            config.auth_info.client_key = Some(text(path)?);
            config.auth_info.client_key_data = None;
        }
        if let Some(name) = &self.tls_server_name {
            config.tls_server_name = Some(name.clone());
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
        if let Some(uid) = &self.impersonate_uid {
            config.auth_info.impersonate_uid = Some(uid.clone());
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

/// Why the kubeconfig that nobody has named cannot be used.
fn unusable(error: KubeconfigError) -> ConnectError {
    match &error {
        KubeconfigError::FindPath | KubeconfigError::ReadConfig(..) => {
            ConnectError::NoKubeconfig(causes::chain(&error))
        }
        _ => error.into(),
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

/// The path of a file as kubeconfigs have it.
fn text(path: &Path) -> Result<String, ConnectError> {
    path.to_str().map(str::to_owned).ok_or_else(|| ConnectError::Path(path.to_owned()))
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
        let timeout = |text: &str| {
            KubeconfigArgs { request_timeout: text.to_owned(), ..KubeconfigArgs::default() }.timeout()
        };
        assert_eq!(timeout("5s").unwrap(), Duration::from_secs(5));
        assert_eq!(timeout("7").unwrap(), Duration::from_secs(7));
        assert_eq!(timeout("0").unwrap(), Duration::from_secs(3600));
        assert!(timeout("soon").is_err() && timeout("-1s").is_err());
    }

    #[test]
    fn a_context_without_its_user_or_cluster_is_refused() {
        let file = |context: &str| {
            let text = format!(
                "{{clusters: [{{name: c, cluster: {{server: 'https://h'}}}}], users: [{{name: u, user: {{}}}}],
                 contexts: [{{name: x, context: {{{context}}}}}], current-context: x}}"
            );
            Kubeconfig::from_yaml(&text).unwrap()
        };
        let refused = |arguments: &KubeconfigArgs, context: &str| {
            let options = KubeConfigOptions { user: arguments.user.clone(), ..KubeConfigOptions::default() };
            arguments.check(&file(context), &options).err().map(|error| error.to_string())
        };
        let none = KubeconfigArgs::default();
        assert_eq!(refused(&none, "cluster: c, user: u"), None);
        let no_user = Some("user \"v\" was not found for context \"x\"".to_owned());
        assert_eq!(refused(&none, "cluster: c, user: v"), no_user);
        let no_cluster = Some("cluster \"d\" was not found for context \"x\"".to_owned());
        assert_eq!(refused(&none, "cluster: d, user: u"), no_cluster);
        let other = KubeconfigArgs { user: Some("u".to_owned()), ..KubeconfigArgs::default() };
        assert_eq!(refused(&other, "cluster: c, user: v"), None);
        let token = KubeconfigArgs { token: Some("t".to_owned()), ..KubeconfigArgs::default() };
        assert_eq!(refused(&token, "cluster: c, user: v"), None);
    }

    #[test]
    fn without_a_kubeconfig_it_is_said_what_makes_one() {
        let missing = io::Error::from(io::ErrorKind::NotFound);
        let text = unusable(KubeconfigError::ReadConfig(missing, "/nowhere".into())).to_string();
        let (said, hint) = text.split_once('\n').unwrap();
        assert!(said.starts_with("no kubeconfig can be read: ") && said.contains("/nowhere"), "{said}");
        assert!(hint.contains("coracle kubeconfig --merge") && hint.contains("$KUBECONFIG"), "{hint}");
        let unset = unusable(KubeconfigError::CurrentContextNotSet);
        assert!(matches!(unset, ConnectError::Kubeconfig(_)), "{unset}");
    }

    #[test]
    fn flags_win_over_the_kubeconfig() {
        let url = http::Uri::from_static("https://10.0.0.1:6443");
        let mut config = kube::Config::new(url);
        config.auth_info.client_certificate_data = Some("old".to_owned());
        config.auth_info.client_key_data = Some("old".to_owned().into());
        let arguments = KubeconfigArgs {
            client_certificate: Some("bob.crt".into()),
            client_key: Some("bob.key".into()),
            tls_server_name: Some("api.example.com".to_owned()),
            impersonate: Some("bob".to_owned()),
            impersonate_uid: Some("42".to_owned()),
            ..KubeconfigArgs::default()
        };
        arguments.apply(&mut config).unwrap();
        let user = &config.auth_info;
        assert_eq!(user.client_certificate.as_deref(), Some("bob.crt"));
        assert_eq!(user.client_key.as_deref(), Some("bob.key"));
        assert!(user.client_certificate_data.is_none() && user.client_key_data.is_none());
        assert_eq!(config.tls_server_name.as_deref(), Some("api.example.com"));
        assert_eq!((user.impersonate.as_deref(), user.impersonate_uid.as_deref()), (Some("bob"), Some("42")));
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
