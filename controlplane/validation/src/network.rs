//! Field rules of Ingresses, network policies and service address ranges.

use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use super::names::{canonical_cidr, domain_prefixed_path, is_old_cidr, network, new_cidr};
use super::pods;
use super::services::balancer_point;
use coracle_fields::networking::v1::{
    HTTPIngressPath, IPAddress, IPBlock, Ingress, IngressBackend, IngressClass, NetworkPolicy,
    NetworkPolicyPeer, NetworkPolicyPort, ServiceCIDR,
};
use coracle_fields::{Schema, Text};
use coracle_proto::names::{
    dns1123_label, dns1123_subdomain, path_segment, port_name, port_number, sloppy_address,
    wildcard_dns1123_subdomain,
};
use coracle_proto::status::FieldError;
use serde_json::Value;

const NOT_AN_ADDRESS: &str = "must be a DNS name, not an IP address";
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// An Ingress.
pub fn ingress(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Ingress>(object, errors, |root| {
        let spec = root.spec();
        let (rules, backend) = (spec.rules(), spec.default_backend());
        if rules.is_empty() && !backend.is_set() {
            spec.with(rules.value).invalid("either `defaultBackend` or `rules` must be specified");
        }
        if backend.is_set() {
            ingress_backend(&backend);
        }
        for rule in rules.items() {
            host(&rule.host(), true);
            let http = rule.http();
            if http.is_set() {
                if http.paths().is_empty() {
                    http.paths().required("");
                }
                http.paths().items().for_each(|path| ingress_path(&path));
            }
        }
        for tls in spec.tls().items() {
            tls.hosts().items().for_each(|name| host(&name, false));
            if !tls.secret_name().is_empty() {
                tls.secret_name().follows(dns1123_subdomain);
            }
        }
        if spec.ingress_class_name().is_set() {
            spec.ingress_class_name().follows(dns1123_subdomain);
        }
    });
}

/// A new Ingress says its class in one way.
pub fn new_ingress(object: &Value, errors: &mut Vec<FieldError>) {
    let ingress = Ingress::of(object);
    let annotated = ingress.metadata().annotations().key(CLASS_ANNOTATION);
    let class = ingress.spec().ingress_class_name();
    if annotated.is_set() && class.is_set() && !annotated.same_as(class) {
        errors.push(FieldError::invalid(
            format!("annotations.{CLASS_ANNOTATION}"),
            &annotated.as_value(),
            "must match `ingressClassName` when both are specified",
        ));
    }
}

fn host(host: &Field<'_, Text>, no_address: bool) {
    if host.text().is_empty() && no_address {
        return;
    }
    if no_address && sloppy_address(host.text()).is_some() {
        host.invalid(NOT_AN_ADDRESS);
    }
    host.follows(if host.text().contains('*') { wildcard_dns1123_subdomain } else { dns1123_subdomain });
}

fn ingress_path(path: &Field<'_, HTTPIngressPath>) {
    let (kind, text) = (path.path_type(), path.path());
    match kind.text() {
        "" => return kind.required("pathType must be specified"),
        "Exact" | "Prefix" => {
            if !text.text().starts_with('/') {
                text.invalid_as(text.text(), "must be an absolute path");
            }
            for bad in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.text().contains(bad) {
                    text.invalid(format!("must not contain '{bad}'"));
                }
            }
            for bad in ["/..", "/."] {
                if text.text().ends_with(bad) {
                    text.invalid(format!("cannot end with '{bad}'"));
                }
            }
        }
        "ImplementationSpecific" => {
            if !text.text().is_empty() && !text.text().starts_with('/') {
                text.invalid("must be an absolute path");
            }
        }
        _ => kind.unsupported(&["Exact", "ImplementationSpecific", "Prefix"]),
    }
    ingress_backend(&path.backend());
}

fn ingress_backend(backend: &Field<'_, IngressBackend>) {
    let (resource, service) = (backend.resource(), backend.service());
    match (resource.is_set(), service.is_set()) {
        (true, true) => backend.invalid_as("", "cannot set both resource and service backends"),
        (true, false) => {
            if resource.api_group().is_set() {
                resource.api_group().follows(dns1123_subdomain);
            }
            resource.kind().named(path_segment);
            resource.name().named(path_segment);
        }
        (false, true) => {
            service.name().named(dns1123_label);
            let (name, number) = (service.port().name(), service.port().number());
            match (!name.is_empty(), !number.is_empty()) {
                (true, true) => backend.invalid_as("", "cannot set both port name & port number"),
                (true, false) => name.follows(port_name),
                (false, true) => number.all_good(port_number(number.or(0))),
                (false, false) => backend.required("port name or number is required"),
            }
        }
        (false, false) => backend.invalid_as("", "resource or service backend is required"),
    }
}

/// A change of an Ingress' status.
pub fn ingress_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = Ingress::of(old).status().load_balancer().ingress();
    let before: Vec<&str> = before.items().map(|point| point.ip().text()).collect();
    walk_as::<Ingress>(new, errors, |root| {
        let points = root.status().load_balancer().ingress();
        points.items().for_each(|point| balancer_point(&point.ip(), &point.hostname(), &before));
    });
}

