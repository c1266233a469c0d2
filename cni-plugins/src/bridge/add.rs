//! ADD: allocates addresses, creates the veth pair in one request, then configures it.

use nix::errno::Errno;

use super::{BridgeError, Config, gateway, masquerade, names};
use crate::{
    ipam::Ipam,
    netns::Netns,
    protocol::{Call, Interface, NetResult, Result, RouteEntry},
    route::{Cidr, Link, Route, RouteSpec, VethPair},
};

/// The container's interface in a result: after the bridge and the host's end.
const CONTAINER: usize = 2;

/// ADD. On failure the addresses are released and the link is removed.
pub fn add(call: &Call) -> Result<NetResult> {
    let config = Config::of(call)?;
    let netns = call.open_netns()?;
    let mut host = Route::here()?;
    let bridge = gateway::ensure_bridge(&mut host, &config)?;

    let ipam = Ipam::of(call);
    let mut result = ipam.add(call)?;
    let mut work = || -> Result<()> {
        complete(&mut result, &config);
        connect(call, &config, &mut host, &bridge, &netns, &mut result)
    };
    if let Err(error) = work() {
        // Report the first error.
        let _ = host.remove_link(&names::host_veth(&call.container_id, &call.ifname));
        let _ = ipam.del(call);
        return Err(error);
    }
    Ok(result)
}

/// Fills in gateways and default routes.
fn complete(result: &mut NetResult, config: &Config) {
    let mut defaults = Vec::new();
    for ip in &mut result.ips {
        ip.interface = Some(CONTAINER);
        if ip.gateway.is_none() && config.is_gateway {
            ip.gateway = Some(names::first_address(ip.address));
        }
        if config.is_default_gateway {
            let any = if ip.address.ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
            let dst = Cidr { ip: any, prefix: 0 };
            if !result.routes.iter().chain(&defaults).any(|route| route.dst == dst) {
                defaults.push(RouteEntry::new(dst, ip.gateway));
            }
        }
    }
    result.routes.extend(defaults);
}

fn connect(
    call: &Call,
    config: &Config,
    host: &mut Route,
    bridge: &Link,
    netns: &Netns,
    result: &mut NetResult,
) -> Result<()> {
    let addresses: Vec<Cidr> = result.ips.iter().map(|ip| ip.address).collect();
    let mac = config.mac()?.or_else(|| names::mac_for(&addresses));
    let host_name = names::host_veth(&call.container_id, &call.ifname);
    let pair = VethPair {
        host_name: &host_name,
        master: bridge.index,
        peer_name: &call.ifname,
        peer_netns: netns,
        peer_mac: mac,
        mtu: config.mtu,
    };
    let mut container = Route::of(netns)?;
    create_link(host, &mut container, &pair, call)?;
    let host_link = found(host.link(&host_name)?, &host_name)?;
    if config.hairpin_mode || config.port_isolation {
        host.set_port(host_link.index, config.hairpin_mode, config.port_isolation)?;
    }
    let link = found(container.link(&call.ifname)?, &call.ifname)?;
    container.set_up(link.index)?;
    container.add_addresses(link.index, &addresses)?;
    for route in &result.routes {
        let v4 = route.dst.ip.is_ipv4();
        let own = result.ips.iter().find(|ip| ip.address.ip.is_ipv4() == v4).and_then(|ip| ip.gateway);
        container.add_route(&RouteSpec {
            destination: route.dst,
            gateway: if route.scope == Some(libc::RT_SCOPE_LINK) { None } else { route.gw.or(own) },
            link: link.index,
            mtu: route.mtu,
            advmss: route.advmss,
            priority: route.priority,
            table: route.table.unwrap_or(0),
            scope: route.scope,
        })?;
    }
    if config.is_gateway {
        for ip in &result.ips {
            if let Some(gateway) = ip.gateway {
                let address = Cidr { ip: gateway, prefix: ip.address.prefix };
                gateway::ensure_address(host, bridge, address, config.force_address)?;
            }
        }
        gateway::ensure_forwarding(
            addresses.iter().any(|a| a.ip.is_ipv4()),
            addresses.iter().any(|a| a.ip.is_ipv6()),
        )?;
    }
    if config.ip_masq {
        masquerade::add(&addresses, &masquerade::owner(&call.network, &call.container_id, &call.ifname))?;
    }
    let interface =
        |link: Link, sandbox: String| Interface { name: link.name, mac: link.mac, mtu: link.mtu, sandbox };
    result.interfaces = vec![
        interface(bridge.clone(), String::new()),
        interface(host_link, String::new()),
        interface(link, call.netns.display().to_string()),
    ];
    Ok(())
}

/// Creates the veth pair. Replaces a stale host end whose container namespace is gone; fails if the container has the
/// interface already.
fn create_link(host: &mut Route, container: &mut Route, pair: &VethPair<'_>, call: &Call) -> Result<()> {
    match host.create_veth(pair) {
        Err(e) if e.errno() == Some(Errno::EEXIST) => {
            if container.link(&call.ifname)?.is_some() {
                return Err(BridgeError::InterfaceExists { name: call.ifname.clone() }.into());
            }
            host.remove_link(pair.host_name)?;
            Ok(host.create_veth(pair)?)
        }
        other => Ok(other?),
    }
}

fn found(link: Option<Link>, name: &str) -> Result<Link, BridgeError> {
    link.ok_or_else(|| BridgeError::LinkVanished { name: name.to_owned() })
}
