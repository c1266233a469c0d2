//! The `ipam` section of a network configuration.

use std::{fs, net::IpAddr, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{
    error::HostLocalError,
    range::{RangeConfig, RangeSet},
};
use crate::{
    protocol::{Call, Dns, Result, RouteEntry},
    route::Cidr,
};

const DATA_DIR: &str = "/var/lib/cni/networks";

/// What an allocation needs.
#[derive(Debug, Clone)]
pub struct Config {
    /// One address is taken from each set.
    pub sets: Vec<RangeSet>,
    /// Routes of the result.
    pub routes: Vec<RouteEntry>,
    /// DNS of the result, from `resolvConf`.
    pub dns: Dns,
    /// Where the files are.
    pub data_dir: PathBuf,
    /// Addresses the runtime asked for.
    pub requested: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Network {
    ipam: Option<Ipam>,
    #[serde(default)]
    runtime_config: RuntimeConfig,
    #[serde(default)]
    args: Args,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ipam {
    #[serde(default)]
    subnet: Option<Cidr>,
    #[serde(default)]
    range_start: Option<IpAddr>,
    #[serde(default)]
    range_end: Option<IpAddr>,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    ranges: Vec<Vec<RangeConfig>>,
    #[serde(default)]
    routes: Vec<RouteEntry>,
    #[serde(default)]
    data_dir: String,
    #[serde(default)]
    resolv_conf: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    ip_ranges: Vec<Vec<RangeConfig>>,
    ips: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args {
    cni: CniArgs,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CniArgs {
    ips: Vec<String>,
}

impl Config {
    /// Reads the configuration of a call.
    pub fn of(call: &Call) -> Result<Self> {
        if call.config.get("ipam").is_none_or(Value::is_null) {
            return Err(HostLocalError::NoIpam.into());
        }
        let network: Network = call.config_as()?;
        let Some(ipam) = network.ipam else { return Err(HostLocalError::NoIpam.into()) };

        let mut sets = network.runtime_config.ip_ranges;
        if let Some(subnet) = ipam.subnet {
            let (range_start, range_end, gateway) = (ipam.range_start, ipam.range_end, ipam.gateway);
            sets.insert(0, vec![RangeConfig { subnet, range_start, range_end, gateway }]);
        }
        sets.extend(ipam.ranges);
        if sets.is_empty() {
            return Err(HostLocalError::NoRanges.into());
        }
        let sets = sets.iter().map(|set| RangeSet::new(set)).collect::<Result<Vec<_>, _>>();
        let sets = sets.map_err(HostLocalError::from)?;
        for (at, set) in sets.iter().enumerate() {
            if let Some(other) = sets[at + 1..].iter().position(|other| set.overlaps(other)) {
                return Err(HostLocalError::SetsOverlap { first: at, second: at + 1 + other }.into());
            }
        }

        let by_environment = call.args.get("IP").into_iter().flat_map(|list| list.split(','));
        let requested = by_environment
            .map(str::to_owned)
            .chain(network.args.cni.ips)
            .chain(network.runtime_config.ips)
            .map(|text| {
                let ip = text.split('/').next().unwrap_or_default();
                let ip = ip.trim().parse::<IpAddr>();
                ip.map_err(|_| HostLocalError::BadRequest { text })
            })
            .collect::<Result<Vec<IpAddr>, _>>()?;

        let data_dir = if ipam.data_dir.is_empty() { DATA_DIR.into() } else { ipam.data_dir.into() };
        let dns = if ipam.resolv_conf.is_empty() { Dns::default() } else { resolv_conf(&ipam.resolv_conf)? };
        Ok(Config { sets, routes: ipam.routes, dns, data_dir, requested })
    }
}

fn resolv_conf(path: &str) -> Result<Dns, HostLocalError> {
    let text = fs::read_to_string(path).map_err(HostLocalError::io(path.as_ref()))?;
    let mut dns = Dns::default();
    for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
        let mut words = line.split_whitespace();
        let key = words.next().unwrap_or_default();
        let values = words.map(str::to_owned);
        match key {
            "nameserver" => dns.nameservers.extend(values.take(1)),
            "domain" => dns.domain = values.take(1).collect(),
            "search" => dns.search.extend(values),
            "options" => dns.options.extend(values),
            _ => {}
        }
    }
    Ok(dns)
}
