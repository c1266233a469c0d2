//! Is everything still as ADD left it?

use super::{Config, masquerade};
use crate::{
    ipam::Ipam,
    netns::Netns,
    protocol::{Call, Error, Interface, NetResult, Result, code},
    route::{Cidr, Link, Route},
};

/// CHECK: links, addresses, routes, masquerading and the reservation.
pub fn check(call: &Call) -> Result<()> {
    let config = Config::of(call)?;
    let prev = call.prev_result()?.ok_or_else(|| Error::config("Required prevResult missing"))?;
    Ipam::of(call).check(call)?;

    let mut host = Route::here()?;
    let bridge = expect(host.link(&config.bridge)?, &config.bridge)?;
    let ours = |i: &&Interface| i.sandbox.is_empty() && i.name != config.bridge;
    let Some(port) = prev.interfaces.iter().find(ours) else {
        return Err(Error::config("prevResult has no interface on the host"));
    };
    let port = expect(host.link(&port.name)?, &port.name)?;
    if port.master != bridge.index {
        return Err(Error::internal(format!("{} is not attached to bridge {}", port.name, bridge.name)));
    }
    check_container(call, &prev)?;

    let addresses: Vec<Cidr> = prev.ips.iter().map(|ip| ip.address).collect();
    let owner = masquerade::owner(&call.network, &call.container_id, &call.ifname);
    if config.ip_masq && !masquerade::present(&addresses, &owner)? {
        return Err(Error::internal("masquerading rules are missing"));
    }
    Ok(())
}

fn check_container(call: &Call, prev: &NetResult) -> Result<()> {
    let inside = |i: &&Interface| i.name == call.ifname && !i.sandbox.is_empty();
    let Some(expected) = prev.interfaces.iter().find(inside) else {
        return Err(Error::config(format!("prevResult has no interface {}", call.ifname)));
    };
    if expected.sandbox != call.netns.display().to_string() {
        return Err(Error::internal(format!(
            "sandbox in prevResult {} doesn't match configured netns: {}",
            expected.sandbox,
            call.netns.display()
        )));
    }
    let netns = Netns::open(&call.netns).map_err(|e| {
        Error::new(code::UNKNOWN_CONTAINER, format!("failed to open netns {:?}: {e}", call.netns.display()))
    })?;
    let mut container = Route::of(&netns)?;
    let link = expect(container.link(&call.ifname)?, &call.ifname)?;
    if link.mac != expected.mac {
        return Err(Error::internal(format!(
            "interface {} Mac {} doesn't match {}",
            link.name, link.mac, expected.mac
        )));
    }
    let addresses = container.addresses(link.index)?;
    for ip in &prev.ips {
        if !addresses.contains(&ip.address) {
            return Err(Error::internal(format!(
                "failed to match addr {} on interface {}",
                ip.address, link.name
            )));
        }
    }
    for route in &prev.routes {
        let routes = container.routes(link.index, route.dst.ip.is_ipv6())?;
        if !routes
            .iter()
            .any(|(dst, gw)| *dst == route.dst.network() && (route.gw.is_none() || *gw == route.gw))
        {
            return Err(Error::internal(format!("expected route to {} not found", route.dst)));
        }
    }
    Ok(())
}

fn expect(link: Option<Link>, name: &str) -> Result<Link> {
    match link {
        Some(link) if link.up => Ok(link),
        Some(_) => Err(Error::internal(format!("interface {name} is down"))),
        None => Err(Error::internal(format!("interface {name} does not exist"))),
    }
}
