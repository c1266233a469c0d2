//! The identity Lease of an API server: where it is reached and which names it serves under. Others can tell from its
//! renewals that the server runs.

use coracle_client::Client;
use coracle_client::identity_lease::{IDENTITY, NAMESPACE, PEER_ADDRESS, SERVER};
use coracle_fields::coordination::v1::{Lease, LeaseSpec};
use coracle_fields::make;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// How long a server counts as running without renewing its Lease.
pub const HOLDS: Duration = Duration::from_secs(8);

/// Address and port that clients reach the server at; missing when that is nowhere to other machines.
const ADDRESS: &str = "coracle.dev/advertise-address";
/// Names and addresses of the serving certificate, separated by commas.
const NAMES: &str = "coracle.dev/serving-names";
/// What names of the Leases begin with, as upstream's do.
const PREFIX: &str = "apiserver-";

/// An API server as the others know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The name of its Lease; the same after a restart at the same place.
    pub name: String,
    /// The process that serves.
    pub holder: String,
    /// Where it is reached.
    pub address: Option<SocketAddr>,
    /// Host and port that the other API servers reach it at; empty when they do not.
    pub peer_address: String,
    /// What it serves under: names that no node may be certified for.
    pub names: Vec<String>,
}

impl Identity {
    /// The identity of a server. `place` tells servers apart: its host and where it listens.
    pub fn new(place: &[&str], address: Option<SocketAddr>, names: Vec<String>) -> Self {
        let mut name = PREFIX.to_owned();
        for byte in &Sha256::digest(place.join("\0"))[..16] {
            // Writing to a String cannot fail.
            let _ = write!(name, "{byte:02x}");
        }
        let holder = format!("{name}_{}", uuid::Uuid::new_v4());
        Self { holder, name, address, peer_address: String::new(), names }
    }

    /// The same server, which the other servers reach at this host and port.
    #[must_use]
    pub fn reached_by_peers_at(self, peer_address: String) -> Self {
        Self { peer_address, ..self }
    }

    /// What a Lease says; `None` when it is not the identity of an API server.
    pub fn read(lease: &Object) -> Option<Self> {
        if !is_identity(lease) {
            return None;
        }
        let doc = lease.doc();
        let read = doc.view::<Lease>();
        let note = |key: &str| read.metadata().annotations().key(key).text();
        let names = note(NAMES).split(',').filter(|name| !name.is_empty());
        Some(Self {
            name: lease.meta.name.clone(),
            holder: read.spec().holder_identity().text().to_owned(),
            address: note(ADDRESS).parse().ok(),
            peer_address: note(PEER_ADDRESS).to_owned(),
            names: names.map(str::to_owned).collect(),
        })
    }

    /// The Lease as it is to be written at `now`, over the one that is there. One that is not renewed has no duration:
    /// nobody is to conclude from its age that the server is dead.
    pub fn lease(&self, current: Option<&Object>, renews: bool, now: Timestamp) -> Value {
        let mut lease = match current {
            Some(current) => current.copy::<Lease>(),
            None => make!(Lease { metadata: { name: &self.name, namespace: NAMESPACE } }),
        };
        let time = now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let same_holder = lease.view().spec().holder_identity() == self.holder;
        let before = lease.view().spec().acquire_time().text();
        let acquired = if same_holder && !before.is_empty() { before.to_owned() } else { time.clone() };
        lease.edit().spec().set(make!(part LeaseSpec {
            holder_identity: &self.holder,
            acquire_time: acquired,
            renew_time: time,
            lease_duration_seconds: renews.then_some(HOLDS.as_secs()),
        }));
        lease.edit().metadata().labels().set([(IDENTITY, SERVER)]);
        lease.edit().metadata().annotations().set([(NAMES, self.names.join(","))]);
        if let Some(address) = self.address {
            lease.edit().metadata().annotations().insert(ADDRESS, address.to_string());
        }
        if !self.peer_address.is_empty() {
            lease.edit().metadata().annotations().insert(PEER_ADDRESS, self.peer_address.clone());
        }
        lease.into_value()
    }
}

