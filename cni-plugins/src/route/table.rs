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

/// A route that is marked as somebody's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnRoute {
    /// Where to.
    pub destination: Cidr,
    /// Over which router.
    pub gateway: IpAddr,
    /// On which link.
    pub link: u32,
}

impl OwnRoute {
    fn message(&self, kind: u16, flags: u16, owner: u8, action: &str) -> Message {
        const RTNH_F_ONLINK: u32 = 4;
        let mut head = [0; 12];
        head[0] = family(self.destination.ip);
        head[1] = self.destination.prefix;
        head[4] = libc::RT_TABLE_MAIN;
        head[5] = owner;
        head[6] = libc::RT_SCOPE_UNIVERSE;
        head[7] = libc::RTN_UNICAST;
        head[8..12].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
        Message::new(kind, flags, format!("{action} route to {}", self.destination))
            .raw(&head)
            .attr(RTA_DST, &octets(self.destination.network().ip))
            .attr(RTA_GATEWAY, &octets(self.gateway))
            .u32(RTA_OIF, self.link)
    }
}

impl Route {
    /// Adds a route whose router is on the link whatever its address, in place of another to the same destination.
    /// `owner` is the routing protocol's number that marks it.
    pub fn replace_own_route(&mut self, route: OwnRoute, owner: u8) -> Result<()> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        self.socket.run(route.message(libc::RTM_NEWROUTE, flags, owner, "adding"))
    }

    /// Removes a route; one that is not there is fine.
    pub fn remove_own_route(&mut self, route: OwnRoute, owner: u8) -> Result<()> {
        self.socket.run(route.message(libc::RTM_DELROUTE, 0, owner, "removing")).tolerate(&[Errno::ESRCH])
    }

    /// All routes of an owner.
    pub fn own_routes(&mut self, owner: u8, v6: bool) -> Result<Vec<OwnRoute>> {
        let mut head = [0; 12];
        head[0] = if v6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
        let message = Message::new(libc::RTM_GETROUTE, libc::NLM_F_DUMP as u16, "listing routes").raw(&head);
        let mut found = Vec::new();
        self.socket.query(message, |payload| {
            if payload.get(5) != Some(&owner) {
                return;
            }
            let attributes = Attributes::new(payload.get(12..).unwrap_or_default());
            let ip = attributes.find_kind(RTA_DST).and_then(from_octets);
            let gateway = attributes.find_kind(RTA_GATEWAY).and_then(from_octets);
            let link = attributes.find_kind(RTA_OIF).map(|v| u32_at(v, 0));
            let prefix = payload.get(1).copied().unwrap_or(0);
            if let (Some(ip), Some(gateway), Some(link)) = (ip, gateway, link) {
                found.push(OwnRoute { destination: Cidr { ip, prefix }, gateway, link });
            }
        })?;
        Ok(found)
    }

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
