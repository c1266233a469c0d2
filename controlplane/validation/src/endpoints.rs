//! Field rules of Endpoints and EndpointSlices.

use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use super::names::{canonical_ip, is_old_ip, new_ip};
use coracle_fields::core::v1::Endpoints;
use coracle_fields::discovery::v1::{EndpointHints, EndpointPort, EndpointSlice};
use coracle_fields::{List, Map, Schema, Text};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, label_value, port_number, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

/// The zone of an endpoint has a field of its own.
const ZONE: &str = "topology.kubernetes.io/zone";

/// An address that traffic can be sent to.
pub(super) fn usable_address(field: &Field<'_, Text>, address: IpAddr) {
    // An IPv4 address in the clothes of IPv6 leads to the same place.
    let address = address.to_canonical();
    if address.is_unspecified() {
        field.invalid(format!("may not be unspecified ({})", field.text()));
    }
    if address.is_loopback() {
        field.invalid("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (local, multicast) = match address {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    if local {
        field.invalid("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        field.invalid("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Endpoints.
pub fn endpoints(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Endpoints>(object, errors, |root| {
        for subset in root.subsets().items() {
            let lists = [subset.addresses(), subset.not_ready_addresses()];
            if lists.iter().all(|list| list.is_empty()) {
                subset.required("must specify `addresses` or `notReadyAddresses`");
            }
            for address in lists.iter().flat_map(|list| list.items()) {
                if let Some(ip) = is_old_ip(&address.ip()) {
                    usable_address(&address.ip(), ip);
                }
                if !address.hostname().is_empty() {
                    address.hostname().follows(dns1123_label);
                }
                if address.node_name().is_set() {
                    address.node_name().follows(dns1123_subdomain);
                }
            }
            let named = subset.ports().len() > 1;
            for port in subset.ports().items() {
                if !port.name().is_empty() {
                    port.name().follows(dns1123_label);
                } else if named {
                    port.name().required("");
                }
                let number = port.view().port().or(0);
                for message in port_number(number) {
                    port.port().invalid_as(number, message);
                }
                protocol(&port.protocol(), &port.app_protocol());
            }
        }
    });
}

fn protocol(protocol: &Field<'_, Text>, application: &Field<'_, Text>) {
    protocol.required_one_of(&["SCTP", "TCP", "UDP"]);
    if application.is_set() {
        application.follows(qualified_name);
    }
}

/// An EndpointSlice.
pub fn slice(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<EndpointSlice>(object, errors, |root| {
        let kind = root.address_type();
        kind.required_one_of(&["FQDN", "IPv4", "IPv6"]);
        slice_ports(&root.ports());
        let list = root.endpoints();
        if list.len() > 1000 {
            return list.too_many(1000);
        }
        for endpoint in list.items() {
            addresses(&endpoint.addresses(), kind.text());
            if endpoint.node_name().is_set() {
                endpoint.node_name().follows(dns1123_subdomain);
            }
            topology(&endpoint.deprecated_topology());
            if endpoint.hostname().is_set() {
                endpoint.hostname().follows(dns1123_label);
            }
            hints(&endpoint.hints());
        }
    });
}

fn slice_ports(ports: &Field<'_, List<EndpointPort>>) {
    if ports.len() > 20_000 {
        return ports.too_many(20_000);
    }
    let mut names = HashSet::new();
    for port in ports.items() {
        let name = port.name();
        if !name.is_empty() {
            name.follows(dns1123_label);
        }
        if !names.insert(name.text()) {
            name.duplicate();
        }
        protocol(&port.protocol(), &port.app_protocol());
    }
}

/// Labels of the older API.
fn topology(labels: &Field<'_, Map<Text>>) {
    if labels.len() > 16 {
        labels.too_many(16);
    }
    meta::labels(labels);
    let zone = labels.key(ZONE);
    if zone.is_set() {
        let text = "Internal error: reserved key was not removed in conversion".to_owned();
        zone.report(FieldError::new("InternalError", zone.path(), text));
    }
}

fn hints(hints: &Field<'_, EndpointHints>) {
    let (zones, nodes) = (hints.for_zones(), hints.for_nodes());
    if zones.len() > 8 {
        return zones.too_many(8);
    }
    unique_names(zones.items().map(|zone| zone.name()), label_value);
    if nodes.len() > 8 {
        return nodes.too_many(8);
    }
    unique_names(nodes.items().map(|node| node.name()), dns1123_subdomain);
}

fn unique_names<'a>(names: impl Iterator<Item = Field<'a, Text>>, rule: fn(&str) -> Vec<String>) {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name.text()) {
            name.duplicate();
        }
        name.follows(rule);
    }
}

/// A name of at least two labels, which may end in a dot. Only the first error is reported.
fn domain_name(field: &Field<'_, Text>) {
    if !field.has_text("") {
        return;
    }
    let name = field.text().strip_suffix('.').unwrap_or(field.text());
    let wrong = dns1123_subdomain(name);
    if !wrong.is_empty() {
        return field.invalid_as(name, wrong.join(","));
    }
    if !name.contains('.') {
        return field.invalid_as(name, "should be a domain with at least two segments separated by dots");
    }
    let mut labels = name.split('.').map(|label| (label, dns1123_label(label)));
    if let Some((label, wrong)) = labels.find(|(_, wrong)| !wrong.is_empty()) {
        field.invalid_as(label, wrong.join(","));
    }
}

fn addresses(list: &Field<'_, List<Text>>, kind: &str) {
    if list.is_empty() {
        return list.required("must contain at least 1 address");
    }
    if list.len() > 100 {
        list.too_many(100);
    }
    for address in list.items() {
        if kind == "FQDN" {
            domain_name(&address);
            continue;
        }
        let Some(ip) = is_old_ip(&address) else { continue };
        if matches!(kind, "IPv4" | "IPv6") && (kind == "IPv4") != ip.is_ipv4() {
            list.invalid_as(address.text(), format!("must be an {kind} address"));
        }
        usable_address(&address, ip);
    }
}

/// New Endpoints.
pub fn new_endpoints(object: &Value, errors: &mut Vec<FieldError>) {
    endpoints_update(object, &Value::Null, errors);
}

/// Addresses that change with nothing else follow the rules of new ones.
pub fn endpoints_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = Endpoints::of(old).subsets();
    walk_as::<Endpoints>(new, errors, |root| {
        if root.view().subsets().same_as(before) {
            return;
        }
        for subset in root.subsets().items() {
            let lists = [subset.addresses(), subset.not_ready_addresses()];
            lists.iter().flat_map(|list| list.items()).for_each(|address| new_ip(&address.ip(), &[]));
        }
    });
}

