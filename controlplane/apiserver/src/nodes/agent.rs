//! A connection to a node's agent: its address from the Node object, TLS with the server's own client certificate.

use super::address::{AddressError, Addresses};
use super::agent_address::{AgentAddressError, agent_address, joined_recently};
use super::connection::{Io, exchange};
use super::node_tls::{self, NodeTls, NodeTlsError, NodeTlsSetupError};
use super::relay::{Peers, RelayError};
use super::tunnel::Tunnels;
use crate::objects::Objects;
use bytes::Bytes;
use coracle_cli::causes;
use coracle_fields::View;
use coracle_fields::core::v1::Node;
use coracle_kinds::object::Object;
use coracle_pki::Pki;
use coracle_proto::status::ApiError;
use futures::stream::{FuturesUnordered, StreamExt};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// How long a node may take to answer.
const DIAL: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);
/// Tunnels that may turn out to be dead.
const TUNNEL_TRIES: usize = 8;
/// How long the usual way to a node may take before other servers are asked as well. An agent that has moved to another server
/// leaves tunnels behind that nobody answers.
const HEAD_START: Duration = Duration::from_millis(300);
/// The protocol of a raw connection through an agent.
const REACH: &str = "coracle-dial";
/// The longest answer of an agent that the server keeps in memory. Usage of a node with hundreds of pods is far shorter.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// Connects to node agents.
pub struct Nodes {
    tls: NodeTls,
    addresses: Addresses,
    objects: Arc<Objects>,
    /// Connections that agents opened.
    pub tunnels: Arc<Tunnels>,
    /// Other servers that agents may have opened connections to.
    peers: Peers,
}

/// Why there is no connection to a node.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error(transparent)]
    Node(#[from] AgentAddressError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    NodeTls(#[from] NodeTlsError),
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error("no other API server is known")]
    NoPeers,
    #[error("tls to {place}: {why}")]
    Tls { place: String, why: std::io::Error },
    #[error("{place}: i/o timeout")]
    Slow { place: String },
}

impl From<DialError> for ApiError {
    fn from(error: DialError) -> Self {
        match error {
            // Upstream's words and code for addresses that it does not proxy to.
            DialError::Address(AddressError::NotAllowed { .. }) => Self::bad_request(error.to_string()),
            DialError::Node(AgentAddressError::NoAddress(_)) => Self::internal(error),
            error => Self::internal(format!("error dialing backend: {error}")),
        }
    }
}

impl Nodes {
    /// Dials agents that prove who they are, where nodes can be.
    pub fn new(objects: Arc<Objects>, tls: NodeTls, addresses: Addresses, peers: Peers) -> Self {
        Self { tls, addresses, objects, tunnels: Arc::default(), peers }
    }

    /// Uses the cluster's authority as it is now, for connections from now on.
    pub fn reload_authority(&self, pki: &Pki) -> Result<(), NodeTlsSetupError> {
        self.tls.reload(pki)
    }

    /// The objects that nodes are looked up in.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    fn node(&self, name: &str) -> Result<Arc<Object>, ApiError> {
        let kind = self.objects.registry.resource("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
        self.objects.cached(&kind, "", name)
    }

    /// Opens a connection to a node's agent: through a tunnel when the node keeps some to this server, by its address
    /// otherwise, and through another server that it keeps tunnels to when that fails or takes its time.
    pub async fn dial(&self, node: &str) -> Result<TlsStream<Box<dyn Io>>, ApiError> {
        // A node that is not there cannot be dialled either way, and the answer says so.
        let object = self.node(node)?;
        let doc = object.doc();
        let object = doc.view::<Node>();
        let until = Instant::now() + DIAL;
        loop {
            let usual = async {
                match self.tunnels.has(node) {
                    true => self.through_tunnel(node).await,
                    false => self.by_address(node, object).await,
                }
            };
            let dialled = first_of(usual, self.through_peers(node));
            match tokio::time::timeout_at(until, dialled).await {
                Ok(Err(DialError::NodeTls(NodeTlsError::Unknown { .. })))
                    if joined_recently(object) && Instant::now() + PAUSE < until =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(result) => return result.map_err(ApiError::from),
                Err(_) => {
                    let place = match agent_address(node, object) {
                        Ok((host, port)) if !self.tunnels.has(node) => format!("dial tcp {host}:{port}"),
                        _ => format!("tunnel of {node}"),
                    };
                    return Err(DialError::Slow { place }.into());
                }
            }
        }
    }

