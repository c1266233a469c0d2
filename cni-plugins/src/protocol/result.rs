//! Results: one internal type, converted to the format of each version.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CallError, Result, at_least};
use crate::route::Cidr;

/// The result of ADD.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NetResult {
    /// Links made, on both sides.
    pub interfaces: Vec<Interface>,
    /// Addresses given.
    pub ips: Vec<Ip>,
    /// Routes the container gets.
    pub routes: Vec<RouteEntry>,
    /// DNS the container gets.
    pub dns: Dns,
}

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Hardware address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Largest packet (CNI 1.1).
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// The container's namespace; empty on the host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

/// An address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// Index into the interfaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// With the prefix of its subnet.
    pub address: Cidr,
    /// The subnet's router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// An address before CNI 1.0, with its family.
#[derive(Serialize)]
struct OldIp<'a> {
    #[serde(flatten)]
    ip: &'a Ip,
    version: &'static str,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteEntry {
    /// Where to.
    pub dst: Cidr,
    /// Over which router; the address's own if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Largest packet (CNI 1.1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Advertised segment size (CNI 1.1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub advmss: u32,
    /// Metric (CNI 1.1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Routing table (CNI 1.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// Scope (CNI 1.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl RouteEntry {
    /// A route to `dst` over `gw`.
    pub fn new(dst: Cidr, gw: Option<IpAddr>) -> Self {
        RouteEntry { dst, gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }
}

/// DNS settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Local domain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Search domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl NetResult {
    /// Parses a result of any supported version.
    pub fn parse(value: &Value) -> Result<Self> {
        Ok(NetResult::deserialize(value).map_err(CallError::PrevResult)?)
    }

    /// In the format of a version.
    pub fn to_json(&self, version: &str) -> Value {
        let newest = at_least(version, "1.1.0");
        let interfaces: Vec<Value> = self
            .interfaces
            .iter()
            .map(|interface| {
                json!(Interface { mtu: if newest { interface.mtu } else { 0 }, ..interface.clone() })
            })
            .collect();
        let ips = self.ips.iter().map(|ip| match at_least(version, "1.0.0") {
            true => json!(ip),
            false => json!(OldIp { ip, version: if ip.address.ip.is_ipv4() { "4" } else { "6" } }),
        });
        let routes = self.routes.iter().map(|route| match newest {
            true => json!(route),
            false => json!(RouteEntry::new(route.dst, route.gw)),
        });
        let mut value = json!({ "cniVersion": version, "dns": self.dns });
        for (key, list) in
            [("interfaces", interfaces), ("ips", ips.collect()), ("routes", routes.collect::<Vec<_>>())]
        {
            if !list.is_empty() {
                value[key] = Value::Array(list);
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shapes_by_version() {
        let result = NetResult {
            interfaces: vec![Interface { name: "eth0".into(), mtu: 1450, ..Interface::default() }],
            ips: vec![Ip { interface: Some(0), address: "fd00::2/64".parse().unwrap(), gateway: None }],
            routes: vec![RouteEntry { mtu: 9, ..RouteEntry::new("::/0".parse().unwrap(), None) }],
            dns: Dns::default(),
        };
        for version in super::super::VERSIONS {
            let json = result.to_json(version);
            assert_eq!(json["ips"][0].get("version").is_some(), *version < "1.0.0", "{version}");
            assert_eq!(json["interfaces"][0].get("mtu").is_some(), *version >= "1.1.0", "{version}");
            assert_eq!(json["routes"][0].get("mtu").is_some(), *version >= "1.1.0", "{version}");
            let again = NetResult::parse(&json).unwrap();
            assert_eq!(again.ips, result.ips);
        }
    }
}
