//! The API client: one handle for the whole agent, whose certificate and connections are replaced when it is renewed.

use super::IdentityError;
use arc_swap::ArcSwap;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The client behind the handle.
#[derive(Clone)]
pub struct Identity {
    kubeconfig: PathBuf,
    current: Arc<ArcSwap<kube::Client>>,
}

async fn connect(kubeconfig: &Path) -> Result<kube::Client, IdentityError> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

impl Identity {
    /// The identity of a kubeconfig.
    pub async fn read(kubeconfig: &Path) -> Result<Self, IdentityError> {
        let client = connect(kubeconfig).await?;
        Ok(Self { kubeconfig: kubeconfig.into(), current: Arc::new(ArcSwap::from_pointee(client)) })
    }

    /// A client whose requests use the current certificate.
    pub fn client(&self) -> kube::Client {
        let current = self.current.clone();
        let namespace = current.load().default_namespace().to_owned();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let client = current.load_full();
            async move { client.send(request).await }
        });
        kube::Client::new(service, namespace)
    }

    /// Reads the kubeconfig's files again; requests from now on use new connections with what they say.
    pub async fn renew(&self) -> Result<(), IdentityError> {
        let client = connect(&self.kubeconfig).await?;
        self.current.store(Arc::new(client));
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