/// An IngressClass.
pub fn ingress_class(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<IngressClass>(object, errors, |root| {
        let spec = root.spec();
        let controller = spec.controller();
        if controller.text().len() > 250 {
            controller.too_long(250);
        }
        domain_prefixed_path(&controller);
        let parameters = spec.parameters();
        if !parameters.is_set() {
            return;
        }
        if parameters.api_group().is_set() {
            parameters.api_group().follows(dns1123_subdomain);
        }
        parameters.kind().named(path_segment);
        parameters.name().named(path_segment);
        let namespace = parameters.namespace();
        match parameters.view().scope().text() {
            "" => parameters.scope().required(""),
            "Namespace" if !namespace.is_set() => {
                namespace.required("`parameters.scope` is set to 'Namespace'")
            }
            "Namespace" => namespace.follows(dns1123_label),
            "Cluster" => {
                if namespace.is_set() {
                    namespace.forbidden("`parameters.scope` is set to 'Cluster'");
                }
            }
            _ => parameters.scope().unsupported(&["Cluster", "Namespace"]),
        }
    });
}

/// The controller of an IngressClass never changes.
pub fn ingress_class_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = IngressClass::of(old);
    walk_as::<IngressClass>(new, errors, |root| {
        root.spec().controller().immutable(old.spec().controller());
    });
}

/// A NetworkPolicy.
pub fn network_policy(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<NetworkPolicy>(object, errors, |root| {
        let spec = root.spec();
        meta::selector(&spec.pod_selector());
        for rule in spec.ingress().items() {
            rule.ports().items().for_each(|port| policy_port(&port));
            rule.from().items().for_each(|peer| policy_peer(&peer));
        }
        for rule in spec.egress().items() {
            rule.ports().items().for_each(|port| policy_port(&port));
            rule.to().items().for_each(|peer| policy_peer(&peer));
        }
        let kinds = spec.policy_types();
        if kinds.len() > 2 {
            return kinds.invalid("may not specify more than two policyTypes");
        }
        kinds.items().for_each(|kind| kind.one_of(&["Ingress", "Egress"]));
    });
}

/// A new NetworkPolicy.
pub fn new_network_policy(object: &Value, errors: &mut Vec<FieldError>) {
    network_policy_update(object, &Value::Null, errors);
}

/// Ranges that a NetworkPolicy had before stay as they are, wherever they are now.
pub fn network_policy_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = NetworkPolicy::of(old).spec();
    let from = old.ingress().items().flat_map(|rule| rule.from().items());
    let peers = from.chain(old.egress().items().flat_map(|rule| rule.to().items()));
    let blocks = peers.map(|peer| peer.ip_block());
    let before: Vec<&str> =
        blocks.flat_map(|block| std::iter::once(block.cidr().text()).chain(block.except().texts())).collect();
    walk_as::<NetworkPolicy>(new, errors, |root| {
        let check = |peer: Field<'_, NetworkPolicyPeer>| {
            new_cidr(&peer.ip_block().cidr(), &before);
            peer.ip_block().except().items().for_each(|except| new_cidr(&except, &before));
        };
        root.spec().ingress().items().flat_map(|rule| rule.from().items()).for_each(check);
        root.spec().egress().items().flat_map(|rule| rule.to().items()).for_each(check);
    });
}

fn policy_port(port: &Field<'_, NetworkPolicyPort>) {
    if port.protocol().is_set() {
        port.protocol().one_of(&["TCP", "UDP", "SCTP"]);
    }
    let (number, end) = (port.port(), port.end_port());
    if number.is_set() {
        pods::port_or_name(&number);
    }
    if !end.is_set() {
        return;
    }
    match number.value {
        Value::Null => end.invalid("may not be specified when `port` is not specified"),
        Value::String(_) => end.invalid("may not be specified when `port` is non-numeric"),
        first => {
            if end.int() < first.as_i64() {
                end.with(first).invalid("must be greater than or equal to `port`");
            }
            end.all_good(port_number(end.or(0)));
        }
    }
}

