//! The portmap configuration.

use std::net::IpAddr;

use serde::Deserialize;

use super::PortmapError;
use crate::{
    protocol::{Call, NetResult, Result},
    route::Cidr,
};

/// The plugin's configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Masquerade (hairpin) for the container itself, its neighbours and the host's loopback.
    #[serde(default = "yes")]
    pub snat: bool,
    #[serde(default, rename = "conditionsV4")]
    conditions_v4: Vec<String>,
    #[serde(default, rename = "conditionsV6")]
    conditions_v6: Vec<String>,
    #[serde(default)]
    runtime_config: RuntimeConfig,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    port_mappings: Vec<PortEntry>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortEntry {
    #[serde(default)]
    host_port: u16,
    container_port: u16,
    #[serde(default)]
    protocol: String,
    #[serde(default, rename = "hostIP")]
    host_ip: String,
}

/// A port mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The host's address, or all.
    pub host_ip: Option<IpAddr>,
    /// The host's port.
    pub host_port: u16,
    /// `IPPROTO_*`.
    pub protocol: u8,
    /// The container, with its subnet.
    pub target: Cidr,
    /// The container's port.
    pub target_port: u16,
}

impl Config {
    /// Reads the configuration of a call.
    pub fn of(call: &Call) -> Result<Self> {
        let config: Config = call.config_as()?;
        if !config.conditions_v4.is_empty() || !config.conditions_v6.is_empty() {
            return Err(PortmapError::Conditions.into());
        }
        Ok(config)
    }

    /// What to map to the container of a result: its first address of each family.
    pub fn mappings(&self, result: &NetResult) -> Result<Vec<Mapping>, PortmapError> {
        let inside = |ip: &&crate::protocol::Ip| match ip.interface.and_then(|at| result.interfaces.get(at)) {
            Some(interface) => !interface.sandbox.is_empty(),
            None => true,
        };
        let first = |v4: bool| result.ips.iter().filter(inside).find(|ip| ip.address.ip.is_ipv4() == v4);
        let targets: Vec<Cidr> =
            [first(true), first(false)].into_iter().flatten().map(|ip| ip.address).collect();
        let mut mappings = Vec::new();
        for entry in self.runtime_config.port_mappings.iter().filter(|entry| entry.host_port != 0) {
            let protocol = match entry.protocol.to_lowercase().as_str() {
                "" | "tcp" => libc::IPPROTO_TCP,
                "udp" => libc::IPPROTO_UDP,
                "sctp" => libc::IPPROTO_SCTP,
                other => return Err(PortmapError::Protocol { protocol: other.to_owned() }),
            };
            if entry.container_port == 0 {
                return Err(PortmapError::ContainerPort);
            }
            let host_ip = match entry.host_ip.as_str() {
                "" => None,
                text => {
                    Some(text.parse::<IpAddr>().map_err(|_| PortmapError::HostIp { text: text.to_owned() })?)
                        .filter(|ip| !ip.is_unspecified())
                }
            };
            // 0.0.0.0 and :: select a family.
            let family = entry.host_ip.parse::<IpAddr>().ok().map(|ip| ip.is_ipv4());
            for target in targets.iter().filter(|t| family.is_none_or(|v4| v4 == t.ip.is_ipv4())) {
                mappings.push(Mapping {
                    host_ip,
                    host_port: entry.host_port,
                    protocol: protocol as u8,
                    target: *target,
                    target_port: entry.container_port,
                });
            }
        }
        Ok(mappings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn mappings_by_family() {
        let result = NetResult::parse(&json!({
            "interfaces": [{ "name": "br" }, { "name": "eth0", "sandbox": "/n" }],
            "ips": [{ "address": "10.0.0.1/24", "interface": 0 }, { "address": "10.0.0.5/24", "interface": 1 },
                    { "address": "10.0.0.6/24", "interface": 1 }, { "address": "fd00::5/64", "interface": 1 }],
        }))
        .unwrap();
        for (entry, expected) in [
            (json!({ "hostPort": 80, "containerPort": 8080 }), vec!["10.0.0.5/24", "fd00::5/64"]),
            (json!({ "hostPort": 80, "containerPort": 1, "hostIP": "0.0.0.0" }), vec!["10.0.0.5/24"]),
            (json!({ "hostPort": 80, "containerPort": 1, "hostIP": "::1" }), vec!["fd00::5/64"]),
            (json!({ "hostPort": 0, "containerPort": 1 }), vec![]),
        ] {
            let config: Config =
                serde_json::from_value(json!({ "runtimeConfig": { "portMappings": [entry] } })).unwrap();
            let found = config.mappings(&result).unwrap();
            assert_eq!(found.iter().map(|m| m.target.to_string()).collect::<Vec<_>>(), expected, "{entry}");
        }
        for bad in [
            json!({ "hostPort": 1, "containerPort": 1, "protocol": "icmp" }),
            json!({ "hostPort": 1, "containerPort": 1, "hostIP": "x" }),
            json!({ "hostPort": 1, "containerPort": 0 }),
        ] {
            let config: Config =
                serde_json::from_value(json!({ "runtimeConfig": { "portMappings": [bad] } })).unwrap();
            assert!(config.mappings(&result).is_err(), "{bad}");
        }
    }
}
