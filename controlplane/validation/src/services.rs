//! Field rules of Services. Whether addresses and node ports are free and in the server's ranges is decided by
//! `actions/service_addresses.rs` of the API server; warnings are in `strategy/warnings.rs` of the table of kinds.

use super::endpoints::usable_address;
use super::field_ref::{Field, walk_as};
use super::field_rules::TextRules as _;
use super::meta;
use super::names::{is_cidr, is_old_cidr, is_old_ip, new_cidr, new_ip};
use coracle_fields::core::v1::{Service, ServicePort, ServiceSpec};
use coracle_fields::{List, Schema, Text, View};
use coracle_proto::names::{
    dns1123_label, dns1123_subdomain, port_name, port_number, qualified_name, sloppy_address,
};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::IpAddr;

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const FIXED: &str = "may not change once set";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

/// A Service.
pub fn service(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Service>(object, errors, |root| {
        let spec = root.spec();
        let kind = spec.view().type_().text();
        let headless = is_headless(root.view());
        topology(&root);
        if spec.ports().is_empty() && !headless && kind != "ExternalName" {
            spec.ports().required("");
        }
        by_type(&spec, kind, headless);
        ports(&spec.ports());
        meta::labels(&spec.selector());
        affinity(&spec);
        if kind != "ExternalName" {
            addresses(&spec, headless);
        }
        for address in spec.external_ips().items() {
            if let Some(ip) = is_old_ip(&address) {
                usable_address(&address, ip);
            }
        }
        spec.type_().required_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
        if kind == "ClusterIP" {
            for port in spec.ports().items().filter(|port| !port.node_port().is_empty()) {
                port.node_port().forbidden("may not be used when `type` is 'ClusterIP'");
            }
        }
        balancer(&spec, kind);
        if kind != "LoadBalancer" && spec.load_balancer_source_ranges().is_empty() {
            let ranges = root.metadata().annotations().key(SOURCE_RANGES);
            if ranges.is_set() {
                ranges.forbidden(ONLY_BALANCED);
            }
        }
        traffic(&spec, kind);
    });
}

/// The older annotation says the same as the newer one.
fn topology(service: &Field<'_, Service>) {
    let annotations = service.metadata().annotations();
    let (hints, mode) = (annotations.key(TOPOLOGY_HINTS), annotations.key(TOPOLOGY_MODE));
    if hints.is_set() && mode.is_set() && hints.text() != mode.text() {
        mode.invalid(format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"));
    }
}

/// Source ranges in the annotation, unless they are in the field or as they were.
fn annotated_ranges(service: &Field<'_, Service>, before: &str) {
    let annotation = service.metadata().annotations().key(SOURCE_RANGES);
    let text = annotation.text().trim();
    let is_used = service.spec().load_balancer_source_ranges().is_empty();
    if !is_used || text.is_empty() || annotation.text() == before {
        return;
    }
    for range in text.split(',') {
        let trimmed = json!(range.trim());
        is_cidr(&annotation.with(&trimmed).as_type());
    }
}

fn is_headless(service: View<'_, Service>) -> bool {
    let spec = service.spec();
    spec.cluster_ips().first().is_some_and(|ip| ip == "None") || spec.cluster_ip() == "None"
}

fn by_type(spec: &Field<'_, ServiceSpec>, kind: &str, headless: bool) {
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let first = json!("None");
            let at = format!("{}.clusterIPs[0]", spec.path());
            spec.report(FieldError::invalid(
                at,
                &first,
                &format!("may not be set to 'None' for {kind} services"),
            ));
        }
        "ExternalName" => {
            for field in
                [spec.cluster_ips().erased(), spec.ip_families().erased(), spec.ip_family_policy().erased()]
            {
                if !field.is_empty() {
                    field.forbidden("may not be set for ExternalName services");
                }
            }
            let name = spec.external_name();
            let host = name.text().strip_suffix('.').unwrap_or(name.text());
            if host.is_empty() {
                name.required("");
            } else {
                for message in dns1123_subdomain(host) {
                    name.invalid_as(host, message);
                }
            }
        }
        _ => {}
    }
}