/// Whether an object of the kind Lease is the identity of an API server. Its label is what admission protects.
pub fn is_identity(lease: &Object) -> bool {
    lease.meta.namespace == NAMESPACE && lease.meta.labels.get(IDENTITY).is_some_and(|value| value == SERVER)
}

/// The Leases of all API servers that are known, running or not, in the order of their names.
pub fn all(leases: &Cache) -> Vec<Arc<Object>> {
    let mut all = leases.list(Some(NAMESPACE));
    all.retain(|lease| is_identity(lease));
    all
}

/// The names and addresses of every API server whose Lease is there. A server that died keeps its names until its Lease is
/// collected: it may come back, and nobody is to be certified in its place meanwhile.
pub fn reserved_names(client: &Client) -> Vec<String> {
    let leases = client.cache(&client.kind("coordination.k8s.io", "leases"));
    all(&leases).iter().filter_map(|lease| Identity::read(lease)).flat_map(reserved_by).collect()
}

fn reserved_by(server: Identity) -> Vec<String> {
    let mut names = server.names;
    names.extend(server.address.map(|address| address.ip().to_string()));
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use coracle_validation::tree::Tree;
    use serde_json::json;

    fn server() -> Identity {
        let names = vec!["api-1.example".to_owned(), "10.96.0.1".to_owned()];
        let own = Identity::new(&["host", "192.0.2.1:6443"], "192.0.2.1:6443".parse().ok(), names);
        own.reached_by_peers_at("192.0.2.1:6443".to_owned())
    }

    #[test]
    fn a_lease_says_who_the_server_is() {
        let (own, now) = (server(), Timestamp::UNIX_EPOCH);
        let lease = object(own.lease(None, true, now));
        assert_eq!(Identity::read(&lease), Some(own.clone()));
        assert_eq!(lease.value()["spec"]["leaseDurationSeconds"], 8);
        assert_eq!(object(own.lease(None, false, now)).value()["spec"]["leaseDurationSeconds"], Value::Null);
        let nowhere =
            Identity { address: None, peer_address: String::new(), names: Vec::new(), ..own.clone() };
        assert_eq!(Identity::read(&object(nowhere.lease(None, true, now))), Some(nowhere));
        assert_eq!(reserved_by(own), ["api-1.example", "10.96.0.1", "192.0.2.1"]);
    }

    #[test]
    fn a_renewal_keeps_the_time_of_acquisition_and_a_new_process_does_not() {
        let (own, now) = (server(), Timestamp::UNIX_EPOCH);
        let first = object(own.lease(None, true, now));
        let later = Timestamp::from_second(60).unwrap();
        let renewed = own.lease(Some(&first), true, later);
        assert_eq!(renewed.text("spec.acquireTime"), "1970-01-01T00:00:00.000000Z");
        assert_eq!(renewed.text("spec.renewTime"), "1970-01-01T00:01:00.000000Z");
        let restarted = server();
        assert_eq!(restarted.name, own.name, "the same place");
        assert_ne!(restarted.holder, own.holder);
        let taken = restarted.lease(Some(&first), true, later);
        assert_eq!(taken.text("spec.acquireTime"), "1970-01-01T00:01:00.000000Z");
    }

    #[test]
    fn other_leases_are_no_servers() {
        let lease = |namespace: &str, label: &str| {
            let meta = json!({"name": "apiserver-x", "namespace": namespace, "labels": {IDENTITY: label}});
            object(json!({"metadata": meta, "spec": {}}))
        };
        assert!(is_identity(&lease("kube-system", "kube-apiserver")));
        assert!(
            !is_identity(&lease("default", "kube-apiserver")),
            "admission protects the namespace kube-system"
        );
        assert!(!is_identity(&lease("kube-system", "other")));
    }

    #[test]
    fn servers_at_different_places_have_different_names() {
        let name = |place: &[&str]| Identity::new(place, None, Vec::new()).name;
        assert_ne!(name(&["host", "192.0.2.1:6443"]), name(&["host", "192.0.2.1:6444"]));
        assert_ne!(name(&["a", "b"]), name(&["ab", ""]));
        assert_eq!(name(&["host"]).len(), PREFIX.len() + 32);
    }
}
