//! CHECK: compares the kernel's state with the result of ADD.

use super::{BridgeError, Config, masquerade};
use crate::{
    ipam::Ipam,
    protocol::{Call, Interface, NetResult, Result},
    route::{Cidr, Link, Route},
};

/// CHECK: links, addresses, routes, masquerading and the reservation.
pub fn check(call: &Call) -> Result<()> {
    let config = Config::of(call)?;
    let prev = call.required_prev_result()?;
    Ipam::of(call).check(call)?;

    let mut host = Route::here()?;
    let bridge = expect(host.link(&config.bridge)?, &config.bridge)?;
    let ours = |i: &&Interface| i.sandbox.is_empty() && i.name != config.bridge;
    let Some(port) = prev.interfaces.iter().find(ours) else {
        return Err(BridgeError::NoHostInterface.into());
    };
    let port = expect(host.link(&port.name)?, &port.name)?;
    if port.master != bridge.index {
        return Err(BridgeError::NotAttached { port: port.name, bridge: bridge.name }.into());
    }
    check_container(call, &prev)?;

    let addresses: Vec<Cidr> = prev.ips.iter().map(|ip| ip.address).collect();
    let owner = masquerade::owner(&call.network, &call.container_id, &call.ifname);
    if config.ip_masq && !masquerade::present(&addresses, &owner)? {
        return Err(BridgeError::NoMasquerade.into());
    }
    Ok(())
}

fn check_container(call: &Call, prev: &NetResult) -> Result<()> {
    let inside = |i: &&Interface| i.name == call.ifname && !i.sandbox.is_empty();
    let Some(expected) = prev.interfaces.iter().find(inside) else {
        return Err(BridgeError::NoInterface { name: call.ifname.clone() }.into());
    };
    if expected.sandbox != call.netns.display().to_string() {
        let (sandbox, netns) = (expected.sandbox.clone(), call.netns.clone());
        return Err(BridgeError::Sandbox { sandbox, netns }.into());
    }
    let mut container = Route::of(&call.open_netns()?)?;
    let link = expect(container.link(&call.ifname)?, &call.ifname)?;
    if link.mac != expected.mac {
        let expected = expected.mac.clone();
        return Err(BridgeError::Mac { name: link.name, found: link.mac, expected }.into());
    }
    let addresses = container.addresses(link.index)?;
    for ip in &prev.ips {
        if !addresses.contains(&ip.address) {
            return Err(BridgeError::Address { address: ip.address, name: link.name }.into());
        }
    }
    for route in &prev.routes {
        let routes = container.routes(link.index, route.dst.ip.is_ipv6())?;
        if !routes
            .iter()
            .any(|(dst, gw)| *dst == route.dst.network() && (route.gw.is_none() || *gw == route.gw))
        {
            return Err(BridgeError::Route { destination: route.dst }.into());
        }
    }
    Ok(())
}

fn expect(link: Option<Link>, name: &str) -> Result<Link, BridgeError> {
    match link {
        Some(link) if link.up => Ok(link),
        Some(_) => Err(BridgeError::Down { name: name.to_owned() }),
        None => Err(BridgeError::Absent { name: name.to_owned() }),
    }
}