fn ports(list: &Field<'_, List<ServicePort>>) {
    let named = list.len() > 1;
    let (mut names, mut node_ports, mut numbers) = (HashSet::new(), HashSet::new(), HashSet::new());
    for port in list.items() {
        let name = port.name();
        if !name.text().is_empty() {
            name.follows(dns1123_label);
            if !names.insert(name.text()) {
                name.duplicate();
            }
        } else if named {
            name.required("");
        }
        let number = port.view().port().or(0);
        for message in port_number(number) {
            port.port().invalid_as(number, message);
        }
        port.protocol().required_one_of(&["SCTP", "TCP", "UDP"]);
        let target = port.target_port();
        match target.value {
            Value::String(name) => target.all_good(port_name(name)),
            Value::Null => {}
            other => target.all_good(port_number(other.as_i64().unwrap_or_default())),
        }
        if port.app_protocol().is_set() {
            port.app_protocol().follows(qualified_name);
        }
    }
    for port in list.items() {
        let protocol = port.view().protocol().text();
        let node_port = port.view().node_port().or(0);
        if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            port.node_port().duplicate();
        }
    }
    for port in list.items() {
        let (protocol, number) = (port.view().protocol().text(), port.view().port().int());
        if !numbers.insert((protocol, number)) {
            port.with(&json!({"protocol": protocol, "port": number, "targetPort": 0})).duplicate();
        }
    }
}

fn affinity(spec: &Field<'_, ServiceSpec>) {
    spec.session_affinity().required_one_of(&["ClientIP", "None"]);
    let config = spec.session_affinity_config();
    match spec.view().session_affinity().text() {
        "ClientIP" => {
            let seconds = config.client_ip().timeout_seconds();
            if !seconds.is_set() {
                seconds.required("when session affinity type is ClientIP");
            } else if seconds.int().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
                seconds.invalid("must be greater than 0 and less than 86400");
            }
        }
        "None" if config.is_set() => config.forbidden("must not be set when session affinity is None"),
        _ => {}
    }
}

