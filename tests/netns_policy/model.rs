//! What policies mean, straight from their JSON, one path at a time. Shares no code with the agent.

use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where packets come from or go to.
#[derive(Clone, Debug)]
pub struct Spot {
    pub name: String,
    pub ip: Ipv4Addr,
    pub ip6: Ipv6Addr,
    /// Namespace and label, of pods.
    pub pod: Option<(String, String)>,
    /// The node it is on; nothing for those outside.
    pub node: String,
    /// A node: never kept from its own pods, nor they from it.
    pub is_node: bool,
}

impl Spot {
    pub fn pod(namespace: &str, pod: &str, node: &str, ips: &[&str]) -> Self {
        let name = format!("{namespace}/{pod}");
        let spot = Spot::outside(&name, ips);
        Spot { pod: Some((namespace.into(), pod.into())), node: node.into(), ..spot }
    }

    pub fn outside(name: &str, ips: &[&str]) -> Self {
        let (name, node) = (name.into(), String::new());
        let ip = ips[0].parse().unwrap();
        Spot { name, ip, ip6: ips[1].parse().unwrap(), pod: None, node, is_node: false }
    }

    pub fn node(name: &str, ips: &[&str]) -> Self {
        Spot { is_node: true, node: name.into(), ..Spot::outside(name, ips) }
    }

    pub fn address(&self, v4: bool) -> IpAddr {
        if v4 { self.ip.into() } else { self.ip6.into() }
    }
}

/// What is tried.
pub const TRIED: [(&str, u16); 3] = [("TCP", 80), ("TCP", 81), ("UDP", 80)];

/// The names that every pod gives its ports.
fn number(name: &str, protocol: &str) -> Option<u16> {
    match (name, protocol) {
        ("one", "TCP") | ("ask", "UDP") => Some(80),
        ("two", "TCP") => Some(81),
        _ => None,
    }
}

/// Whether a new connection is let through. A policy is its namespace and its spec.
pub fn allowed(
    policies: &[(String, Value)],
    (from, to): (&Spot, &Spot),
    protocol: &str,
    port: u16,
    v4: bool,
) -> bool {
    if from.is_node || to.is_node || from.name == to.name {
        return true;
    }
    let one_way = |own: &Spot, other: &Spot, kind: &str, rules: &str, peers: &str| {
        let Some((namespace, label)) = &own.pod else { return true };
        let about: Vec<&(String, Value)> = policies
            .iter()
            .filter(|(of, spec)| of == namespace && selects(&spec["podSelector"], "pod", label))
            .filter(|(_, spec)| types(spec).contains(&kind))
            .collect();
        about.is_empty()
            || about.iter().any(|(of, spec)| {
                let rules = spec[rules].as_array().cloned().unwrap_or_default();
                rules.iter().any(|rule| {
                    let (peers, ports) = (rule[peers].as_array(), rule["ports"].as_array());
                    let by_peer = peers.is_none_or(|peers| {
                        peers.is_empty() || peers.iter().any(|peer| is_peer(peer, of, other, v4))
                    });
                    let by_port = ports.is_none_or(|ports| {
                        ports.is_empty() || ports.iter().any(|spec| is_port(spec, protocol, port, to))
                    });
                    by_peer && by_port
                })
            })
    };
    one_way(from, to, "Egress", "egress", "to") && one_way(to, from, "Ingress", "ingress", "from")
}

fn types(spec: &Value) -> Vec<&str> {
    match spec["policyTypes"].as_array() {
        Some(types) => types.iter().filter_map(Value::as_str).collect(),
        None if spec["egress"].is_array() => vec!["Ingress", "Egress"],
        None => vec!["Ingress"],
    }
}

fn selects(selector: &Value, key: &str, value: &str) -> bool {
    let has = |of: &str| of == key;
    let labels = selector["matchLabels"].as_object().cloned().unwrap_or_default();
    let equal = labels.iter().all(|(of, wanted)| has(of) && wanted == value);
    let expressions = selector["matchExpressions"].as_array().cloned().unwrap_or_default();
    equal
        && expressions.iter().all(|expression| {
            let here = has(expression["key"].as_str().unwrap());
            let listed =
                expression["values"].as_array().is_some_and(|values| values.iter().any(|v| v == value));
            match expression["operator"].as_str().unwrap() {
                "In" => here && listed,
                "NotIn" => !(here && listed),
                "Exists" => here,
                "DoesNotExist" => !here,
                other => panic!("{other}"),
            }
        })
}

fn is_peer(peer: &Value, namespace: &str, other: &Spot, v4: bool) -> bool {
    if let Some(block) = peer.get("ipBlock") {
        let inside = |cidr: &Value| {
            let (base, bits) = cidr.as_str().unwrap().split_once('/').unwrap();
            let bits: u32 = bits.parse().unwrap();
            match (base.parse().unwrap(), v4) {
                (IpAddr::V4(base), true) => {
                    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
                    base.to_bits() & mask == other.ip.to_bits() & mask
                }
                (IpAddr::V6(base), false) => {
                    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
                    base.to_bits() & mask == other.ip6.to_bits() & mask
                }
                _ => false,
            }
        };
        let holes = block["except"].as_array().cloned().unwrap_or_default();
        return inside(&block["cidr"]) && !holes.iter().any(inside);
    }
    let Some((of, label)) = &other.pod else { return false };
    let at_home = match peer.get("namespaceSelector") {
        Some(selector) => selects(selector, "ns", of),
        None => of == namespace,
    };
    at_home && peer.get("podSelector").is_none_or(|selector| selects(selector, "pod", label))
}

fn is_port(spec: &Value, protocol: &str, port: u16, to: &Spot) -> bool {
    if spec["protocol"].as_str().unwrap_or("TCP") != protocol {
        return false;
    }
    match &spec["port"] {
        Value::Null => true,
        Value::String(name) => to.pod.is_some() && number(name, protocol) == Some(port),
        first => {
            let first = first.as_u64().unwrap();
            let last = spec["endPort"].as_u64().unwrap_or(first);
            (first..=last).contains(&u64::from(port))
        }
    }
}
