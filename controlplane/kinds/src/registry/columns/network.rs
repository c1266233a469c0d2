//! Columns of Services, endpoints, ingresses and policies.

use super::{age, format, name, text, text_or, wide};
use crate::registry::kinds::Column;
use coracle_validation::tree::Tree;
use serde_json::{Value, json};

/// Services.
pub fn service() -> Vec<Column> {
    vec![
        name(),
        text("Type", |object| object.at("spec.type").clone()),
        text("Cluster-IP", |object| {
            let address = object.items("spec.clusterIPs").first().and_then(Value::as_str);
            json!(address.or(object.at("spec.clusterIP").as_str()).unwrap_or("<none>"))
        }),
        text("External-IP", |object| json!(external_address(object))),
        text("Port(s)", |object| {
            json!(format::or_none(object.items("spec.ports").iter().map(service_port).collect()))
        }),
        age(),
        wide("Selector", |object| json!(format::labels(object.at("spec.selector")))),
    ]
}

fn service_port(port: &Value) -> String {
    let (number, protocol) = (port.int("port").unwrap_or_default(), port.text("protocol"));
    match port.int("nodePort") {
        Some(node_port) if node_port > 0 => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_address(service: &Value) -> String {
    let own = format::texts(service, "spec.externalIPs");
    match service.text("spec.type") {
        "ClusterIP" | "NodePort" => format::or_none(own),
        "LoadBalancer" => {
            let mut all = format::balancer(service.at("status.loadBalancer"));
            all.extend(own);
            if all.is_empty() { "<pending>".into() } else { all.join(",") }
        }
        "ExternalName" => service.text("spec.externalName").to_owned(),
        _ => "<unknown>".into(),
    }
}

/// Endpoints.
pub fn endpoints() -> Vec<Column> {
    vec![
        name(),
        text("Endpoints", |object| {
            let mut list = Vec::new();
            for subset in object.items("subsets") {
                let addresses = subset.items("addresses").iter().map(|address| address.text("ip"));
                if subset.items("ports").is_empty() {
                    list.extend(addresses.map(str::to_owned));
                    continue;
                }
                for port in subset.items("ports") {
                    let number = port.int("port").unwrap_or_default();
                    let addresses = subset.items("addresses").iter().map(|address| address.text("ip"));
                    list.extend(addresses.map(|ip| {
                        if ip.contains(':') { format!("[{ip}]:{number}") } else { format!("{ip}:{number}") }
                    }));
                }
            }
            let shown = format::first_three(&list).unwrap_or_default();
            json!(if object.items("subsets").is_empty() { "<none>" } else { &shown })
        }),
        age(),
    ]
}

/// EndpointSlices.
pub fn endpoint_slice() -> Vec<Column> {
    vec![
        name(),
        text("AddressType", |object| object.at("addressType").clone()),
        text("Ports", |object| {
            let ports: Vec<String> = object.items("ports").iter().map(slice_port).collect();
            json!(format::first_three(&ports).unwrap_or_else(|| "<unset>".into()))
        }),
        text("Endpoints", |object| {
            let endpoints = object.items("endpoints").iter();
            let addresses: Vec<String> =
                endpoints.flat_map(|endpoint| format::texts(endpoint, "addresses")).collect();
            json!(format::first_three(&addresses).unwrap_or_else(|| "<unset>".into()))
        }),
        age(),
    ]
}

fn slice_port(port: &Value) -> String {
    match (port.int("port"), port.at("name").as_str()) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".into(),
    }
}

/// Ingresses.
pub fn ingress() -> Vec<Column> {
    vec![
        name(),
        text("Class", |object| text_or(object, "spec.ingressClassName", "<none>")),
        text("Hosts", |object| {
            let rules = object.items("spec.rules");
            let hosts: Vec<String> = rules
                .iter()
                .map(|rule| rule.text("host"))
                .filter(|h| !h.is_empty())
                .map(str::to_owned)
                .collect();
            json!(match hosts.len() {
                0 => "*".to_owned(),
                1..=3 => hosts.join(","),
                _ => format!("{} + {} more...", hosts[..3].join(","), rules.len() - 3),
            })
        }),
        text("Address", |object| json!(format::balancer(object.at("status.loadBalancer")).join(","))),
        text("Ports", |object| json!(if object.items("spec.tls").is_empty() { "80" } else { "80, 443" })),
        age(),
    ]
}

/// IngressClasses.
pub fn ingress_class() -> Vec<Column> {
    vec![
        name(),
        text("Controller", |object| object.at("spec.controller").clone()),
        text("Parameters", |object| {
            let parameters = object.at("spec.parameters");
            if parameters.is_null() {
                return json!("<none>");
            }
            let group =
                parameters.at("apiGroup").as_str().map(|group| format!(".{group}")).unwrap_or_default();
            json!(format!("{}{group}/{}", parameters.text("kind"), parameters.text("name")))
        }),
        age(),
    ]
}

/// NetworkPolicies.
pub fn network_policy() -> Vec<Column> {
    vec![name(), text("Pod-Selector", |object| json!(format::selector(object.at("spec.podSelector")))), age()]
}

/// ServiceCIDRs.
pub fn service_cidr() -> Vec<Column> {
    vec![name(), text("CIDRs", |object| json!(format::texts(object, "spec.cidrs").join(","))), age()]
}

/// IPAddresses.
pub fn ip_address() -> Vec<Column> {
    vec![
        name(),
        text("ParentRef", |object| {
            let parent = object.at("spec.parentRef");
            if parent.is_null() {
                return json!("<none>");
            }
            let group = parent.text("group");
            let dot = if group.is_empty() { "" } else { "." };
            let resource = format!("{}{dot}{group}", parent.text("resource")).to_lowercase();
            let path: Vec<&str> = [resource.as_str(), parent.text("namespace"), parent.text("name")]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            json!(path.join("/"))
        }),
        age(),
    ]
}
