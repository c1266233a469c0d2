//! Creates the bridge, its gateway addresses, and enables forwarding.

use std::{fs, time::SystemTime};

use nix::errno::Errno;

use super::{BridgeError, Config, names};
use crate::{
    protocol::Result,
    route::{Cidr, Link, Route},
};

/// Creates the bridge if it does not exist and brings it up.
pub fn ensure_bridge(route: &mut Route, config: &Config) -> Result<Link> {
    let name = &config.bridge;
    let link = match route.link(name)? {
        Some(link) => link,
        None => {
            let seed = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos() as u64);
            match route.create_bridge(name, config.mtu, names::bridge_mac(name, seed)) {
                // A concurrent ADD created it.
                Err(e) if e.errno() == Some(Errno::EEXIST) => {}
                other => other?,
            }
            // No router on it tells the host where to go; and the host's neighbour discovery works at once, not only
            // when nobody objected to its link-local address for two seconds. Addresses outlive a link that is taken down,
            // as those of IPv4 do. Without IPv6 none of these is there.
            for (switch, value) in [("accept_ra", "0"), ("accept_dad", "0"), ("keep_addr_on_down", "1")] {
                let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{switch}"), value);
            }
            route.link(name)?.ok_or_else(|| BridgeError::BridgeVanished { name: name.clone() })?
        }
    };
    if link.kind != "bridge" {
        return Err(BridgeError::NotABridge { name: name.clone() }.into());
    }
    if !link.up {
        route.set_up(link.index)?;
    }
    if config.promisc_mode && !link.promiscuous {
        route.set_promiscuous(link.index, true)?;
    }
    Ok(link)
}

/// Gives the bridge a gateway's address. Another one of the same subnet's family is in the way, unless it may go.
pub fn ensure_address(route: &mut Route, bridge: &Link, address: Cidr, force: bool) -> Result<()> {
    if !route.add_new_address(bridge.index, address)? {
        return Ok(());
    }
    let others = route.addresses(bridge.index)?.into_iter().filter(|other| {
        let same_family = other.ip.is_ipv4() == address.ip.is_ipv4();
        // IPv6 links have many addresses: only one of the same subnet is in the way.
        *other != address && same_family && (address.ip.is_ipv4() || other.contains(address.ip))
    });
    for other in others {
        if !force {
            route.remove_address(bridge.index, address)?;
            return Err(BridgeError::OtherAddress { bridge: bridge.name.clone(), address }.into());
        }
        route.remove_address(bridge.index, other)?;
    }
    Ok(())
}

/// Enables IP forwarding on the host.
pub fn ensure_forwarding(v4: bool, v6: bool) -> Result<(), BridgeError> {
    let switches = [(v4, "/proc/sys/net/ipv4/ip_forward"), (v6, "/proc/sys/net/ipv6/conf/all/forwarding")];
    for (_, path) in switches.into_iter().filter(|(wanted, _)| *wanted) {
        if fs::read_to_string(path).is_ok_and(|value| value.trim() == "1") {
            continue;
        }
        fs::write(path, "1").map_err(|source| BridgeError::Forwarding { path, source })?;
    }
    Ok(())
}
