//! Tunnels of other API servers. An agent keeps its tunnels to one server; the other servers reach the node through that one,
//! which copies bytes and no more: TLS is between the agent and the server that has the request, which has authenticated,
//! authorized and admitted it for its user. A relayed connection uses a tunnel of the server that was asked, never another
//! relay.

use super::connection::{Io, exchange};
use super::forward;
use super::tunnel::Tunnels;
use crate::authn::front_proxy::{GROUP, USER};
use crate::https_client::{ClientTls, KeyError, client_config};
use crate::objects::Objects;
use crate::request_body::RequestBody;
use crate::respond::{self, Body};
use bytes::Bytes;
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, PEER_ADDRESS, SERVER};
use coracle_client::user::User;
use coracle_fields::coordination::v1::Lease;
use coracle_pki::{Pki, PkiError};
use coracle_proto::node_identity::API_SERVERS;
use coracle_proto::status::ApiError;
use http::header::{CONNECTION, HOST, UPGRADE};
use http::request::Builder;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The protocol that is upgraded to.
const PROTOCOL: &str = "coracle-relay";
const PATH: &str = "/coracle/relay/";
/// The name that every API server of the cluster has a certificate for, and no node can get one for.
const SERVER_NAME: &str = "kubernetes.default.svc";
/// How long a server that is asked waits for a tunnel of the node: all may be in use.
const WAIT: Duration = Duration::from_secs(3);
/// How long another server may take to accept a connection: one that died must not hold up the answer that a node is not there.
const CONNECT: Duration = Duration::from_secs(2);
/// How many servers are asked. Leases of servers that died stay for a while.
const MOST: usize = 16;

/// Why a node is not reached through another server.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The own key cannot be used.
    #[error("the front-proxy certificate cannot be used")]
    Keys(#[from] KeyError),
    /// There is no own key.
    #[error("no front-proxy certificate")]
    Pki(#[from] PkiError),
    /// The server cannot be reached.
    #[error("API server {server}: {why}")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        why: std::io::Error,
    },
    /// The server does not answer the request.
    #[error("API server {server}: {why}")]
    Failed {
        /// Its address.
        server: String,
        /// Why.
        why: ApiError,
    },
    /// The server has no tunnel to the node.
    #[error("API server {server} answered {status}")]
    Refused {
        /// Its address.
        server: String,
        /// Its answer.
        status: StatusCode,
    },
    /// The server did not upgrade the connection.
    #[error("API server {server}: {why}")]
    Upgrade {
        /// Its address.
        server: String,
        /// Why.
        why: hyper::Error,
    },
}

/// The node that a path is the relay to.
pub fn node_of(path: &str) -> Option<&str> {
    path.strip_prefix(PATH).filter(|node| !node.is_empty() && !node.contains('/'))
}

/// Whether somebody is another API server, which may ask for a relay. Administrators may, too.
pub fn may(user: &User) -> bool {
    user.in_group(API_SERVERS)
}

/// Answers another API server that wants to reach a node: joins its connection with a tunnel of the node.
pub async fn serve(
    tunnels: &Tunnels,
    node: &str,
    mut request: Request<RequestBody>,
) -> Result<Response<Body>, ApiError> {
    let asked = request.headers().get(UPGRADE).is_some_and(|value| value == PROTOCOL);
    let Some(upgrade) = forward::client_side(&mut request).filter(|_| asked) else {
        return Err(ApiError::bad_request("unable to upgrade: missing upgrade headers in request"));
    };
    if !tunnels.has(node) {
        return Err(ApiError::new(404, "NotFound", format!("node {node} keeps no tunnel to this server")));
    }
    let taken = tokio::time::timeout(WAIT, tunnels.take(node)).await;
    let mut tunnel = taken.map_err(|_| ApiError::unavailable(format!("no tunnel of node {node} is idle")))?;
    tokio::spawn(async move {
        if let Ok(client) = upgrade.await {
            let mut client = TokioIo::new(client);
            let _ = tokio::io::copy_bidirectional(&mut client, &mut tunnel).await;
        }
    });
    Ok(respond::switched(PROTOCOL))
}

/// The other API servers of the cluster.
pub struct Peers {
    objects: Arc<Objects>,
    pki: Arc<Pki>,
    /// The identity Lease of this server.
    own: String,
}