fn policy_peer(peer: &Field<'_, NetworkPolicyPeer>) {
    let selectors = [peer.pod_selector(), peer.namespace_selector()];
    for selector in &selectors {
        meta::selector(selector);
    }
    let selected = selectors.iter().filter(|selector| selector.is_set()).count();
    let block = peer.ip_block();
    if block.is_set() {
        ip_block(&block);
    }
    if selected == 0 && !block.is_set() {
        peer.required("must specify a peer");
    } else if selected > 0 && block.is_set() {
        peer.forbidden("may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Field<'_, IPBlock>) {
    let whole = block.cidr();
    if !whole.has_text("") {
        return;
    }
    let Some((address, bits)) = is_old_cidr(&whole) else { return };
    for except in block.except().items() {
        let Some((inner, inner_bits)) = is_old_cidr(&except) else { continue };
        let inside = inner.is_ipv4() == address.is_ipv4() && network(inner, bits) == network(address, bits);
        if !inside || bits >= inner_bits {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}

/// A ServiceCIDR.
pub fn service_cidr(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ServiceCIDR>(object, errors, |root| {
        let list = root.spec().cidrs();
        if list.is_empty() {
            return list.required("at least one CIDR required");
        }
        if list.len() > 2 {
            return list.with(root.spec().value).invalid("may only hold up to 2 values");
        }
        let families: Vec<bool> = list
            .items()
            .filter_map(|cidr| is_old_cidr(&cidr))
            .map(|(address, _)| address.is_ipv4())
            .collect();
        if families.len() == 2 && families[0] == families[1] {
            list.invalid(
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
            );
        }
    });
}

/// A new ServiceCIDR.
pub fn new_service_cidr(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<ServiceCIDR>(object, errors, |root| {
        root.spec().cidrs().items().for_each(|cidr| canonical_cidr(&cidr));
    });
}

/// Ranges only grow a second family.
pub fn service_cidr_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = ServiceCIDR::of(old);
    walk_as::<ServiceCIDR>(new, errors, |root| {
        let list = root.spec().cidrs();
        let before = old.spec().cidrs();
        if list.len() < before.len() {
            list.invalid("field is immutable");
        }
        for (now, before) in list.items().zip(before.items()) {
            now.immutable(before);
        }
        if list.len() > before.len() {
            list.items().for_each(|cidr| canonical_cidr(&cidr));
        }
    });
}

/// An IPAddress.
pub fn ip_address(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<IPAddress>(object, errors, |root| {
        let spec = root.spec();
        let parent = spec.parent_ref();
        if !parent.is_set() {
            return parent.required("");
        }
        let group = parent.group();
        if !group.is_empty() {
            group.follows(dns1123_subdomain);
        }
        parent.resource().named(path_segment);
        parent.name().named(path_segment);
        let namespace = parent.namespace();
        if !namespace.is_empty() {
            namespace.follows(path_segment);
        }
    });
}

/// Who has an address never changes.
pub fn ip_address_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = IPAddress::of(old);
    walk_as::<IPAddress>(new, errors, |root| {
        root.spec().parent_ref().immutable(old.spec().parent_ref());
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::errors;
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_have_a_parent() {
        let of = |parent: serde_json::Value| json!({"spec": {"parentRef": parent}});
        assert_eq!(
            errors(ip_address, &of(json!({"resource": "services", "name": "a", "namespace": "n"}))),
            [""; 0]
        );
        assert_eq!(
            errors(ip_address, &of(json!({"resource": ""}))),
            ["spec.parentRef.resource: Required value", "spec.parentRef.name: Required value"]
        );
    }

    #[test]
    fn ingresses() {
        let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
        let with = |path: Value| json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [path]}}]}});
        let good = with(json!({"path": "/", "pathType": "Prefix", "backend": backend}));
        assert_eq!(errors(ingress, &good), [""; 0]);
        let cases = [
            (
                json!({"path": "/", "backend": backend}),
                "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified",
            ),
            (
                json!({"path": "x", "pathType": "Exact", "backend": backend}),
                "spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path",
            ),
            (
                json!({"path": "/", "pathType": "Exact", "backend": {"service": {"name": "s"}}}),
                "spec.rules[0].http.paths[0].backend: Required value: port name or number is required",
            ),
            (
                json!({"path": "/", "pathType": "Exact", "backend": {}}),
                "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
            ),
        ];
        for (path, expected) in cases {
            assert_eq!(errors(ingress, &with(path)), [expected]);
        }
        assert_eq!(
            errors(ingress, &json!({"spec": {}})),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
    }

    #[test]
    fn a_new_ingress_names_one_class() {
        let with = |annotation: Value, class: Value| json!({"metadata": {"annotations": {CLASS_ANNOTATION: annotation}}, "spec": {"ingressClassName": class}});
        assert_eq!(errors(new_ingress, &with(json!("a"), json!("a"))), [""; 0]);
        for (annotation, class) in [(json!("a"), json!("b")), (json!(1), json!(2))] {
            let said = errors(new_ingress, &with(annotation, class));
            assert!(said[0].ends_with("must match `ingressClassName` when both are specified"), "{said:?}");
        }
    }

    #[test]
    fn network_policies() {
        let with = |peer: Value| json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"from": [peer]}]}});
        assert_eq!(
            errors(
                network_policy,
                &with(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}))
            ),
            [""; 0]
        );
        let cases = [
            (json!({}), "spec.ingress[0].from[0]: Required value: must specify a peer"),
            (
                json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
                "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
            ),
            (
                json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}),
                "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/9\": must be a strict subset of `cidr`",
            ),
            (
                json!({"ipBlock": {"cidr": "nope"}}),
                "spec.ingress[0].from[0].ipBlock.cidr: Invalid value: \"nope\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
        ];
        for (peer, expected) in cases {
            assert_eq!(errors(network_policy, &with(peer)), [expected]);
        }
    }
}
