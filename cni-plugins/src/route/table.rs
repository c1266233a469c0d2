//! Routes.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{
    Cidr, Route,
    address::{family, from_octets, octets},
};
use crate::netlink::{Attributes, Message, Result, Tolerate, u32_at};

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;

/// A route to add or to look for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteSpec {
    /// Where to.
    pub destination: Cidr,
    /// Over which router; none for what is on the link.
    pub gateway: Option<IpAddr>,
    /// On which link.
    pub link: u32,
    /// Largest packet, 0 for the link's.
    pub mtu: u32,
    /// Advertised segment size, 0 for the default.
    pub advmss: u32,
    /// Metric, 0 for the default.
    pub priority: u32,
    /// Routing table, 0 for main.
    pub table: u32,
    /// Scope; none for the usual one.
    pub scope: Option<u8>,
}

impl Route {
    /// Adds a route; the same one already there is fine.
    pub fn add_route(&mut self, route: &RouteSpec) -> Result<()> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let default_scope =
            if route.gateway.is_some() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
        let mut head = [0; 12];
        head[0] = family(route.destination.ip);
        head[1] = route.destination.prefix;
        head[4] = libc::RT_TABLE_MAIN;
        head[5] = libc::RTPROT_BOOT;
        head[6] = route.scope.unwrap_or(default_scope);
        head[7] = libc::RTN_UNICAST;
        let network = route.destination.network();
        let mut message =
            Message::new(libc::RTM_NEWROUTE, flags, format!("adding route to {}", route.destination))
                .raw(&head);
        if network.prefix > 0 {
            message = message.attr(RTA_DST, &octets(network.ip));
        }
        if let Some(gateway) = route.gateway {
            message = message.attr(RTA_GATEWAY, &octets(gateway));
        }
        message = message.u32(RTA_OIF, route.link);
        if route.priority > 0 {
            message = message.u32(RTA_PRIORITY, route.priority);
        }
        if route.table > 0 {
            message = message.u32(RTA_TABLE, route.table);
        }
        if route.mtu > 0 || route.advmss > 0 {
            message = message.nest(RTA_METRICS, |mut m| {
                for (kind, value) in [(RTAX_MTU, route.mtu), (RTAX_ADVMSS, route.advmss)] {
                    if value > 0 {
                        m = m.u32(kind, value);
                    }
                }
                m
            });
        }
        self.socket.run(message).tolerate(&[Errno::EEXIST])
    }

    /// All unicast routes over a link: destination and gateway.
    pub fn routes(&mut self, link: u32, v6: bool) -> Result<Vec<(Cidr, Option<IpAddr>)>> {
        let mut head = [0; 12];
        head[0] = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
        let mut found = Vec::new();
        let message = Message::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, "listing routes").raw(&head);
        self.socket.query(message, |payload| {
            let attributes = Attributes::new(payload.get(12..).unwrap_or_default());
            if attributes.find_kind(RTA_OIF).map(|v| u32_at(v, 0)) != Some(link)
                || payload.get(7) != Some(&libc::RTN_UNICAST)
            {
                return;
            }
            let any = if v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
            let ip = attributes.find_kind(RTA_DST).and_then(from_octets).unwrap_or(any);
            let prefix = payload.get(1).copied().unwrap_or(0);
            found.push((Cidr { ip, prefix }, attributes.find_kind(RTA_GATEWAY).and_then(from_octets)));
        })?;
        Ok(found)
    }
}
