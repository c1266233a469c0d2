//! Results of a plugin chain, of any CNI version.

use std::net::IpAddr;

use serde_json::{Value, json};

/// DNS settings a network asks for, or a pod offers to its network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dns {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// resolv.conf options.
    pub options: Vec<String>,
    /// The local domain.
    pub domain: String,
}

impl Dns {
    /// Nothing set.
    pub fn is_empty(&self) -> bool {
        *self == Dns::default()
    }

    /// In the form of the `dns` capability.
    pub(super) fn as_capability(&self) -> Value {
        json!({ "servers": self.servers, "searches": self.searches, "options": self.options })
    }

    fn from_result(value: &Value) -> Self {
        let list = |key: &str| {
            let items = value.get(key).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Dns {
            servers: list("nameservers"),
            searches: list("search"),
            options: list("options"),
            domain: value.get("domain").and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    }
}

/// An interface the plugins made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: String,
    /// Path of its netns; empty on the host.
    pub sandbox: String,
}

/// A pod's attachment to the network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attachment {
    /// The pod's addresses in the order the network gave them; the first is the pod IP.
    pub ips: Vec<IpAddr>,
    /// DNS settings of the result; usually empty.
    pub dns: Dns,
    /// Interfaces on both sides.
    pub interfaces: Vec<Interface>,
    /// The result as the last plugin wrote it.
    pub result: Value,
}

impl Attachment {
    /// Reads a result of any protocol version.
    pub fn from_result(result: Value) -> Self {
        let interfaces: Vec<Interface> = result
            .get("interfaces")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|interface| {
                let text =
                    |key: &str| interface.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                Interface { name: text("name"), mac: text("mac"), sandbox: text("sandbox") }
            })
            .collect();
        // An address may belong to a host-side interface: only those in a sandbox, or of no interface, are the pod's.
        let of_pod = |ip: &&Value| match ip.get("interface").and_then(Value::as_u64) {
            Some(index) => interfaces.get(index as usize).is_none_or(|i| !i.sandbox.is_empty()),
            None => true,
        };
        let mut ips: Vec<IpAddr> = result
            .get("ips")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(of_pod)
            .filter_map(|ip| address(ip.get("address")?))
            .collect();
        for old in ["ip4", "ip6"] {
            ips.extend(result.get(old).and_then(|family| address(family.get("ip")?)));
        }
        let dns = result.get("dns").map(Dns::from_result).unwrap_or_default();
        Attachment { ips, dns, interfaces, result }
    }
}

fn address(cidr: &Value) -> Option<IpAddr> {
    cidr.as_str()?.split('/').next()?.parse().ok()
}
