//! What is wrong between a Service and the IPAddress of its cluster IP. Pure.

use super::is_external_name;
use crate::nodes::ranges::Range;
use coracle_fields::core::v1::Service;
use coracle_fields::meta::PartialObjectMetadata;
use coracle_fields::networking::v1::{IPAddress, ServiceCIDR};
use coracle_informer::informer::Name;
use coracle_informer::time;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use std::net::IpAddr;
use std::sync::Arc;

const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// How long, in seconds, an address may wait for its Service: as long as a request may last.
pub(super) const GRACE: i64 = 60;
/// How long, in seconds, a refused creation of a Service that is there may take to give its address back.
const ROLLBACK: i64 = 5;

/// The cluster IPs of a Service.
pub(super) fn addresses(service: &Object) -> Vec<String> {
    if is_external_name(service) {
        return Vec::new();
    }
    let doc = service.doc();
    let spec = doc.view::<Service>().spec();
    let mut all: Vec<String> = spec.cluster_ips().texts().map(str::to_owned).collect();
    all.retain(|ip| !ip.is_empty() && ip != "None");
    all
}

/// Whether an address, as an IPAddress names it, is one of a Service's.
pub(super) fn uses(service: &Object, address: &str) -> bool {
    let address = address.parse::<IpAddr>();
    addresses(service).iter().any(|ip| address.as_ref().is_ok_and(|address| ip.parse() == Ok(*address)))
}

/// The ranges of a ServiceCIDR.
pub(super) fn ranges(object: &Object) -> Vec<Range> {
    let doc = object.doc();
    doc.view::<ServiceCIDR>().spec().cidrs().texts().filter_map(|text| text.parse().ok()).collect()
}

/// Whether a ServiceCIDR contains the address; none is known before the server has written its own.
pub(super) fn is_within(all: &[Arc<Object>], ip: IpAddr) -> bool {
    let address = Range::of_address(ip);
    all.is_empty() || all.iter().flat_map(|object| ranges(object)).any(|range| range.contains(&address))
}

/// The labels of an address of a Service.
pub(super) fn labels(ip: IpAddr) -> [(&'static str, &'static str); 2] {
    [(FAMILY, if ip.is_ipv4() { "IPv4" } else { "IPv6" }), MANAGED_BY]
}

/// What an IPAddress says.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The Service that it refers to.
    pub(super) owner: Option<Name>,
    /// It was made for a Service.
    pub(super) is_managed: bool,
    family: Option<String>,
    /// The reference as a message shows it.
    reference: String,
}

impl Allocation {
    pub(super) fn of(address: &Object) -> Self {
        let doc = address.doc();
        let parent = doc.view::<IPAddress>().spec().parent_ref();
        let (namespace, name) = (parent.namespace().text(), parent.name().text());
        let of_service = parent.group().text().is_empty() && parent.resource() == "services";
        let label = |key: &str| address.meta.labels.get(key);
        Self {
            owner: of_service.then(|| Name::new(namespace, name)),
            is_managed: label(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1),
            family: label(FAMILY).map(|family| family.to_string()),
            reference: format!(
                "&{{{} {} {namespace} {name}}}",
                parent.group().text(),
                parent.resource().text()
            ),
        }
    }

    /// Whether it is as the server makes it for a Service.
    pub(super) fn is_of(&self, service: &Name, ip: IpAddr) -> bool {
        self.owner.as_ref() == Some(service) && self.has_labels(ip)
    }

    fn has_labels(&self, ip: IpAddr) -> bool {
        self.is_managed && self.family.as_deref() == Some(labels(ip)[0].1)
    }
}

/// What is wrong with the IPAddress of a cluster IP.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// There is none.
    Missing,
    /// It refers to something else, or to a Service that is gone.
    WrongReference,
    /// It refers to another Service that has the same address.
    Duplicate,
    /// It refers to another Service that does not use it.
    Leaked,
    /// Its labels are not those of the server.
    Labels,
}

/// `other` is the Service to which the IPAddress refers when it is not this one.
pub(super) fn flaw(
    allocation: Option<&Allocation>,
    service: &Name,
    ip: IpAddr,
    other: Option<&Object>,
) -> Option<Flaw> {
    let Some(allocation) = allocation else { return Some(Flaw::Missing) };
    if allocation.owner.as_ref() == Some(service) {
        return (!allocation.has_labels(ip)).then_some(Flaw::Labels);
    }
    Some(match other {
        None => Flaw::WrongReference,
        Some(other) if uses(other, &ip.to_string()) => Flaw::Duplicate,
        Some(_) => Flaw::Leaked,
    })
}

/// Whether an IPAddress that was made for a Service is nobody's.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leak {
    /// It is in use.
    None,
    /// Its Service may be about to be stored; to be asked again then.
    Unknown(Timestamp),
    /// Why, as reason and message of an Event.
    Sure(&'static str, String),
}