/// A new EndpointSlice.
pub fn new_slice(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<EndpointSlice>(object, errors, |root| new_addresses(&root));
}

fn new_addresses(slice: &Field<'_, EndpointSlice>) {
    let kind = slice.view().address_type().text();
    for address in slice.endpoints().items().flat_map(|endpoint| endpoint.addresses().items()) {
        match kind {
            "IPv4" => new_ip(&address, &[]),
            "IPv6" => canonical_ip(&address),
            _ => {}
        }
    }
}

/// The family of a slice never changes.
pub fn slice_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = EndpointSlice::of(old);
    walk_as::<EndpointSlice>(new, errors, |root| {
        if !root.view().endpoints().same_as(old.endpoints()) {
            new_addresses(&root);
        }
        root.address_type().immutable(old.address_type());
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn endpoints_of_slices() {
        let with = |endpoint: Value| {
            let mut endpoint = endpoint;
            if endpoint.get("addresses").is_none() {
                endpoint["addresses"] = json!(["a.b."]);
            }
            errors(slice, &json!({"addressType": "FQDN", "endpoints": [endpoint]}))
        };
        let zones = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
        assert_eq!(with(json!({"hints": {"forZones": zones(&["a", "b"])}})), [""; 0]);
        let at = "endpoints[0]";
        for (endpoint, wrong) in [
            (
                json!({"addresses": ["a"]}),
                "addresses[0]: Invalid value: \"a\": should be a domain with at least two segments separated by dots",
            ),
            (json!({"addresses": [""]}), "addresses[0]: Required value"),
            (
                json!({"hints": {"forZones": zones(&["a", "a"])}}),
                "hints.forZones[1].name: Duplicate value: \"a\"",
            ),
            (
                json!({"hints": {"forZones": zones(&["a"; 9])}}),
                "hints.forZones: Too many: 9: must have at most 8 items",
            ),
            (
                json!({"deprecatedTopology": {ZONE: "a"}}),
                "deprecatedTopology[topology.kubernetes.io/zone]: Internal error: reserved key was not removed in conversion",
            ),
        ] {
            assert_eq!(with(endpoint.clone()), [format!("{at}.{wrong}")], "{endpoint}");
        }
        assert_eq!(with(json!({"hints": {"forZones": zones(&["a b"])}})).len(), 1);
        assert_eq!(with(json!({"hints": {"forNodes": zones(&["A"])}})).len(), 1);
    }

    #[test]
    fn slices_and_endpoints() {
        let port = json!([{"name": "", "port": 80, "protocol": "TCP"}]);
        let with = |kind: &str, address: &str| json!({"addressType": kind, "ports": port, "endpoints": [{"addresses": [address]}]});
        assert_eq!(errors(slice, &with("IPv4", "10.1.1.1")), [""; 0]);
        assert_eq!(
            errors(slice, &with("IPv6", "10.1.1.1")),
            ["endpoints[0].addresses: Invalid value: \"10.1.1.1\": must be an IPv6 address"]
        );
        assert_eq!(
            errors(slice, &with("IPv4", "169.254.1.1")),
            [
                "endpoints[0].addresses[0]: Invalid value: \"169.254.1.1\": may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            ]
        );
        assert_eq!(
            errors(endpoints, &json!({"subsets": [{"ports": [{"port": 80, "protocol": "TCP"}]}]})),
            ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]
        );
    }
}