fn addresses(spec: &Field<'_, ServiceSpec>, headless: bool) {
    let (one, all) = (spec.view().cluster_ip().text(), spec.cluster_ips());
    if one.is_empty() {
        if !all.is_empty() {
            all.invalid("must be empty when `clusterIP` is not specified");
        }
    } else if all.is_empty() {
        all.required("");
    } else if all.items().next().is_some_and(|first| first.text() != one) {
        all.invalid("first value must match `clusterIP`");
    }
    let mut families = HashSet::new();
    for family in spec.ip_families().items() {
        family.one_of(&["IPv4", "IPv6"]);
        if !families.insert(family.text()) {
            family.duplicate();
        }
    }
    if spec.ip_family_policy().is_set() {
        spec.ip_family_policy().one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    }
    let mut ips = Vec::new();
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                all.invalid("'None' must be the first and only value");
            }
            continue;
        }
        ips.extend(is_old_ip(&address).map(|ip| (address, ip)));
    }
    if all.len() > 2 {
        all.invalid("may only hold up to 2 values");
    }
    if ips.len() > 1 && ips[0].1.is_ipv4() == ips[1].1.is_ipv4() {
        all.invalid("may specify no more than one IP for each IP family");
    }
    if headless {
        return;
    }
    for (index, ((address, ip), family)) in ips.iter().zip(spec.view().ip_families().items()).enumerate() {
        let wanted = family.text();
        let is = if IpAddr::is_ipv4(ip) { "IPv4" } else { "IPv6" };
        if matches!(wanted, "IPv4" | "IPv6") && wanted != is {
            address.invalid(format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

fn balancer(spec: &Field<'_, ServiceSpec>, kind: &str) {
    let balanced = kind == "LoadBalancer";
    let ranges = spec.load_balancer_source_ranges();
    if !ranges.is_empty() {
        if !balanced {
            spec.below("LoadBalancerSourceRanges").forbidden(ONLY_BALANCED);
        }
        each_source_range(spec, |range| {
            is_old_cidr(range);
        });
    }
    if spec.allocate_load_balancer_node_ports().is_set() && !balanced {
        spec.allocate_load_balancer_node_ports().forbidden(ONLY_BALANCED);
    }
    let class = spec.load_balancer_class();
    if class.is_set() {
        if balanced {
            class.follows(qualified_name);
        } else {
            class.forbidden(ONLY_BALANCED);
        }
    }
}

/// Source ranges may have spaces around them, and upstream reports them below a path of its own.
fn each_source_range(spec: &Field<'_, ServiceSpec>, check: impl Fn(&Field<'_, Text>)) {
    for (index, range) in spec.load_balancer_source_ranges().items().enumerate() {
        let trimmed = json!(range.text().trim());
        check(&spec.below(&format!("LoadBalancerSourceRanges[{index}]")).with(&trimmed).as_type());
    }
}

/// A new Service.
pub fn new_service(object: &Value, errors: &mut Vec<FieldError>) {
    walk_as::<Service>(object, errors, |root| {
        new_addresses(&root.spec(), Service::of(&Value::Null).spec());
        annotated_ranges(&root, "");
    });
}

/// Addresses and ranges that a Service did not have before follow the rules of new ones.
fn new_addresses(spec: &Field<'_, ServiceSpec>, before: View<'_, ServiceSpec>) {
    let known: Vec<&str> = before.cluster_ips().texts().chain(["None"]).collect();
    if spec.view().type_() != "ExternalName" {
        spec.cluster_ips().items().for_each(|address| new_ip(&address, &known));
    }
    let known: Vec<&str> = before.external_ips().texts().collect();
    spec.external_ips().items().for_each(|address| new_ip(&address, &known));
    let known: Vec<&str> = before.load_balancer_source_ranges().texts().map(str::trim).collect();
    each_source_range(spec, |range| new_cidr(range, &known));
}

fn traffic(spec: &Field<'_, ServiceSpec>, kind: &str) {
    let external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !spec.external_ips().is_empty());
    let policy = spec.external_traffic_policy();
    if external {
        policy.required_one_of(&["Cluster", "Local"]);
    } else if !policy.is_empty() {
        policy.invalid("may only be set for externally-accessible services");
    }
    let health = spec.health_check_node_port();
    let needs_health = kind == "LoadBalancer" && policy.text() == "Local";
    match health.or(0) {
        0 => {}
        number if needs_health => health.all_good(port_number(number)),
        _ => health
            .invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
    }
    let internal = spec.internal_traffic_policy();
    if internal.is_set() {
        internal.one_of(&["Cluster", "Local"]);
    } else if kind != "ExternalName" {
        internal.required("");
    }
    let distribution = spec.traffic_distribution();
    if distribution.is_set() {
        distribution.one_of(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
    }
}

/// A change of a Service: addresses stay.
pub fn service_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let old = Service::of(old);
    walk_as::<Service>(new, errors, |root| {
        let (spec, before) = (root.spec(), old.spec());
        new_addresses(&spec, before);
        annotated_ranges(&root, old.metadata().annotations().key(SOURCE_RANGES).text());
        // Changes to and from this type drop what the rules below protect: a rule for every Service comes before.
        if spec.view().type_() == "ExternalName" || before.type_() == "ExternalName" {
            return;
        }
        first_stays(&spec.cluster_ips(), before.cluster_ips(), Some("primary clusterIP can not be unset"));
        if !is_headless(root.view()) && !is_headless(old) {
            first_stays(&spec.ip_families(), before.ip_families(), None);
        }
        if spec.view().type_() == "LoadBalancer" && before.type_() == "LoadBalancer" {
            spec.load_balancer_class().immutable_because(before.load_balancer_class(), FIXED);
        }
        let local = |spec: View<'_, ServiceSpec>| {
            spec.type_() == "LoadBalancer" && spec.external_traffic_policy() == "Local"
        };
        let health = spec.health_check_node_port();
        if local(spec.view()) && local(before) && !health.view().same_as(before.health_check_node_port()) {
            health.forbidden("field is immutable");
        }
    });
}

/// The first item of a list does not change; `unset` is the error when the list becomes empty.
fn first_stays(list: &Field<'_, List<Text>>, before: View<'_, List<Text>>, unset: Option<&str>) {
    let Some(was) = before.first() else { return };
    let why = match list.view().first() {
        None => unset,
        Some(first) => (!first.same_as(was)).then_some(FIXED),
    };
    if let Some(why) = why {
        // Upstream shows the whole list at its first item.
        list.report(FieldError::invalid(format!("{}[0]", list.path()), list.value, why));
    }
}

/// A change of a Service's status.
pub fn service_status(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let before = Service::of(old).status().load_balancer().ingress();
    let before: Vec<&str> = before.items().map(|point| point.ip().text()).collect();
    walk_as::<Service>(new, errors, |root| {
        let list = root.status().load_balancer().ingress();
        if root.view().spec().type_().text() != "LoadBalancer" && !list.is_empty() {
            return list.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
        }
        for ingress in list.items() {
            balancer_point(&ingress.ip(), &ingress.hostname(), &before);
            let mode = ingress.ip_mode();
            match (mode.is_set(), ingress.ip().is_empty()) {
                (false, false) => mode.required("must be specified when `ip` is set"),
                (true, true) => mode.forbidden("may not be specified when `ip` is not set"),
                (true, false) => mode.one_of(&["Proxy", "VIP"]),
                (false, true) => {}
            }
        }
    });
}

