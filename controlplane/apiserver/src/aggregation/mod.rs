//! API servers of others behind this one: an APIService with a Service hands a group and version over. Requests for it pass
//! authentication, authorization and the filters here and then go to the Service, with the user's name in headers that the
//! front-proxy certificate vouches for.

// What an APIService says, and whether its Service can be reached.
pub mod target;
// Who serves what, as of now.
pub mod table;
// Who asks, in headers.
mod vouch;
// Connections to the servers.
mod link;
// What a server says about itself.
mod learn;
// A request passed on.
mod pass;
// What others keep in a namespace.
mod content;
// Whether the servers are there, over time.
mod follow;

pub use follow::follow;

use crate::respond::Body;
use http_body_util::BodyExt;
use link::{Dialer, Pooled};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use table::Table;
use target::Target;

/// The group of APIServices themselves; it cannot be handed over.
pub const OWN: &str = "apiregistration.k8s.io";

/// The servers, and the connections to them.
pub struct Extensions {
    /// Who serves what.
    pub table: Arc<Table>,
    dialer: Arc<Dialer>,
    clients: Mutex<HashMap<String, (Target, Pooled)>>,
}

impl Extensions {
    /// None yet; connections go through `reach` and show the front-proxy certificate of `pki`.
    pub fn new(
        api: Arc<crate::api::Api>,
        reach: Arc<crate::connect::reach::Reach>,
        pki: Arc<coracle_pki::Pki>,
        table: Arc<Table>,
    ) -> Self {
        let dialer = Arc::new(Dialer { api, reach, pki });
        Self { table, dialer, clients: Mutex::default() }
    }

    /// The connections to a server; those to what it was before are given up.
    fn client(&self, target: &Target) -> Pooled {
        let mut clients = self.clients.lock();
        if let Some((_, client)) = clients.get(&target.root()).filter(|(known, _)| known == target) {
            return client.clone();
        }
        let client = link::pooled(&self.dialer, target);
        clients.insert(target.root(), (target.clone(), client.clone()));
        client
    }

    /// Gives up the connections to a server.
    fn forget(&self, target: &Target) {
        self.clients.lock().remove(&target.root());
    }
}

/// A body without anything in it.
fn nothing() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}
