//! The portmap plugin: forwards ports of the host to the container.
//!
//! Every mapping is one map element with its owner as comment; a packet costs two lookups regardless of their number.

// The configuration.
mod config;
// nftables rules.
mod rules;
// Errors.
mod error;

use std::fs;

use config::{Config, Mapping};
pub use error::PortmapError;
pub use rules::TABLE;

use crate::{
    conntrack::{Conntrack, UDP},
    protocol::{Call, NetResult, Plugin, Result},
};

/// The `portmap` plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct Portmap;

impl Plugin for Portmap {
    fn add(&self, call: &Call) -> Result<NetResult> {
        let config = Config::of(call)?;
        let prev = call.prev_result()?.ok_or(PortmapError::NotChained)?;
        let mappings = config.mappings(&prev)?;
        if mappings.is_empty() {
            return Ok(prev);
        }
        if config.snat && mappings.iter().any(|m| m.target.ip.is_ipv4()) {
            allow_loopback_sources(&prev);
        }
        rules::add(&mappings, config.snat, &owner(call))?;
        forget_old_flows(&mappings)?;
        Ok(prev)
    }

    fn del(&self, call: &Call) -> Result<()> {
        let owner = owner(call);
        Ok(rules::remove_where(|comment| comment == owner)?)
    }

    fn check(&self, call: &Call) -> Result<()> {
        let config = Config::of(call)?;
        let prev = call.required_prev_result()?;
        match rules::present(&config.mappings(&prev)?, config.snat, &owner(call))? {
            true => Ok(()),
            false => Err(PortmapError::Missing.into()),
        }
    }

    fn gc(&self, call: &Call) -> Result<()> {
        let valid = call.valid_attachments()?;
        Ok(rules::remove_where(|comment| {
            let mut words = comment.split(' ');
            let (Some(network), Some(id), Some(ifname)) = (words.next(), words.next(), words.next()) else {
                return false;
            };
            network == call.network && !valid.iter().any(|a| a.container_id == id && a.ifname == ifname)
        })?)
    }

    fn status(&self, call: &Call) -> Result<()> {
        Config::of(call).map(drop)
    }
}

fn owner(call: &Call) -> String {
    crate::bridge::masquerade::owner(&call.network, &call.container_id, &call.ifname)
}

/// Removes conntrack entries of UDP clients, which would keep using the translation from before this mapping.
fn forget_old_flows(mappings: &[Mapping]) -> Result<()> {
    for v4 in [true, false] {
        let of_family: Vec<&Mapping> =
            mappings.iter().filter(|m| m.protocol == UDP && m.target.ip.is_ipv4() == v4).collect();
        if of_family.is_empty() {
            continue;
        }
        Conntrack::open()?.remove(v4, |flow| {
            flow.protocol == UDP
                && of_family.iter().any(|m| {
                    flow.destination.1 == m.host_port
                        && m.host_ip.is_none_or(|ip| ip == flow.destination.0)
                        && flow.answered_by != (m.target.ip, m.target_port)
                })
        })?;
    }
    Ok(())
}

/// Sets `route_localnet`, so that `127.0.0.1:<port>` works on the host.
fn allow_loopback_sources(prev: &NetResult) {
    for interface in prev.interfaces.iter().filter(|i| i.sandbox.is_empty()) {
        let path = format!("/proc/sys/net/ipv4/conf/{}/route_localnet", interface.name);
        if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "0") {
            // Only access through loopback needs it.
            let _ = fs::write(&path, "1");
        }
    }
}
