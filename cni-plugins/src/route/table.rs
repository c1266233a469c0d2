//! Routes.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, ParseableParametrized};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteHeader, RouteLwEnCapType, RouteMessage, RouteMetric,
        RouteProtocol, RouteScope, RouteType,
    },
};
use nix::errno::Errno;

use super::{Cidr, Route, attributes};
use crate::netlink::{Message, Result, Tolerate};

/// Length of `struct rtmsg`.
const HEADER: usize = 12;

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

/// A route marked with its owner's routing protocol number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnRoute {
    /// Where to.
    pub destination: Cidr,
    /// Over which router.
    pub gateway: IpAddr,
    /// On which link.
    pub link: u32,
}

impl RouteSpec {
    fn message(&self) -> RouteMessage {
        let usual = if self.gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
        let header = RouteHeader {
            scope: self.scope.map_or(usual, RouteScope::from),
            ..header(self.destination, RouteType::Unicast)
        };
        let network = self.destination.network();
        let mut attributes = Vec::new();
        attributes.extend((network.prefix > 0).then(|| RouteAttribute::Destination(network.ip.into())));
        attributes.extend(self.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
        attributes.push(RouteAttribute::Oif(self.link));
        attributes.extend((self.priority > 0).then_some(RouteAttribute::Priority(self.priority)));
        attributes.extend((self.table > 0).then_some(RouteAttribute::Table(self.table)));
        let mut metrics = Vec::new();
        metrics.extend((self.mtu > 0).then_some(RouteMetric::Mtu(self.mtu)));
        metrics.extend((self.advmss > 0).then_some(RouteMetric::Advmss(self.advmss)));
        if !metrics.is_empty() {
            attributes.push(RouteAttribute::Metrics(metrics));
        }
        message(header, attributes)
    }
}

/// A route of the main table, if no attribute names another one.
fn header(destination: Cidr, kind: RouteType) -> RouteHeader {
    RouteHeader {
        address_family: destination.ip.into(),
        destination_prefix_length: destination.prefix,
        table: RouteHeader::RT_TABLE_MAIN,
        protocol: RouteProtocol::Boot,
        kind,
        ..RouteHeader::default()
    }
}

fn message(header: RouteHeader, attributes: Vec<RouteAttribute>) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = header;
    message.attributes = attributes;
    message
}

/// A route as the kernel describes it.
struct ParsedRoute {
    header: RouteHeader,
    destination: Option<IpAddr>,
    gateway: Option<IpAddr>,
    link: Option<u32>,
}

impl ParsedRoute {
    fn parse(payload: &[u8]) -> Option<Self> {
        let header = RouteHeader::parse(payload).ok()?;
        let context = (header.address_family, header.kind, RouteLwEnCapType::None);
        let mut seen = ParsedRoute { header, destination: None, gateway: None, link: None };
        for attribute in attributes(payload, HEADER) {
            match RouteAttribute::parse_with_param(&attribute, context) {
                Ok(RouteAttribute::Destination(address)) => seen.destination = of(&address),
                Ok(RouteAttribute::Gateway(address)) => seen.gateway = of(&address),
                Ok(RouteAttribute::Oif(link)) => seen.link = Some(link),
                _ => {}
            }
        }
        Some(seen)
    }

    /// As a route of an owner.
    fn own(self, owner: u8) -> Option<OwnRoute> {
        if u8::from(self.header.protocol) != owner {
            return None;
        }
        let destination = Cidr { ip: self.destination?, prefix: self.header.destination_prefix_length };
        Some(OwnRoute { destination, gateway: self.gateway?, link: self.link? })
    }

    /// As a unicast route over a link: destination and gateway.
    fn over(self, link: u32, v6: bool) -> Option<(Cidr, Option<IpAddr>)> {
        if self.link != Some(link) || self.header.kind != RouteType::Unicast {
            return None;
        }
        let any = if v6 { IpAddr::from([0; 16]) } else { IpAddr::from([0; 4]) };
        let ip = self.destination.unwrap_or(any);
        Some((Cidr { ip, prefix: self.header.destination_prefix_length }, self.gateway))
    }
}

fn of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

impl Route {
    /// All routes of an owner.
    pub fn own_routes(&mut self, owner: u8, v6: bool) -> Result<Vec<OwnRoute>> {
        self.socket.list(listing(v6), |payload| ParsedRoute::parse(payload)?.own(owner))
    }

    /// Adds a route; the same one already there is fine.
    pub fn add_route(&mut self, route: &RouteSpec) -> Result<()> {
        let body = RouteNetlinkMessage::NewRoute(route.message());
        let action = format!("adding route to {}", route.destination);
        self.socket.run(Message::route(body, NLM_F_CREATE | NLM_F_EXCL, action)).tolerate(&[Errno::EEXIST])
    }

