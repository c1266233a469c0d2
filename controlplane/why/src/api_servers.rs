//! The Service of the API servers, `default/kubernetes`. It has no selector: the servers write its endpoints themselves, if their
//! addresses can be endpoints.

use crate::finding::{Finding, ObjectRef};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::View;
use coracle_fields::coordination::v1::Lease;
use coracle_fields::core::v1::Service;
use std::net::IpAddr;

/// The namespace of the servers' Leases.
const LEASES: &str = "kube-system";
/// The label of these Leases, and its value.
const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// Annotation of a Coracle server with the host and port by which it is known.
const KNOWN_AS: &str = "coracle.dev/peer-address";
/// Annotation of a Coracle server with the address that it publishes; missing when it publishes none.
const PUBLISHED: &str = "coracle.dev/advertise-address";

/// Whether a Service is that of the API servers.
pub fn is_theirs(service: View<'_, Service>) -> bool {
    service.metadata().namespace() == "default" && service.metadata().name() == "kubernetes"
}

/// Why no API server is an endpoint of their Service, where their Leases say it.
pub fn unpublished(world: &World, service: View<'_, Service>) -> Option<Finding> {
    let leases = world.list::<Lease>(Some(LEASES)).items.into_iter();
    let servers = leases.map(|lease| lease.metadata());
    let servers: Vec<_> = servers.filter(|meta| meta.labels().key(IDENTITY.0) == IDENTITY.1).collect();
    if servers.iter().any(|meta| meta.annotations().key(PUBLISHED).is_set()) {
        return None;
    }
    let known = servers.iter().filter_map(|meta| meta.annotations().key(KNOWN_AS).filled());
    let known: Vec<&str> = known.collect();
    let first = known.first()?;
    let (what, remedy) = reason(first)?;
    let cause = format!(
        "no API server is an endpoint of the Service, so pods do not reach the API: {first} is {what}"
    );
    let finding = Finding::new(ObjectRef::to(service), Trouble::ApiServerUnpublished, cause)
        .since(service.metadata().creation_timestamp().text())
        .evidence("EndpointSlices of the Service", "none")
        .evidence("addresses of the API servers in their Leases", known.join(", "))
        .remedy(remedy);
    Some(finding)
}

/// Why an address of a server cannot be an endpoint, and what helps; nothing when it can.
fn reason(address: &str) -> Option<(&'static str, &'static str)> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical().is_loopback() => Some((
            "a loopback address",
            "start the server with --advertise ADDRESS, an address of its machine, and with a --bind that listens there, such as \
             the default 0.0.0.0:6443",
        )),
        Ok(_) => None,
        Err(_) => Some((
            "a name, and endpoints are addresses",
            "start the server with --bind ADDRESS:PORT, an address of its machine, or with --advertise ADDRESS and the name in \
             --tls-san",
        )),
    }
}