/// `service` is the one that the IPAddress refers to, if it is there.
pub(super) fn leak(
    address: &Object,
    allocation: &Allocation,
    service: Option<&Object>,
    now: Timestamp,
) -> Leak {
    let ip = &address.meta.name;
    let Some(owner) = &allocation.owner else {
        let message = format!(
            "IPAddress {ip} appears to have been modified, not referencing a Service {}: cleaning up",
            allocation.reference
        );
        return Leak::Sure("IPAddressNotAllocated", message);
    };
    let made = made_at(address);
    let until = |seconds| Some(time::after(made, seconds)).filter(|until| *until > now);
    let Some(service) = service else {
        return until(GRACE).map_or_else(
            || {
                let text = format!("{}/{} appears to have leaked: cleaning up", owner.namespace, owner.name);
                Leak::Sure("IPAddressNotAllocated", format!("IPAddress: {ip} for Service {text}"))
            },
            Leak::Unknown,
        );
    };
    if uses(service, ip) {
        return Leak::None;
    }
    if let Some(until) = until(GRACE).filter(|_| is_external_name(service)) {
        return Leak::Unknown(until);
    }
    let service_made = made_at(service);
    if let Some(until) = until(ROLLBACK).filter(|_| made > service_made) {
        return Leak::Unknown(until);
    }
    let text = format!("{}/{} has a wrong reference; cleaning up", owner.namespace, owner.name);
    Leak::Sure("IPAddressWrongReference", format!("IPAddress: {ip} for Service {text}"))
}

fn made_at(object: &Object) -> Timestamp {
    let doc = object.doc();
    let at = doc.view::<PartialObjectMetadata>().metadata().creation_timestamp();
    time::parse(at.get()).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::{Value, json};

    fn address(labels: Value, parent: Value) -> Arc<Object> {
        object(
            json!({"metadata": {"name": "10.96.0.7", "labels": labels, "creationTimestamp": "2026-01-01T00:01:00Z"},
            "spec": {"parentRef": parent}}),
        )
    }

    fn own_labels() -> Value {
        json!({"ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"})
    }

    fn of_service(name: &str) -> Value {
        json!({"resource": "services", "namespace": "default", "name": name})
    }

    fn service(name: &str, kind: &str, ips: Value) -> Arc<Object> {
        object(
            json!({"metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"type": kind, "clusterIPs": ips}}),
        )
    }

    #[test]
    fn the_address_of_a_service_refers_to_it() {
        let same = service("other", "ClusterIP", json!(["10.96.0.7"]));
        let another = service("other", "ClusterIP", json!(["10.96.0.8"]));
        let gateway = json!({"group": "gateway.networking.k8s.io", "resource": "gateways", "name": "web"});
        for (there, other, want) in [
            (None, None, Some(Flaw::Missing)),
            (Some(address(own_labels(), of_service("web"))), None, None),
            (Some(address(json!({}), of_service("web"))), None, Some(Flaw::Labels)),
            (Some(address(own_labels(), gateway)), None, Some(Flaw::WrongReference)),
            (Some(address(own_labels(), of_service("other"))), None, Some(Flaw::WrongReference)),
            (Some(address(own_labels(), of_service("other"))), Some(same), Some(Flaw::Duplicate)),
            (Some(address(own_labels(), of_service("other"))), Some(another), Some(Flaw::Leaked)),
        ] {
            let allocation = there.as_ref().map(|there| Allocation::of(there));
            let ip = "10.96.0.7".parse().unwrap();
            let found = flaw(allocation.as_ref(), &Name::new("default", "web"), ip, other.as_deref());
            assert_eq!(found, want, "{there:?}");
        }
    }

    #[test]
    fn an_address_waits_a_minute_for_its_service() {
        let own = address(own_labels(), of_service("web"));
        let at = |time: &str| format!("2026-01-01T00:{time}Z").parse::<Timestamp>().unwrap();
        let external = service("web", "ExternalName", json!([]));
        let with = |ip: &str| Some(service("web", "ClusterIP", json!([ip])));
        for (service, now, want) in [
            (None, "01:30", Leak::Unknown(at("02:00"))),
            (
                None,
                "02:00",
                Leak::Sure(
                    "IPAddressNotAllocated",
                    "IPAddress: 10.96.0.7 for Service default/web appears to have leaked: cleaning up".into(),
                ),
            ),
            (with("10.96.0.7"), "02:00", Leak::None),
            (Some(external), "01:30", Leak::Unknown(at("02:00"))),
            (with("10.96.0.8"), "01:02", Leak::Unknown(at("01:05"))),
            (
                with("10.96.0.8"),
                "01:06",
                Leak::Sure(
                    "IPAddressWrongReference",
                    "IPAddress: 10.96.0.7 for Service default/web has a wrong reference; cleaning up".into(),
                ),
            ),
        ] {
            assert_eq!(leak(&own, &Allocation::of(&own), service.as_deref(), at(now)), want, "{now}");
        }
        let other =
            address(own_labels(), json!({"resource": "gateways", "namespace": "default", "name": "web"}));
        let message = "IPAddress 10.96.0.7 appears to have been modified, not referencing a Service \
                       &{ gateways default web}: cleaning up";
        let want = Leak::Sure("IPAddressNotAllocated", message.into());
        assert_eq!(leak(&other, &Allocation::of(&other), None, at("01:00")), want);
    }

    #[test]
    fn an_address_is_in_the_range_of_a_service_cidr() {
        let range = object(
            json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16", "fd00::/112"]}}),
        );
        for (ip, want) in [("10.96.0.7", true), ("10.97.0.7", false), ("fd00::7", true), ("fd01::7", false)] {
            assert_eq!(is_within(std::slice::from_ref(&range), ip.parse().unwrap()), want, "{ip}");
        }
        assert!(is_within(&[], "10.97.0.7".parse().unwrap()), "no range is known yet");
    }
}
