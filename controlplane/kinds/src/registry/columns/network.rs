//! Columns of Services, endpoints, ingresses and policies.

use super::{Column, age, format, name, text, wide};
use coracle_fields::View;
use coracle_fields::core::v1::{EndpointSubset, Endpoints, LoadBalancerStatus, Service, ServicePort};
use coracle_fields::discovery::v1::{EndpointPort, EndpointSlice};
use coracle_fields::networking::v1::{IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR};
use serde_json::json;

/// Services.
pub fn service() -> Vec<Column> {
    vec![
        name(),
        text::<Service>("Type", |object| object.spec().type_().to_value()),
        text::<Service>("Cluster-IP", |object| {
            let address = object.spec().cluster_ips().first().and_then(|address| address.get());
            json!(address.or(object.spec().cluster_ip().get()).unwrap_or("<none>"))
        }),
        text::<Service>("External-IP", |object| json!(external_address(object))),
        text::<Service>("Port(s)", |object| {
            json!(format::or_none(object.spec().ports().items().map(service_port).collect()))
        }),
        age(),
        wide::<Service>("Selector", |object| json!(format::labels(object.spec().selector()))),
    ]
}

fn service_port(port: View<'_, ServicePort>) -> String {
    let (number, protocol) = (port.port().or(0), port.protocol().text());
    match port.node_port().int() {
        Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(service: View<'_, Service>) -> String {
    let own = format::texts(service.spec().external_ips());
    match service.spec().type_().text() {
        "ClusterIP" | "NodePort" => format::or_none(own),
        "LoadBalancer" => {
            let mut all = format::balancer(service.status().load_balancer());
            all.extend(own);
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => service.spec().external_name().text().to_owned(),
        _ => "<unknown>".into(),
    }
}

/// Endpoints.
pub fn endpoints() -> Vec<Column> {
    vec![
        name(),
        text::<Endpoints>("Endpoints", |object| {
            let list: Vec<String> = object.subsets().items().flat_map(subset_addresses).collect();
            let shown = format::first_three(&list).unwrap_or_default();
            json!(if object.subsets().is_empty() { "<none>" } else { &shown })
        }),
        age(),
    ]
}

/// Every address with every port.
fn subset_addresses(subset: View<'_, EndpointSubset>) -> Vec<String> {
    let addresses = || subset.addresses().items().map(|address| address.ip().text());
    if subset.ports().is_empty() {
        return addresses().map(str::to_owned).collect();
    }
    let mut list = Vec::new();
    for port in subset.ports().items() {
        let number = port.port().or(0);
        list.extend(
            addresses().map(|ip| {
                if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
            }),
        );
    }
    list
}

/// EndpointSlices.
pub fn endpoint_slice() -> Vec<Column> {
    vec![
        name(),
        text::<EndpointSlice>("AddressType", |object| object.address_type().to_value()),
        text::<EndpointSlice>("Ports", |object| {
            let ports: Vec<String> = object.ports().items().map(slice_port).collect();
            json!(format::first_three(&ports).unwrap_or_else(|| "<unset>".into()))
        }),
        text::<EndpointSlice>("Endpoints", |object| {
            let endpoints = object.endpoints().items();
            let addresses: Vec<String> =
                endpoints.flat_map(|endpoint| format::texts(endpoint.addresses())).collect();
            json!(format::first_three(&addresses).unwrap_or_else(|| "<unset>".into()))
        }),
        age(),
    ]
}

fn slice_port(port: View<'_, EndpointPort>) -> String {
    match (port.port().int(), port.name().get()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".into(),
    }
}

/// Ingresses.
pub fn ingress() -> Vec<Column> {
    vec![
        name(),
        text::<Ingress>("Class", |object| {
            json!(object.spec().ingress_class_name().get().unwrap_or("<none>"))
        }),
        text::<Ingress>("Hosts", |object| json!(hosts(object))),
        text::<Ingress>("Address", |object| {
            // Ingresses have a type of their own with the same fields.
            let balancer = object.status().load_balancer().erased().as_type::<LoadBalancerStatus>();
            json!(format::balancer(balancer).join(","))
        }),
        text::<Ingress>("Ports", |object| {
            json!(if object.spec().tls().is_empty() { "80" } else { "80, 443" })
        }),
        age(),
    ]
}

/// The first three hosts. Rules after the third are counted, whether they name a host or not.
fn hosts(object: View<'_, Ingress>) -> String {
    let rules = object.spec().rules();
    let named: Vec<(usize, &str)> = rules
        .items()
        .enumerate()
        .filter_map(|(at, rule)| Some((at, rule.host().filled()?)))
        .take(3)
        .collect();
    let shown: Vec<&str> = named.iter().map(|(_, host)| *host).collect();
    match named.as_slice() {
        [] => "*".to_owned(),
        [_, _, (third, _)] if third + 1 < rules.len() => {
            format!("{} + {} more...", shown.join(","), rules.len() - 3)
        }
        _ => shown.join(","),
    }
}

/// IngressClasses.
pub fn ingress_class() -> Vec<Column> {
    vec![
        Column {
            format: "name",
            ..text::<IngressClass>("Name", |object| {
                let mark = object.metadata().annotations().key("ingressclass.kubernetes.io/is-default-class");
                let suffix = if mark == "true" { " (default)" } else { "" };
                json!(format!("{}{suffix}", object.metadata().name().text()))
            })
        },
        text::<IngressClass>("Controller", |object| object.spec().controller().to_value()),
        text::<IngressClass>("Parameters", |object| {
            let parameters = object.spec().parameters();
            if !parameters.is_set() {
                return json!("<none>");
            }
            let group = parameters.api_group().get().map(|group| format!(".{group}")).unwrap_or_default();
            json!(format!("{}{group}/{}", parameters.kind().text(), parameters.name().text()))
        }),
        age(),
    ]
}

/// NetworkPolicies.
pub fn network_policy() -> Vec<Column> {
    vec![
        name(),
        text::<NetworkPolicy>("Pod-Selector", |object| json!(format::selector(object.spec().pod_selector()))),
        age(),
    ]
}

/// ServiceCIDRs.
pub fn service_cidr() -> Vec<Column> {
    vec![
        name(),
        text::<ServiceCIDR>("CIDRs", |object| json!(format::texts(object.spec().cidrs()).join(","))),
        age(),
    ]
}

/// IPAddresses.
pub fn ip_address() -> Vec<Column> {
    vec![
        name(),
        text::<IPAddress>("ParentRef", |object| {
            let parent = object.spec().parent_ref();
            if !parent.is_set() {
                return json!("<none>");
            }
            let group = parent.group().text();
            let dot = if group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{group}", parent.resource().text()).to_lowercase();
            let path: Vec<&str> = [resource.as_str(), parent.namespace().text(), parent.name().text()]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            json!(path.join("/"))
        }),
    ]
}
