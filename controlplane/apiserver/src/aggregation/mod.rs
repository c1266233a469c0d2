//! Aggregated API servers: an APIService with a Service delegates a group and version. Requests for it pass
//! authentication, authorization and the filters of this server, and are then proxied to the Service with the user in
//! `X-Remote-*` headers. The backend trusts the headers because of the front-proxy client certificate.

// APIServices and the endpoints of their Services.
pub mod target;
// Routing table of aggregated group versions.
pub mod routes;
// `X-Remote-*` headers.
mod requestheader;
// Connections to aggregated servers.
mod transport;
// Discovery of aggregated servers.
mod discover;
// Proxying of requests.
mod proxy;
// Objects of aggregated servers in a namespace.
mod namespace_content;
// Availability of aggregated servers.
mod availability;

pub use availability::watch_availability;

use crate::respond::Body;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use routes::RouteTable;
use std::collections::HashMap;
use std::sync::Arc;
use target::Target;
use transport::{BackendDialer, PooledClient};

/// The group of APIServices themselves; it cannot be aggregated.
pub const OWN: &str = "apiregistration.k8s.io";

/// The aggregated API servers and the connections to them.
pub struct Extensions {
    /// Routes to the servers.
    pub table: Arc<RouteTable>,
    dialer: Arc<BackendDialer>,
    clients: Mutex<HashMap<String, (Target, PooledClient)>>,
}

impl Extensions {
    /// Connections are dialled by `dialer` and use the front-proxy client certificate of `pki`.
    pub fn new(
        objects: Arc<crate::objects::Objects>,
        dialer: Arc<crate::nodes::dial::ClusterDialer>,
        pki: Arc<coracle_pki::Pki>,
        table: Arc<RouteTable>,
    ) -> Self {
        let dialer = Arc::new(BackendDialer { objects, dialer, pki });
        Self { table, dialer, clients: Mutex::default() }
    }

    /// The pooled client of a server. If the target has changed, a new client replaces the old one.
    fn client(&self, target: &Target) -> PooledClient {
        let mut clients = self.clients.lock();
        if let Some((_, client)) = clients.get(&target.root()).filter(|(known, _)| known == target) {
            return client.clone();
        }
        let client = transport::pooled_client(&self.dialer, target);
        clients.insert(target.root(), (target.clone(), client.clone()));
        client
    }

    /// Drops the pooled connections to a server.
    fn forget(&self, target: &Target) {
        self.clients.lock().remove(&target.root());
    }
}

/// An empty request body.
fn empty_body() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}