    /// Adds a route in place of another to the same destination.
    pub fn replace_route(&mut self, route: &RouteSpec) -> Result<()> {
        self.replace(route.message(), format!("adding route to {}", route.destination))
    }

    /// Adds a `prohibit` route to a table, replacing a route to the same destination.
    pub fn prohibit(&mut self, destination: Cidr, table: u32) -> Result<()> {
        let mut attributes = vec![RouteAttribute::Table(table)];
        let network = destination.network();
        attributes.extend((network.prefix > 0).then(|| RouteAttribute::Destination(network.ip.into())));
        let body = message(header(destination, RouteType::Prohibit), attributes);
        self.replace(body, format!("prohibiting {destination}"))
    }

    fn replace(&mut self, body: RouteMessage, action: String) -> Result<()> {
        let body = RouteNetlinkMessage::NewRoute(body);
        self.socket.run(Message::route(body, NLM_F_CREATE | NLM_F_REPLACE, action))
    }

    /// All unicast routes over a link: destination and gateway.
    pub fn routes(&mut self, link: u32, v6: bool) -> Result<Vec<(Cidr, Option<IpAddr>)>> {
        self.socket.list(listing(v6), |payload| ParsedRoute::parse(payload)?.over(link, v6))
    }
}

fn listing(v6: bool) -> Message {
    let address_family = if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let header = RouteHeader { address_family, ..RouteHeader::default() };
    let body = RouteNetlinkMessage::GetRoute(message(header, Vec::new()));
    Message::route(body, NLM_F_DUMP, "listing routes")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::route::octets;

    fn spec(destination: &str, gateway: Option<&str>) -> RouteSpec {
        RouteSpec {
            destination: destination.parse().unwrap(),
            gateway: gateway.map(|gateway| gateway.parse().unwrap()),
            link: 7,
            mtu: 0,
            advmss: 0,
            priority: 0,
            table: 0,
            scope: None,
        }
    }

    fn built(body: RouteMessage) -> Message {
        Message::route(RouteNetlinkMessage::NewRoute(body), 0, "")
    }

    #[test]
    fn routes_on_the_wire() {
        // `struct rtmsg` and attributes as <linux/rtnetlink.h> has them.
        let request = |head: [u8; 12]| Message::new(libc::RTM_NEWROUTE, 0, "").raw(&head);
        let cases = [
            (
                spec("0.0.0.0/0", Some("10.0.0.1")),
                request([2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]).attr(5, &[10, 0, 0, 1]).u32(4, 7),
            ),
            (
                spec("fd00::1:2/64", None),
                request([10, 64, 0, 0, 254, 3, 253, 1, 0, 0, 0, 0])
                    .attr(1, &octets("fd00::".parse().unwrap()))
                    .u32(4, 7),
            ),
            (
                RouteSpec { priority: 9, table: 89, scope: Some(200), ..spec("10.2.0.0/16", None) },
                request([2, 16, 0, 0, 254, 3, 200, 1, 0, 0, 0, 0])
                    .attr(1, &[10, 2, 0, 0])
                    .u32(4, 7)
                    .u32(6, 9)
                    .u32(15, 89),
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(built(spec.message()).bytes()[4..], expected.bytes()[4..], "{spec:?}");
        }
        let measured = RouteSpec { mtu: 1400, advmss: 1360, ..spec("10.2.0.0/16", None) };
        let metrics = measured.message().attributes.pop().unwrap();
        assert_eq!(metrics, RouteAttribute::Metrics(vec![RouteMetric::Mtu(1400), RouteMetric::Advmss(1360)]));
    }

    #[test]
    fn routes_are_read() {
        let own = OwnRoute {
            destination: "10.244.1.0/24".parse().unwrap(),
            gateway: "192.0.2.2".parse().unwrap(),
            link: 7,
        };
        let marked = Message::new(libc::RTM_NEWROUTE, 0, "")
            .raw(&[2, 24, 0, 0, 254, 67, 0, 1, 0, 0, 0, 0])
            .attr(1, &[10, 244, 1, 0])
            .attr(5, &[192, 0, 2, 2])
            .u32(4, 7);
        let marked = || ParsedRoute::parse(&marked.bytes()[16..]).unwrap();
        assert_eq!((marked().own(67), marked().own(68)), (Some(own), None));
        let seen = |body: RouteMessage| ParsedRoute::parse(&built(body).bytes()[16..]).unwrap();
        let default = spec("::/0", Some("fd00::1"));
        let expected = (default.destination, default.gateway);
        assert_eq!(seen(default.message()).over(7, true), Some(expected));
        assert_eq!(seen(default.message()).over(8, true), None);
        assert!(ParsedRoute::parse(&[2, 0, 0]).is_none());
    }
}
