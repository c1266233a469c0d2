//! The API client: one handle for the whole agent, whose certificate and connections are replaced when it is renewed.

use super::IdentityError;
use super::kubeconfig::Selected;
use arc_swap::ArcSwap;
use coracle_proto::version::KUBERNETES;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::Body;
use kube::config::KubeConfigOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::machine::architecture;
use crate::servers::Servers;
use crate::trace::clock::ServerClock;

/// The client behind the handle.
#[derive(Clone)]
pub struct Identity {
    kubeconfig: PathBuf,
    current: Arc<ArcSwap<kube::Client>>,
    servers: Servers,
    clock: Arc<ServerClock>,
}

async fn config(kubeconfig: &Path) -> Result<kube::Config, IdentityError> {
    let selected = Selected::read(kubeconfig)?;
    let file = selected.file.clone();
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    // No certificate of any server would be accepted.
    if config.root_cert.as_ref().is_some_and(Vec::is_empty) {
        let why = "there is no certificate in it".to_owned();
        return Err(IdentityError::Pem { what: selected.authority_source(), why });
    }
    Ok(named(config))
}

/// A client that tells its name, as all clients of the agent do.
pub(super) fn with_user_agent(config: kube::Config) -> Result<kube::Client, kube::Error> {
    kube::Client::try_from(named(config))
}

fn named(mut config: kube::Config) -> kube::Config {
    config.headers.push((USER_AGENT, user_agent()));
    config
}

/// Program, version, platform and the version of Kubernetes, as kubelet tells them. Without it the server takes writes of
/// the agent for those of a manager `unknown`.
fn user_agent() -> HeaderValue {
    let (version, architecture) = (env!("CARGO_PKG_VERSION"), architecture());
    let text = format!("coracle-agent/{version} (linux/{architecture}) kubernetes/{KUBERNETES}");
    HeaderValue::try_from(text).expect("version and architecture are printable")
}

impl Identity {
    /// Checks a kubeconfig and the files that it names. No program that it names for credentials is run.
    pub async fn check(kubeconfig: &Path) -> Result<(), IdentityError> {
        let config = config(kubeconfig).await?;
        let servers = Servers::open(&config, None)?;
        if config.auth_info.exec.is_none() {
            servers.client(config)?;
        }
        Ok(())
    }

    /// The identity of a kubeconfig, for the server that it names.
    pub async fn read(kubeconfig: &Path) -> Result<Self, IdentityError> {
        Self::open(kubeconfig, None).await
    }

    /// The identity of a kubeconfig, for the server that it names and those listed in `servers`.
    pub async fn open(kubeconfig: &Path, servers: Option<&Path>) -> Result<Self, IdentityError> {
        let config = config(kubeconfig).await?;
        let servers = Servers::open(&config, servers)?;
        Ok(Self {
            kubeconfig: kubeconfig.into(),
            current: Arc::new(ArcSwap::from_pointee(servers.client(config)?)),
            servers,
            clock: Arc::default(),
        })
    }

    /// The API servers that clients of this identity connect to.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The server's clock, as the answers to requests of [`Identity::client`] tell it.
    pub fn clock(&self) -> &Arc<ServerClock> {
        &self.clock
    }

    /// A client whose requests use the current certificate.
    pub fn client(&self) -> kube::Client {
        let current = self.current.clone();
        let namespace = current.load().default_namespace().to_owned();
        let (clock, servers) = (self.clock.clone(), self.servers.clone());
        let moves = Arc::new(AtomicU64::new(servers.moves()));
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let (client, clock) = (current.load_full(), clock.clone());
            let (servers, moves) = (servers.clone(), moves.clone());
            async move {
                let asked = clock.ask(request.headers_mut());
                let response = client.send(request).await?;
                // Another server has another clock.
                let now = servers.moves();
                if moves.swap(now, Ordering::Relaxed) != now {
                    clock.reset();
                }
                if let Some(sent) = asked {
                    clock.answer(sent, response.headers());
                }
                Ok::<_, kube::Error>(response)
            }
        });
        kube::Client::new(service, namespace)
    }

    /// Reads the kubeconfig's files again; requests from now on use new connections with what they say.
    pub async fn renew(&self) -> Result<(), IdentityError> {
        let client = self.servers.client(config(&self.kubeconfig).await?)?;
        self.current.store(Arc::new(client));
        Ok(())
    }

    /// The file with the CA certificates of the cluster, if the kubeconfig names one.
    pub fn authority_file(&self) -> Option<PathBuf> {
        Selected::read(&self.kubeconfig).ok()?.authority_file()
    }

    /// The file with the client certificate and key, when both are in one file that can be replaced.
    pub fn renewable(&self) -> Option<PathBuf> {
        Selected::read(&self.kubeconfig).ok()?.renewable()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers one request; the value of its `user-agent`.
    async fn told(listener: &TcpListener) -> Option<String> {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        let request = String::from_utf8(request).unwrap();
        let mut headers = request.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(name, _)| name.eq_ignore_ascii_case("user-agent")).map(|(_, value)| value.to_owned())
    }

    #[tokio::test]
    async fn every_client_tells_its_name() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let kubeconfig = dir.path().join("kubeconfig");
        let text = format!(
            "{{clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{}}}}],
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}], current-context: x}}"
        );
        #[allow(clippy::disallowed_methods, reason = "a test's own file")]
        std::fs::write(&kubeconfig, text).unwrap();
        let identity = Identity::read(&kubeconfig).await.unwrap();
        let bare = with_user_agent(kube::Config::new(server.parse().unwrap())).unwrap();
        let platform = if cfg!(target_arch = "x86_64") { "(linux/amd64)" } else { "(linux/" };
        for (client, renew) in [(identity.client(), false), (identity.client(), true), (bare, false)] {
            if renew {
                identity.renew().await.unwrap();
            }
            let (told, _) = tokio::join!(told(&listener), client.apiserver_version());
            let told = told.unwrap();
            let begin = format!("coracle-agent/{} {platform}", env!("CARGO_PKG_VERSION"));
            assert!(told.starts_with(&begin), "{told}");
        }
    }
}
