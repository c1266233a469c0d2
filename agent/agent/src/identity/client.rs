//! The API client: one handle for the whole agent, whose certificate and connections are replaced when it is renewed.

use super::IdentityError;
use arc_swap::ArcSwap;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::trace::clock::ServerClock;

/// The client behind the handle.
#[derive(Clone)]
pub struct Identity {
    kubeconfig: PathBuf,
    current: Arc<ArcSwap<kube::Client>>,
    server: Arc<Mutex<http::Uri>>,
    clock: Arc<ServerClock>,
}

/// A client, and the server that it talks to.
async fn connect(kubeconfig: &Path) -> Result<(kube::Client, http::Uri), IdentityError> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let server = config.cluster_url.clone();
    Ok((kube::Client::try_from(config)?, server))
}

impl Identity {
    /// The identity of a kubeconfig.
    pub async fn read(kubeconfig: &Path) -> Result<Self, IdentityError> {
        let (client, server) = connect(kubeconfig).await?;
        Ok(Self {
            kubeconfig: kubeconfig.into(),
            current: Arc::new(ArcSwap::from_pointee(client)),
            server: Arc::new(Mutex::new(server)),
            clock: Arc::default(),
        })
    }

    /// The server's clock, as the answers to requests of [`Identity::client`] tell it.
    pub fn clock(&self) -> &Arc<ServerClock> {
        &self.clock
    }

    /// A client whose requests use the current certificate.
    pub fn client(&self) -> kube::Client {
        let current = self.current.clone();
        let namespace = current.load().default_namespace().to_owned();
        let clock = self.clock.clone();
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let (client, clock) = (current.load_full(), clock.clone());
            async move {
                let asked = clock.ask(request.headers_mut());
                let response = client.send(request).await?;
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
        let (client, server) = connect(&self.kubeconfig).await?;
        self.current.store(Arc::new(client));
        let before = std::mem::replace(&mut *self.server.lock(), server.clone());
        if before != server {
            self.clock.reset();
        }
        Ok(())
    }

    /// The file with the client certificate and key, when both are in one file that can be replaced.
    pub fn renewable(&self) -> Option<PathBuf> {
        let file = Kubeconfig::read_from(&self.kubeconfig).ok()?;
        let user = file.auth_infos.first()?.auth_info.clone()?;
        let (certificate, key) = (user.client_certificate?, user.client_key?);
        (certificate == key).then(|| PathBuf::from(certificate))
    }
}
