//! Addresses and names of the server, of Services and of nodes.

use crate::config::Config;
use coracle_apiserver::nodes::address::Addresses;
use coracle_apiserver::service_ranges::ServiceRanges;
use coracle_controllers::servers::lease::Identity;
use coracle_pki::Pki;
use std::net::{IpAddr, SocketAddr};

/// Where nodes can be: not where the API itself is. A cluster whose API is at a loopback address lives on one machine, and so
/// do its nodes.
pub(super) fn node_addresses(config: &Config, bound: &[Option<SocketAddr>]) -> anyhow::Result<Addresses> {
    let services = ServiceRanges::new(&config.service_cidr).map_err(anyhow::Error::msg)?;
    let mut own: Vec<SocketAddr> = bound.iter().flatten().copied().collect();
    let said = reachable(config, own[0]);
    own.extend(said.parse::<SocketAddr>());
    let host = host_of(&said).trim_matches(['[', ']']);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    Ok(Addresses::new(services, own, loopback))
}

/// The address of the `kubernetes` Service.
pub(super) fn first_service_address(cidr: &str) -> anyhow::Result<String> {
    let range = ServiceRanges::new(cidr).map_err(anyhow::Error::msg)?;
    Ok(range.first().to_string())
}

/// Where nodes answer DNS for ranges of Service addresses.
pub fn dns_addresses(cidrs: &str) -> Vec<String> {
    let ranges = ServiceRanges::new(cidrs);
    ranges.map_or_else(|_| Vec::new(), |ranges| ranges.dns().iter().map(ToString::to_string).collect())
}

/// The names of the serving certificate.
pub(super) fn names(config: &Config, bound: SocketAddr, service_ip: &str) -> Vec<String> {
    let mut names: Vec<String> = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        .into_iter()
        .map(str::to_owned)
        .collect();
    names.push("kubernetes.default.svc.cluster.local".into());
    names.push("127.0.0.1".into());
    names.push(service_ip.into());
    if !bound.ip().is_unspecified() {
        names.push(bound.ip().to_string());
    }
    names.extend(config.advertise.iter().map(|a| host_of(a).to_owned()));
    names.extend(config.tls_san.iter().cloned());
    names.sort();
    names.dedup();
    names
}

/// The host in `host` or `host:port`.
pub(super) fn host_of(advertise: &str) -> &str {
    match advertise.parse::<IpAddr>() {
        Ok(_) => advertise,
        Err(_) => advertise.rsplit_once(':').map_or(advertise, |(host, _)| host),
    }
}

/// Host and port that clients use.
pub(super) fn reachable(config: &Config, bound: SocketAddr) -> String {
    match &config.advertise {
        Some(host) if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("[{host}]:{}", bound.port()),
        Some(host) if host.contains(':') => host.clone(),
        Some(host) => format!("{host}:{}", bound.port()),
        None if bound.ip().is_unspecified() => format!("127.0.0.1:{}", bound.port()),
        None => bound.to_string(),
    }
}

/// The names of the serving certificate that mean this server to others, too.
pub(super) fn reserved_names(pki: &Pki) -> Vec<String> {
    pki.names().iter().filter(|name| *name != "localhost").cloned().collect()
}

/// Who this server is to the other servers of the cluster.
pub(super) fn own_identity(config: &Config, bound: SocketAddr, pki: &Pki) -> Identity {
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let (reached, listens) = (reachable(config, bound), bound.to_string());
    let own = Identity::new(&[&host, &reached, &listens], advertised(config, bound), reserved_names(pki));
    own.reached_by_peers_at(reached)
}

/// Logs that a server is no endpoint of the Service `default/kubernetes`. Clients on its machine do not need that.
pub(super) fn warn_unpublished(own: &Identity) {
    if own.address.is_none() {
        tracing::warn!(
            address = %own.peer_address,
            "server is no endpoint of the Service default/kubernetes, so pods do not reach the API: its address is loopback or a \
             name; --advertise sets another one"
        );
    }
}

/// Where other machines reach this server. Loopback is nowhere to them.
fn advertised(config: &Config, bound: SocketAddr) -> Option<SocketAddr> {
    let said = reachable(config, bound).parse::<SocketAddr>().ok();
    let address = said.or_else(|| (!bound.ip().is_unspecified()).then_some(bound))?;
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    (!address.ip().is_loopback()).then_some(address)
}