impl Peers {
    /// The servers whose Leases are in `objects`, but for that of the name `own`.
    pub fn new(objects: Arc<Objects>, pki: Arc<Pki>, own: String) -> Self {
        Self { objects, pki, own }
    }

    /// Where the other servers are, by their Leases; some may have died since.
    pub fn servers(&self) -> Vec<String> {
        let leases = self.objects.registry.preferred("coordination.k8s.io", "leases");
        let Some(leases) = leases.and_then(|kind| self.objects.cache(&kind).ok()) else { return Vec::new() };
        let others = leases.list(Some(NAMESPACE)).into_iter().filter(|lease| {
            lease.meta.name != self.own && lease.meta.labels.get(IDENTITY).is_some_and(|of| of == SERVER)
        });
        let address = |lease: Arc<coracle_kinds::object::Object>| {
            let doc = lease.doc();
            doc.view::<Lease>().metadata().annotations().key(PEER_ADDRESS).text().to_owned()
        };
        others.map(address).filter(|address| !address.is_empty()).take(MOST).collect()
    }

    /// A connection to a node's agent through a tunnel that the node keeps to `server`.
    pub async fn dial(&self, server: &str, node: &str) -> Result<Box<dyn Io>, RelayError> {
        let stream = self.connect(server).await?;
        let failed = |why| RelayError::Failed { server: server.to_owned(), why };
        let request = request(node).map_err(ApiError::internal).map_err(failed)?;
        let mut response = exchange(stream, request).await.map_err(failed)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(RelayError::Refused { server: server.to_owned(), status: response.status() });
        }
        let upgraded = hyper::upgrade::on(&mut response).await;
        let upgraded = upgraded.map_err(|why| RelayError::Upgrade { server: server.to_owned(), why })?;
        Ok(Box::new(TokioIo::new(upgraded)))
    }

    /// A connection to another server of the cluster, for requests that are [`identified`].
    pub async fn connect(&self, server: &str) -> Result<TlsStream<TcpStream>, RelayError> {
        let tls = self.tls()?;
        let connect = async {
            let stream = TcpStream::connect(server).await?;
            let _ = stream.set_nodelay(true);
            let name = ServerName::try_from(SERVER_NAME).map_err(std::io::Error::other)?;
            tls.connect(name, stream).await
        };
        let connected = tokio::time::timeout(CONNECT, connect).await;
        let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        stream.map_err(|why| RelayError::Unreachable { server: server.to_owned(), why })
    }

    /// TLS with the front-proxy certificate, to a server of this cluster.
    fn tls(&self) -> Result<TlsConnector, RelayError> {
        let signed = self.pki.front_proxy_client()?;
        let keys = ClientTls {
            authority: Some(self.pki.authority().certificate.clone()),
            client: Some((signed.certificate, signed.key)),
        };
        let mut config = client_config(&keys)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

/// The request for a connection to a node.
fn request(node: &str) -> Result<Request<Empty<Bytes>>, http::Error> {
    let request =
        Request::get(format!("{PATH}{node}")).header(CONNECTION, "Upgrade").header(UPGRADE, PROTOCOL);
    identified(request).body(Empty::new())
}

/// A request to another API server; the front-proxy certificate vouches for the name in it, which is that of API servers.
pub fn identified(request: Builder) -> Builder {
    let server = User::new("system:apiserver", [API_SERVERS.to_owned()]);
    let request = request.header(HOST, SERVER_NAME).header(USER, &server.name);
    server.groups.iter().fold(request, |request, group| request.header(GROUP, group))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_relay_is_asked_for_by_an_api_server() {
        let asked = request("n1").unwrap();
        assert_eq!(node_of(asked.uri().path()), Some("n1"));
        assert_eq!(asked.headers()[USER], "system:apiserver");
        let groups: Vec<&str> =
            asked.headers().get_all(GROUP).iter().map(|group| group.to_str().unwrap()).collect();
        assert_eq!(groups, [API_SERVERS, "system:authenticated"]);
        assert!(may(&User::new("system:apiserver", [API_SERVERS.to_owned()])));
        assert!(!may(&User::new("system:apiserver", [])));
        assert!(forward::wants_upgrade(asked.headers()));
        assert_eq!((node_of("/coracle/relay/"), node_of("/coracle/relay/n1/x")), (None, None));
        assert_eq!(node_of("/coracle/tunnel/n1"), None);
    }
}
