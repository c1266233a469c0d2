//! `coracle forward`: the forwarder of a published port, in the network of a node. Connections that are accepted from sockets of
//! the machine's loopback are joined with connections to a Service or to a port of the node.

use super::published::Target;
use crate::listeners;
use clap::Args;
use coracle_apiserver::https_client::{HttpsClient, HttpsClientError};
use coracle_cli::causes;
use coracle_cli::ready::Ready;
use coracle_fields::Schema as _;
use coracle_fields::core::v1::Service;
use http::Method;
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a connection into the cluster may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How many connections are forwarded at once; others wait in the queue of the socket.
const MOST: usize = 1024;
/// The pause after a connection could not be accepted, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a client of the API is used: the agent renews the certificate in its file.
const CLIENT_LIFE: Duration = Duration::from_secs(600);

/// Options of `coracle forward`.
#[derive(Debug, Clone, Args)]
pub struct ForwardArgs {
    /// Inherited sockets that listen.
    #[arg(long = "listen-fd", required = true)]
    listen_fds: Vec<RawFd>,
    /// NAMESPACE/SERVICE:PORT, or a port of the node.
    #[arg(long)]
    to: Target,
    /// Kubeconfig that may read Services.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Address of the node.
    #[arg(long)]
    node_ip: IpAddr,
}

/// Why a connection is not forwarded.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("cannot ask for Service {0}")]
    Ask(String, #[source] HttpsClientError),
    #[error("the API server answers {1} when it is asked for Service {0}")]
    Refused(String, u16),
    #[error("there is no Service {0}")]
    NoService(String),
    #[error("Service {0} has no cluster IP")]
    NoAddress(String),
    #[error("Service {0}: it has no such TCP port")]
    NoPort(String),
    #[error("connect to {0}")]
    Connect(SocketAddr, #[source] io::Error),
    #[error("connect to {0}: no answer in time")]
    Timeout(SocketAddr),
}

/// Runs `coracle forward` until it is killed.
pub async fn forward(args: ForwardArgs) -> anyhow::Result<()> {
    let ready = Ready::inherited();
    let places = Arc::new(Semaphore::new(MOST));
    let sockets: io::Result<Vec<TcpListener>> =
        args.listen_fds.iter().map(|number| listeners::listening(listeners::inherited(*number)?)).collect();
    let dialer = Arc::new(Dialer { args, client: Mutex::new(None) });
    let mut tasks = JoinSet::new();
    for socket in sockets? {
        tasks.spawn(accept(socket, dialer.clone(), places.clone()));
    }
    ready.tell();
    // They never end by themselves: one that panicked is a reason to be started again.
    match tasks.join_next().await {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

async fn accept(socket: TcpListener, dialer: Arc<Dialer>, places: Arc<Semaphore>) {
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let client = match socket.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let dialer = dialer.clone();
        tokio::spawn(async move {
            let _place = place;
            match dialer.dial().await {
                Ok(inside) => join(client, inside).await,
                Err(error) => tracing::warn!(error = %causes::chain(&error), "connection not forwarded"),
            }
        });
    }
}

/// Copies in both directions until both have ended.
async fn join(mut client: TcpStream, mut inside: TcpStream) {
    // Without it small answers wait for acknowledgements; a failure only costs time.
    let _ = (client.set_nodelay(true), inside.set_nodelay(true));
    if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut inside).await {
        tracing::debug!(%error, "connection broken");
    }
}

/// Connects to what the port leads to.
struct Dialer {
    args: ForwardArgs,
    client: Mutex<Option<(Instant, Arc<HttpsClient>)>>,
}

impl Dialer {
    async fn dial(&self) -> Result<TcpStream, ForwardError> {
        let address = match &self.args.to {
            Target::Node(port) => SocketAddr::new(self.args.node_ip, *port),
            // Asked for each time: it may have been created a moment ago, or again with another address.
            Target::Service { namespace, name, port } => self.service(namespace, name, port).await?,
        };
        match tokio::time::timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(ForwardError::Connect(address, error)),
            Err(_) => Err(ForwardError::Timeout(address)),
        }
    }

    async fn service(&self, namespace: &str, name: &str, port: &str) -> Result<SocketAddr, ForwardError> {
        let target = || self.args.to.to_string();
        let failed = |error| ForwardError::Ask(target(), error);
        let client = self.client().map_err(failed)?;
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let answer = match client.send(Method::GET, &path, None).await.map_err(failed)? {
            (200, answer) => answer,
            (404, _) => return Err(ForwardError::NoService(target())),
            (code, _) => return Err(ForwardError::Refused(target(), code)),
        };
        let service = Service::of(&answer);
        let ip: IpAddr =
            service.spec().cluster_ip().text().parse().map_err(|_| ForwardError::NoAddress(target()))?;
        let mut ports = service.spec().ports().items().filter(|each| each.protocol().text() == "TCP");
        let number = ports.find_map(|each| {
            let number = u16::try_from(each.port().int()?).ok()?;
            (each.name().text() == port || number.to_string() == port).then_some(number)
        });
        Ok(SocketAddr::new(ip, number.ok_or_else(|| ForwardError::NoPort(target()))?))
    }

    fn client(&self) -> Result<Arc<HttpsClient>, HttpsClientError> {
        let mut known = self.client.lock();
        if let Some((_, client)) = known.as_ref().filter(|(made, _)| made.elapsed() < CLIENT_LIFE) {
            return Ok(client.clone());
        }
        let client = Arc::new(HttpsClient::from_kubeconfig(&self.args.kubeconfig)?);
        *known = Some((Instant::now(), client.clone()));
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A forwarder to a port of the "node", which is this machine's loopback.
    async fn forwarder(port: u16) -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let args = ForwardArgs {
            listen_fds: Vec::new(),
            to: Target::Node(port),
            kubeconfig: PathBuf::new(),
            node_ip: [127, 0, 0, 1].into(),
        };
        let dialer = Arc::new(Dialer { args, client: Mutex::new(None) });
        tokio::spawn(accept(socket, dialer, Arc::new(Semaphore::new(MOST))));
        address
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_the_end_of_one_is_not_the_end_of_the_other() {
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = forwarder(inside.local_addr().unwrap().port()).await;
        let server = tokio::spawn(async move {
            let (mut stream, _) = inside.accept().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
        });
        let mut client = TcpStream::connect(address).await.unwrap();
        let sent = vec![7; 300_000];
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received == sent, "{} bytes came back", received.len());
        server.await.unwrap();
    }

    #[tokio::test]
    async fn who_cannot_be_forwarded_is_disconnected_and_the_next_one_is_accepted() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let address = forwarder(closed).await;
        for _ in 0..2 {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert_eq!(client.read(&mut [0; 1]).await.unwrap_or(0), 0);
        }
    }
}
