//! Opens connections: to the server in use, or else to the next one that answers.

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::ServiceExt as _;

use super::stream::{Stream, Transport};
use super::{Address, Servers, ServersError};

/// How long a server has for TCP and TLS handshakes while there are others.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// How long the first one that was too slow has when all the others failed.
const LONG_PATIENCE: Duration = Duration::from_secs(10);
/// How soon a silent connection of a monitor is probed, how often, and how many probes may be lost.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(3), Duration::from_secs(1), 3);

/// The name that every API server of a cluster has in its certificate, and no node.
const CLUSTER_NAME: &str = "kubernetes.default.svc";

/// How connections are secured.
pub(super) struct Dialer {
    /// `None` for `http://`.
    pub tls: Option<Arc<ClientConfig>>,
    /// The name that certificates must have. By default it is the server's host, or [`CLUSTER_NAME`] if the server was learned:
    /// whoever can write EndpointSlices must not be able to make a node, which has a certificate for its address, an API server.
    pub name: Option<ServerName<'static>>,
    /// Time for TCP and TLS handshakes of the only server.
    pub patience: Option<Duration>,
}

/// Where a server is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The kubeconfig, or what was given when the node joined.
    Configured,
    /// The EndpointSlices of the cluster.
    Learned,
}

/// Whether the kernel is to find out that the other side is gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keepalive {
    Off,
    On,
}

impl Dialer {
    /// Connects to one server and verifies its certificate.
    pub(super) async fn dial(
        &self,
        (server, source): (&Address, Source),
        patience: Option<Duration>,
        keepalive: Keepalive,
    ) -> Result<Transport, ServersError> {
        let dial = self.handshake(server, source, keepalive);
        let Some(patience) = patience else { return dial.await };
        let late = |_| ServersError::TimedOut { server: server.clone(), patience };
        tokio::time::timeout(patience, dial).await.map_err(late)?
    }

    async fn handshake(
        &self,
        server: &Address,
        known_from: Source,
        keepalive: Keepalive,
    ) -> Result<Transport, ServersError> {
        let unreachable = |source: Box<dyn std::error::Error + Send + Sync>| ServersError::Unreachable {
            server: server.clone(),
            source,
        };
        let mut connector = HttpConnector::new();
        if keepalive == Keepalive::On {
            let (idle, interval, count) = KEEPALIVE;
            connector.set_keepalive(Some(idle));
            connector.set_keepalive_interval(Some(interval));
            connector.set_keepalive_retries(Some(count));
            connector.set_tcp_user_timeout(Some(idle + interval * count));
        }
        let uri =
            http::Uri::try_from(format!("http://{server}/")).map_err(|error| unreachable(error.into()))?;
        let tcp = connector.oneshot(uri).await.map_err(|error| unreachable(error.into()))?.into_inner();
        let Some(tls) = &self.tls else { return Ok(Transport::Plain(tcp)) };
        let host = match known_from {
            Source::Configured => server.host(),
            Source::Learned => CLUSTER_NAME,
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|error| unreachable(error.into()))?,
        };
        let shaken = tokio_rustls::TlsConnector::from(tls.clone()).connect(name, tcp).await;
        let stream = shaken.map_err(|source| match is_certificate_error(&source) {
            true => ServersError::Untrusted { server: server.clone(), source },
            false => unreachable(source.into()),
        })?;
        Ok(Transport::Tls(Box::new(stream)))
    }
}

fn is_certificate_error(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}

/// Opens the connections of a client.
#[derive(Clone)]
pub(super) struct Connector {
    pub servers: Servers,
    pub dialer: Arc<Dialer>,
}

impl Connector {
    async fn connect(self) -> Result<TokioIo<Stream>, ServersError> {
        let (order, _) = self.servers.candidates();
        if let [only] = &*order {
            return self.attempt(only, self.dialer.patience).await;
        }
        let (mut first, mut slow) = (None, None);
        for server in &order {
            // Looked up every time: a failure of the server in use delays what comes next.
            if let (_, Some(time)) = self.servers.candidates() {
                tokio::time::sleep_until(time.into()).await;
            }
            match self.attempt(server, Some(PATIENCE)).await {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    tracing::debug!(error = %coracle_cli::causes::chain(&error), "API server skipped");
                    if matches!(error, ServersError::TimedOut { .. }) {
                        slow = slow.or(Some(server));
                    }
                    first = first.or(Some(error));
                }
            }
        }
        match slow {
            Some(server) => self.attempt(server, Some(LONG_PATIENCE)).await,
            None => Err(first.unwrap_or(ServersError::Empty)),
        }
    }

    async fn attempt(
        &self,
        server: &Address,
        patience: Option<Duration>,
    ) -> Result<TokioIo<Stream>, ServersError> {
        let known = (server, self.servers.source(server));
        match self.dialer.dial(known, patience, Keepalive::Off).await {
            Ok(transport) => Ok(TokioIo::new(Stream::new(transport, self.servers.connected(server)))),
            Err(error) => {
                self.servers.failed(server);
                Err(error)
            }
        }
    }
}

impl tower::Service<http::Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ServersError;
    type Future = BoxFuture<'static, Result<Self::Response, ServersError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ServersError>> {
        Poll::Ready(Ok(()))
    }

    /// The URL only names the cluster.
    fn call(&mut self, _: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}
