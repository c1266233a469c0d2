//! Field rules of Endpoints and EndpointSlices.

use super::field_errors::unique;
use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::names::{canonical_ip, is_old_ip, new_ip};
use coracle_fields::core::v1::Endpoints;
use coracle_fields::discovery::v1::EndpointSlice;
use coracle_fields::{List, Schema, Text};
use coracle_proto::names::{dns1123_label, dns1123_subdomain, port_number, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::Value;
use std::collections::HashSet;
use std::net::IpAddr;

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
        let ports = root.ports();
        if ports.len() > 20_000 {
            ports.too_many(20_000);
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
        let list = root.endpoints();
        if list.len() > 1000 {
            list.too_many(1000);
        }
        for endpoint in list.items() {
            addresses(&endpoint.addresses(), kind.text());
            if endpoint.node_name().is_set() {
                endpoint.node_name().follows(dns1123_subdomain);
            }
            if endpoint.hostname().is_set() {
                endpoint.hostname().follows(dns1123_label);
            }
            let (zones, nodes) = (endpoint.hints().for_zones(), endpoint.hints().for_nodes());
            if zones.len() > 8 {
                zones.too_many(8);
            }
            unique(zones.items().map(|zone| zone.name()));
            if nodes.len() > 8 {
                nodes.too_many(8);
            }
            unique(nodes.items().map(|node| node.name()));
        }
    });
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
            address.follows(dns1123_subdomain);
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