/// An address or host name of a load balancer, with the addresses that it had before.
pub(super) fn balancer_point(ip: &Field<'_, Text>, host: &Field<'_, Text>, before: &[&str]) {
    if !ip.is_empty() {
        is_old_ip(ip);
        new_ip(ip, before);
    }
    if !host.is_empty() {
        host.follows(dns1123_subdomain);
        if sloppy_address(host.text()).is_some() {
            host.invalid("must be a DNS name, not an IP address");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, errors};
    use super::*;

    fn with(spec: Value) -> Value {
        let mut object =
            json!({"metadata": {"name": "s", "namespace": "n"}, "spec": {"ports": [{"port": 80}]}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            object["spec"][key] = value.clone();
        }
        crate::defaults::network::service(&mut object);
        object
    }

    #[test]
    fn services() {
        let good = [
            json!({}),
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30000, "targetPort": "http"}]}),
            json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": []}),
            json!({"type": "ExternalName", "externalName": "example.com.", "ports": []}),
            json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
            json!({"externalIPs": ["001.2.3.4", "2001:DB8::1"]}),
            json!({"ports": [{"name": "a", "port": 53, "protocol": "UDP"}, {"name": "b", "port": 53}]}),
        ];
        for spec in good {
            assert_eq!(errors(service, &with(spec.clone())), [""; 0], "{spec}");
        }
        let bad = [
            (json!({"ports": []}), "spec.ports: Required value"),
            (
                json!({"ports": [{"port": 0, "targetPort": 80}]}),
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"ports": [{"port": 80, "nodePort": 30000}]}),
                "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            ),
            (
                json!({"type": "Maybe"}),
                "spec.type: Unsupported value: \"Maybe\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ),
            (json!({"clusterIP": "10.0.0.1"}), "spec.clusterIPs: Required value"),
            (
                json!({"clusterIP": "x", "clusterIPs": ["x"]}),
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (json!({"type": "ExternalName", "ports": []}), "spec.externalName: Required value"),
            (
                json!({"externalIPs": ["127.0.0.1"]}),
                "spec.externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            ),
        ];
        for (spec, expected) in bad {
            assert_eq!(errors(service, &with(spec.clone())), [expected], "{spec}");
        }
        let names = with(json!({"ports": [{"port": 80}, {"port": 81}]}));
        assert_eq!(
            errors(service, &names),
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"]
        );
    }

    #[test]
    fn annotations() {
        let of = |kind: &str, annotations: Value| {
            let mut object = with(json!({"type": kind}));
            object["metadata"]["annotations"] = annotations;
            object
        };
        let ranges = |text: &str| of("LoadBalancer", json!({SOURCE_RANGES: text}));
        let at = format!("metadata.annotations[{SOURCE_RANGES}]");
        assert_eq!(errors(new_service, &ranges(" 10.0.0.0/8, 11.0.0.0/8 ")), [""; 0]);
        assert_eq!(errors(new_service, &ranges("")), [""; 0]);
        let wrong = ranges("10.0.0.0/8,x");
        assert_eq!(
            errors(new_service, &wrong),
            [format!(
                "{at}: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            )]
        );
        assert_eq!(changes(service_update, &wrong, &wrong), [""; 0]);
        assert_eq!(changes(service_update, &wrong, &ranges("")).len(), 1);
        let inside = of("ClusterIP", json!({SOURCE_RANGES: "10.0.0.0/8"}));
        assert_eq!(errors(service, &inside), [format!("{at}: Forbidden: {ONLY_BALANCED}")]);
        let topology = |mode: &str| of("ClusterIP", json!({TOPOLOGY_HINTS: "Auto", TOPOLOGY_MODE: mode}));
        assert_eq!(errors(service, &topology("Auto")), [""; 0]);
        assert_eq!(
            errors(service, &topology("Disabled")),
            [format!(
                "metadata.annotations[{TOPOLOGY_MODE}]: Invalid value: \"Disabled\": must match annotations[{TOPOLOGY_HINTS}] when both are specified"
            )]
        );
    }

    #[test]
    fn addresses_stay() {
        let old = with(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}));
        let new = with(json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}));
        assert_eq!(
            changes(service_update, &new, &old),
            ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
        );
        let external = with(json!({"type": "ExternalName", "externalName": "a.b", "ports": []}));
        assert_eq!(changes(service_update, &external, &old), [""; 0]);
    }
}
