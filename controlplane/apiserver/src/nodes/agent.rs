//! A connection to a node's agent: its address from the Node object, TLS with the server's own client certificate.

use super::address::{AddressError, Addresses};
use super::node_tls::{self, NodeTls, NodeTlsError};
use super::tunnel::Tunnels;
use crate::objects::Objects;
use bytes::Bytes;
use coracle_fields::View;
use coracle_fields::core::v1::Node;
use coracle_kinds::object::Object;
use coracle_proto::status::ApiError;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// How long a node may take to answer.
const DIAL: Duration = Duration::from_secs(10);
/// A node that has just joined gets its certificate within moments; requests wait for it.
const JOINED_RECENTLY: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Tunnels that may turn out to be dead.
const TUNNEL_TRIES: usize = 8;
/// The protocol of a raw connection through an agent.
const REACH: &str = "coracle-dial";
/// The longest answer of an agent that the server keeps in memory. Usage of a node with hundreds of pods is far shorter.
const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;
/// The agent's port when the Node does not say.
const PORT: u16 = 10250;

/// Connects to node agents.
pub struct Nodes {
    tls: NodeTls,
    addresses: Addresses,
    objects: Arc<Objects>,
    /// Connections that agents opened.
    pub tunnels: Arc<Tunnels>,
}

/// What carries a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Why there is no connection to a node.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("no preferred addresses found for node {0}")]
    NoAddress(String),
    #[error("node {node} has no port {port}")]
    Port { node: String, port: String },
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    NodeTls(#[from] NodeTlsError),
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
            DialError::NoAddress(_) => Self::internal(error),
            error => Self::internal(format!("error dialing backend: {error}")),
        }
    }
}

impl Nodes {
    /// Dials agents that prove who they are, where nodes can be.
    pub fn new(objects: Arc<Objects>, tls: NodeTls, addresses: Addresses) -> Self {
        Self { tls, addresses, objects, tunnels: Arc::default() }
    }

    /// The objects that nodes are looked up in.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    fn node(&self, name: &str) -> Result<Arc<Object>, ApiError> {
        let kind = self.objects.registry.resource("", "v1", "nodes").ok_or_else(ApiError::no_such_path)?;
        self.objects.cached(&kind, "", name)
    }

    /// Opens a connection to a node's agent: through a tunnel when the node keeps some, by its address otherwise.
    pub async fn dial(&self, node: &str) -> Result<TlsStream<Box<dyn Io>>, ApiError> {
        // A node that is not there cannot be dialled either way, and the answer says so.
        let object = self.node(node)?;
        let doc = object.doc();
        let object = doc.view::<Node>();
        let until = Instant::now() + DIAL;
        loop {
            let dialled = async {
                match self.tunnels.has(node) {
                    true => self.through_tunnel(node).await,
                    false => self.by_address(node, object).await,
                }
            };
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

/// An answer of an agent as a whole; an error when it is longer than any that an agent has a reason for.
async fn read_body<B>(body: B) -> Result<Bytes, ApiError>
where
    B: hyper::body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(ApiError::internal)?;
    Ok(body.to_bytes())
}

/// Host and port of a node's agent, as the Node says.
fn agent_address(node: &str, object: View<'_, Node>) -> Result<(String, u16), DialError> {
    let status = object.status();
    let find =
        |kind: &str| status.addresses().items().find(|a| a.type_() == kind).and_then(|a| a.address().get());
    let host = find("InternalIP").or_else(|| find("ExternalIP")).or_else(|| find("Hostname"));
    let host = host.ok_or_else(|| DialError::NoAddress(node.into()))?;
    let port = status.daemon_endpoints().kubelet_endpoint().port();
    let port = match port.int() {
        None if !port.is_set() => PORT,
        Some(number) if number <= 0 => PORT,
        number => number
            .and_then(|number| u16::try_from(number).ok())
            .ok_or_else(|| DialError::Port { node: node.into(), port: port.to_value().to_string() })?,
    };
    Ok((host.to_owned(), port))
}

/// Whether a node joined so recently that its certificate may not be issued yet.
fn joined_recently(object: View<'_, Node>) -> bool {
    let created = object.metadata().creation_timestamp().text();
    let created = created.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second);
    jiff::Timestamp::now().as_second() - created < JOINED_RECENTLY.as_secs() as i64
}

/// One HTTP/1.1 exchange over a connection of its own.
pub async fn exchange<S, B>(stream: S, request: Request<B>) -> Result<Response<Incoming>, ApiError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let failed = |e: hyper::Error| {
        ApiError::new(502, "ServiceUnavailable", format!("error trying to reach service: {e}"))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    sender.send_request(request).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_fields::Schema as _;
    use serde_json::{Value, json};

    #[tokio::test]
    async fn a_node_cannot_make_the_server_keep_an_endless_answer() {
        let answer = |bytes: usize| http_body_util::Full::new(Bytes::from(vec![0; bytes]));
        assert_eq!(read_body(answer(MAX_RESPONSE_BYTES)).await.unwrap().len(), MAX_RESPONSE_BYTES);
        assert!(read_body(answer(MAX_RESPONSE_BYTES + 1)).await.is_err());
    }

    #[test]
    fn a_node_says_where_its_agent_is() {
        let at = |port: Value| {
            let address =
                json!([{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "192.0.2.1"}]);
            let ports = json!({"kubeletEndpoint": {"Port": port}});
            let object = json!({"status": {"addresses": address, "daemonEndpoints": ports}});
            agent_address("n", Node::of(&object))
        };
        for (port, expected) in
            [(json!(1234), 1234), (json!(0), PORT), (json!(-1), PORT), (Value::Null, PORT)]
        {
            assert_eq!(at(port).unwrap(), ("192.0.2.1".to_owned(), expected));
        }
        for port in [json!(65_536), json!(75_786), json!("10250")] {
            assert!(matches!(at(port), Err(DialError::Port { .. })));
        }
        assert!(matches!(agent_address("n", Node::of(&json!({}))), Err(DialError::NoAddress(_))));
        let now = jiff::Timestamp::now().to_string();
        let joined = |at: &str| {
            let object = json!({"metadata": {"creationTimestamp": at}});
            joined_recently(Node::of(&object))
        };
        assert!(joined(&now) && !joined("2020-01-01T00:00:00Z"));
    }
}