    async fn through_tunnel(&self, node: &str) -> Result<TlsStream<Box<dyn Io>>, DialError> {
        let mut tries = 0;
        loop {
            // An idle connection may have died unseen: the next one is younger.
            let stream = Box::new(self.tunnels.take(node).await);
            match self.tls_handshake(node, stream, format!("tunnel of {node}")).await {
                Err(DialError::Tls { .. }) if tries < TUNNEL_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// Through the first server that gives a connection on which the agent answers.
    async fn through_peers(&self, node: &str) -> Result<TlsStream<Box<dyn Io>>, DialError> {
        let servers = self.peers.servers();
        let mut asked: FuturesUnordered<_> =
            servers.iter().map(|server| self.through_peer(server, node)).collect();
        let mut last = DialError::NoPeers;
        while let Some(dialled) = asked.next().await {
            match dialled {
                Ok(stream) => return Ok(stream),
                Err(why) => {
                    tracing::debug!(node, why = %causes::chain(&why), "node not reached through another API server");
                    last = why;
                }
            }
        }
        Err(last)
    }

    async fn through_peer(&self, server: &str, node: &str) -> Result<TlsStream<Box<dyn Io>>, DialError> {
        let mut tries = 0;
        loop {
            let stream = self.peers.dial(server, node).await?;
            let place = format!("tunnel of {node} to API server {server}");
            match self.tls_handshake(node, stream, place).await {
                Err(DialError::Tls { .. }) if tries < TUNNEL_TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn by_address(
        &self,
        node: &str,
        object: View<'_, Node>,
    ) -> Result<TlsStream<Box<dyn Io>>, DialError> {
        let (host, port) = agent_address(node, object)?;
        let stream = Box::new(self.addresses.connect(&host, port).await?);
        self.tls_handshake(node, stream, format!("{host}:{port}")).await
    }

    /// TLS handshake with a node's agent; checks its certificate before anything is sent.
    async fn tls_handshake(
        &self,
        node: &str,
        stream: Box<dyn Io>,
        place: String,
    ) -> Result<TlsStream<Box<dyn Io>>, DialError> {
        // Sessions are kept by this name: one of a node is resumed with that node only.
        let name = ServerName::try_from(node.to_owned());
        let name = name.unwrap_or_else(|_| ServerName::IpAddress(Ipv4Addr::UNSPECIFIED.into()));
        let shaken = self.tls.connector(node).connect(name, stream).await;
        let stream = shaken.map_err(|why| match node_tls::refused(node, &why) {
            Some(refused) => DialError::NodeTls(refused),
            None => DialError::Tls { place, why },
        })?;
        self.tls.check(node, stream.get_ref().1.peer_certificates())?;
        Ok(stream)
    }

    /// One request to a node's agent.
    pub async fn send<B>(&self, node: &str, request: Request<B>) -> Result<Response<Incoming>, ApiError>
    where
        B: hyper::body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.dial(node).await?;
        exchange(stream, request).await
    }

    /// What a node's agent answers to a request without a body; an answer that is no success is an error with its text.
    pub async fn ask(&self, method: Method, node: &str, path: &str) -> Result<Bytes, ApiError> {
        let request = Request::builder().method(method).uri(path).header("host", node);
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        let response = self.send(node, request).await?;
        let status = response.status();
        let body = read_body(response.into_body()).await?;
        if !status.is_success() {
            let why = String::from_utf8_lossy(&body);
            return Err(ApiError::internal(format!("{node} answered {path} with {status}: {}", why.trim())));
        }
        Ok(body)
    }

    /// A raw connection to an address on a node's network, or in one of its pods, through the node's agent.
    pub async fn dial_via_agent(&self, node: &str, address: &str) -> Result<Box<dyn Io>, ApiError> {
        let request = Request::get(format!("/dial/{address}"))
            .header("host", node)
            .header("connection", "Upgrade")
            .header("upgrade", REACH)
            .body(Empty::<Bytes>::new())
            .map_err(ApiError::internal)?;
        let mut response = self.send(node, request).await?;
        if response.status() != http::StatusCode::SWITCHING_PROTOCOLS {
            let why =
                format!("error trying to reach service: dial tcp {address}: connect: connection refused");
            return Err(ApiError::new(503, "ServiceUnavailable", why));
        }
        let upgraded = hyper::upgrade::on(&mut response).await.map_err(ApiError::internal)?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    /// A small JSON document from a node's agent, such as `/stats/summary`.
    pub async fn json<T: DeserializeOwned>(&self, node: &str, path: &str) -> Result<T, ApiError> {
        let body = self.ask(Method::GET, node, path).await?;
        serde_json::from_slice(&body).map_err(ApiError::internal)
    }
}

/// The result of the first way that works; the second is tried when the first has failed or goes on for long. When both fail
/// the first says why.
async fn first_of<T>(
    first: impl Future<Output = Result<T, DialError>>,
    second: impl Future<Output = Result<T, DialError>>,
) -> Result<T, DialError> {
    let mut first = pin!(first);
    let mut second = pin!(second);
    match tokio::time::timeout(HEAD_START, &mut first).await {
        Ok(Err(why)) => return second.await.or(Err(why)),
        Ok(done) => return done,
        Err(_) => {}
    }
    tokio::select! {
        done = &mut first => match done {
            Err(why) => second.await.or(Err(why)),
            done => done,
        },
        done = &mut second => match done {
            Err(_) => first.await,
            done => done,
        },
    }
}

/// An answer of an agent as a whole; an error when it is longer than any that an agent has a reason for.
async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(ApiError::internal)?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_node_cannot_make_the_server_keep_an_endless_answer() {
        let answer = |bytes: usize| http_body_util::Full::new(Bytes::from(vec![0; bytes]));
        assert_eq!(read_body(answer(MAX_RESPONSE_BYTES)).await.unwrap().len(), MAX_RESPONSE_BYTES);
        assert!(read_body(answer(MAX_RESPONSE_BYTES + 1)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn another_way_is_tried_when_the_first_fails_or_hangs() {
        async fn after(millis: u64, result: Result<&'static str, &str>) -> Result<&'static str, DialError> {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            result.map_err(|place| DialError::Slow { place: place.to_owned() })
        }
        let hangs = || std::future::pending::<Result<&str, DialError>>();
        let said = |result: Result<&str, DialError>| match result {
            Ok(way) => way.to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(said(first_of(after(250, Ok("usual")), after(0, Ok("peer"))).await), "usual");
        assert_eq!(said(first_of(after(10, Err("usual")), after(5000, Ok("peer"))).await), "peer");
        assert_eq!(said(first_of(hangs(), after(10, Ok("peer"))).await), "peer");
        assert_eq!(said(first_of(after(2000, Ok("usual")), after(10, Err("peer"))).await), "usual");
        assert_eq!(said(first_of(after(2000, Ok("usual")), hangs()).await), "usual");
        assert_eq!(
            said(first_of(after(10, Err("usual")), after(10, Err("peer"))).await),
            "usual: i/o timeout",
            "who is asked first says why"
        );
        assert_eq!(
            said(first_of(after(2000, Err("usual")), after(10, Err("peer"))).await),
            "usual: i/o timeout"
        );
    }
}
