//! The API client: kube's own stack of layers over connections to a server of the list.

use hyper_util::rt::TokioExecutor;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use super::dial::{Connector, Dialer};
use super::{Address, Servers, ServersError};

/// Whether other servers may stand in for the one of the kubeconfig. Not where the URL leads through a proxy, and not where the
/// cluster's own authority does not vouch for servers: then whoever can write EndpointSlices could receive the node's credentials.
pub(super) fn may_balance(config: &kube::Config) -> bool {
    let url = &config.cluster_url;
    url.scheme_str() == Some("https")
        && matches!(url.path(), "" | "/")
        && config.root_cert.is_some()
        && !config.accept_invalid_certs
        && config.proxy_url.is_none()
}

/// A client that connects through [`Servers`].
pub(super) fn build(servers: &Servers, config: kube::Config) -> Result<kube::Client, ServersError> {
    if config.proxy_url.is_some() {
        return Ok(kube::Client::try_from(config)?);
    }
    let dialer = Arc::new(dialer(&config)?);
    servers.0.dialer.store(may_balance(&config).then(|| dialer.clone()));
    let connector = Connector { servers: servers.clone(), dialer };
    let http: hyper_util::client::legacy::Client<_, Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new().no_br().no_deflate().no_zstd().gzip(!config.disable_compression))
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    let namespace = config.default_namespace.clone();
    Ok(ClientBuilder::new(service, namespace).build())
}

fn dialer(config: &kube::Config) -> Result<Dialer, ServersError> {
    let tls = match config.cluster_url.scheme_str() {
        Some("http") => None,
        _ => Some(Arc::new(config.rustls_client_config()?)),
    };
    let name = match &config.tls_server_name {
        Some(name) => {
            let bad = |_| ServersError::Url { url: name.clone() };
            Some(ServerName::try_from(name.clone()).map_err(bad)?)
        }
        None => None,
    };
    Ok(Dialer { tls, name, patience: config.connect_timeout })
}

impl Servers {
    /// Whether the list may grow.
    pub(super) fn may_learn(&self) -> bool {
        self.0.dialer.load().is_some()
    }

    /// All servers, and how to reach them; `None` while there is nothing to watch over.
    pub(super) fn monitored(&self) -> Option<Vec<Address>> {
        let table = self.0.table.lock();
        (table.is_several() && self.may_learn()).then(|| table.addresses())
    }
}
