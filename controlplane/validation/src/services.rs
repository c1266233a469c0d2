//! Field rules of Services.

use super::endpoints::usable_address;
use super::field_ref::{FieldRef, walk};
use super::meta;
use super::names::{is_cidr, is_ip, is_old_ip};
use crate::tree::Tree;
use coracle_proto::names::{dns1123_label, dns1123_subdomain, port_name, port_number, qualified_name};
use coracle_proto::status::FieldError;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::IpAddr;

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";
const FIXED: &str = "may not change once set";

/// A Service.
pub fn service(object: &Value, errors: &mut Vec<FieldError>) {
    walk(object, errors, |root| {
        let spec = root.at("spec");
        let kind = spec.value.text("type");
        let headless = is_headless(object);
        if spec.at("ports").is_empty() && !headless && kind != "ExternalName" {
            spec.at("ports").required("");
        }
        by_type(&spec, kind, headless);
        ports(&spec.at("ports"));
        meta::labels(&spec.at("selector"));
        affinity(&spec);
        if kind != "ExternalName" {
            addresses(&spec, headless);
        }
        for address in spec.each("externalIPs") {
            if let Some(ip) = is_old_ip(&address) {
                usable_address(&address, ip);
            }
        }
        spec.at("type").required_one_of(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
        if kind == "ClusterIP" {
            for port in spec.each("ports").filter(|port| !port.at("nodePort").is_empty()) {
                port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
            }
        }
        balancer(&spec, kind);
        traffic(&spec, kind);
    });
}

fn is_headless(service: &Value) -> bool {
    service.items("spec.clusterIPs").first().is_some_and(|ip| ip == "None")
        || service.text("spec.clusterIP") == "None"
}

fn by_type(spec: &FieldRef<'_>, kind: &str, headless: bool) {
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
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if !spec.at(field).is_empty() {
                    spec.at(field).forbidden("may not be set for ExternalName services");
                }
            }
            let name = spec.at("externalName");
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

fn ports(list: &FieldRef<'_>) {
    let named = list.len() > 1;
    let (mut names, mut node_ports, mut numbers) = (HashSet::new(), HashSet::new(), HashSet::new());
    for port in list.items() {
        let name = port.at("name");
        if !name.text().is_empty() {
            name.follows(dns1123_label);
            if !names.insert(name.text()) {
                name.duplicate();
            }
        } else if named {
            name.required("");
        }
        let number = port.value.int("port").unwrap_or_default();
        for message in port_number(number) {
            port.at("port").invalid_as(number, message);
        }
        port.at("protocol").required_one_of(&["SCTP", "TCP", "UDP"]);
        let target = port.at("targetPort");
        match target.value {
            Value::String(name) => target.all_good(port_name(name)),
            Value::Null => {}
            other => target.all_good(port_number(other.as_i64().unwrap_or_default())),
        }
        if port.at("appProtocol").is_set() {
            port.at("appProtocol").follows(qualified_name);
        }
    }
    for port in list.items() {
        let protocol = port.value.text("protocol");
        let node_port = port.value.int("nodePort").unwrap_or_default();
        if node_port != 0 && !node_ports.insert((protocol, node_port)) {
            port.at("nodePort").duplicate();
        }
    }
    for port in list.items() {
        let (protocol, number) = (port.value.text("protocol"), port.value.int("port"));
        if !numbers.insert((protocol, number)) {
            port.with(&json!({"protocol": protocol, "port": number, "targetPort": 0})).duplicate();
        }
    }
}

fn affinity(spec: &FieldRef<'_>) {
    spec.at("sessionAffinity").required_one_of(&["ClientIP", "None"]);
    let config = spec.at("sessionAffinityConfig");
    match spec.value.text("sessionAffinity") {
        "ClientIP" => {
            let seconds = config.at("clientIP.timeoutSeconds");
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

fn addresses(spec: &FieldRef<'_>, headless: bool) {
    let (one, all) = (spec.value.text("clusterIP"), spec.at("clusterIPs"));
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
    for family in spec.each("ipFamilies") {
        family.one_of(&["IPv4", "IPv6"]);
        if !families.insert(family.text()) {
            family.duplicate();
        }
    }
    if spec.at("ipFamilyPolicy").is_set() {
        spec.at("ipFamilyPolicy").one_of(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    }
    let mut ips = Vec::new();
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                all.invalid("'None' must be the first and only value");
            }
            continue;
        }
        ips.extend(is_ip(&address).map(|ip| (address, ip)));
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
    for (index, ((address, ip), family)) in ips.iter().zip(spec.value.items("ipFamilies")).enumerate() {
        let wanted = family.as_str().unwrap_or_default();
        let is = if IpAddr::is_ipv4(ip) { "IPv4" } else { "IPv6" };
        if matches!(wanted, "IPv4" | "IPv6") && wanted != is {
            address.invalid(format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

fn balancer(spec: &FieldRef<'_>, kind: &str) {
    let balanced = kind == "LoadBalancer";
    let ranges = spec.at("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        if !balanced {
            spec.at("LoadBalancerSourceRanges").forbidden(ONLY_BALANCED);
        }
        for (index, range) in ranges.items().enumerate() {
            let trimmed = json!(range.text().trim());
            let path = format!("LoadBalancerSourceRanges[{index}]");
            is_cidr(&spec.at(&path).with(&trimmed));
        }
    }
    if spec.at("allocateLoadBalancerNodePorts").is_set() && !balanced {
        spec.at("allocateLoadBalancerNodePorts").forbidden(ONLY_BALANCED);
    }
    let class = spec.at("loadBalancerClass");
    if class.is_set() {
        if balanced {
            class.follows(qualified_name);
        } else {
            class.forbidden(ONLY_BALANCED);
        }
    }
}

fn traffic(spec: &FieldRef<'_>, kind: &str) {
    let external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !spec.at("externalIPs").is_empty());
    let policy = spec.at("externalTrafficPolicy");
    if external {
        policy.required_one_of(&["Cluster", "Local"]);
    } else if !policy.is_empty() {
        policy.invalid("may only be set for externally-accessible services");
    }
    let health = spec.at("healthCheckNodePort");
    let needs_health = kind == "LoadBalancer" && policy.text() == "Local";
    match health.int().unwrap_or_default() {
        0 => {}
        number if needs_health => health.all_good(port_number(number)),
        _ => health
            .invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"),
    }
    let internal = spec.at("internalTrafficPolicy");
    if internal.is_set() {
        internal.one_of(&["Cluster", "Local"]);
    } else if kind != "ExternalName" {
        internal.required("");
    }
    let distribution = spec.at("trafficDistribution");
    if distribution.is_set() {
        distribution.one_of(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
    }
}

/// A change of a Service: addresses stay.
pub fn service_update(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let (spec, before) = (root.at("spec"), old.at("spec"));
        let named = |spec: &Value| spec.text("type") == "ExternalName";
        if named(spec.value) || named(before) {
            return;
        }
        for (field, list) in
            [("clusterIPs", before.items("clusterIPs")), ("ipFamilies", before.items("ipFamilies"))]
        {
            let now = spec.at(field);
            let headless = is_headless(new);
            if list.is_empty() || (field == "ipFamilies" && (headless || is_headless(old))) {
                continue;
            }
            let first = now.items().next();
            match first {
                None if field == "clusterIPs" => {
                    first_of(&spec, field, &now).invalid_list(&now, "primary clusterIP can not be unset");
                }
                Some(first) if first.value != &list[0] => {
                    first_of(&spec, field, &now).invalid_list(&now, FIXED);
                }
                _ => {}
            }
        }
        if spec.value.text("type") == "LoadBalancer" && before.text("type") == "LoadBalancer" {
            spec.at("loadBalancerClass").immutable_because(before.at("loadBalancerClass"), FIXED);
        }
        let local = |spec: &Value| {
            spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
        };
        let health = spec.at("healthCheckNodePort");
        if local(spec.value) && local(before) && health.value != before.at("healthCheckNodePort") {
            health.forbidden("field is immutable");
        }
    });
}

/// The place `field[0]` of the spec.
struct First {
    path: String,
}

fn first_of(spec: &FieldRef<'_>, field: &str, _list: &FieldRef<'_>) -> First {
    First { path: format!("{}.{field}[0]", spec.path()) }
}

impl First {
    /// Upstream shows the whole list at its first item.
    fn invalid_list(&self, list: &FieldRef<'_>, why: &str) {
        list.report(FieldError::invalid(&self.path, list.value, why));
    }
}

/// A change of a Service's status.
pub fn service_status(new: &Value, _old: &Value, errors: &mut Vec<FieldError>) {
    walk(new, errors, |root| {
        let list = root.at("status.loadBalancer.ingress");
        if root.value.text("spec.type") != "LoadBalancer" && !list.is_empty() {
            return list.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
        }
        for ingress in list.items() {
            balancer_point(&ingress);
            let mode = ingress.at("ipMode");
            match (mode.is_set(), ingress.at("ip").is_empty()) {
                (false, false) => mode.required("must be specified when `ip` is set"),
                (true, true) => mode.forbidden("may not be specified when `ip` is not set"),
                (true, false) => mode.one_of(&["Proxy", "VIP"]),
                (false, true) => {}
            }
        }
    });
}

/// An address or host name of a load balancer.
pub(super) fn balancer_point(ingress: &FieldRef<'_>) {
    if !ingress.at("ip").is_empty() {
        is_old_ip(&ingress.at("ip"));
    }
    let host = ingress.at("hostname");
    if !host.is_empty() {
        host.follows(dns1123_subdomain);
        if host.text().parse::<IpAddr>().is_ok() {
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
