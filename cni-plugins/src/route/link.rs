//! Links: reading and changing existing ones.

use netlink_packet_core::{DefaultNla, NLM_F_DUMP, Parseable, ParseableParametrized};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{
        InfoKind, LinkAttribute, LinkExtentMask, LinkFlags, LinkHeader, LinkMessage, LinkProtoInfoBridge,
    },
};
use nix::errno::Errno;

use super::{Route, attributes};
use crate::netlink::{Message, Result, Tolerate};

/// Length of `struct ifinfomsg`.
const HEADER: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `bridge`, `veth`, …; empty for hardware.
    pub kind: String,
    /// Hardware address.
    pub mac: String,
    /// Largest packet.
    pub mtu: u32,
    /// Index of its bridge, 0 for none.
    pub master: u32,
    /// Index of the other end of a veth pair, in the namespace where that is; 0 for none.
    pub peer: u32,
    /// Administratively up.
    pub up: bool,
    /// Promiscuous mode.
    pub promiscuous: bool,
}

impl Route {
    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let body = RouteNetlinkMessage::GetLink(message(LinkHeader::default(), vec![without_statistics()]));
        self.socket.list(Message::route(body, NLM_F_DUMP, "listing links"), parse)
    }

    /// The link of a name.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        let wanted = vec![LinkAttribute::IfName(name.to_owned()), without_statistics()];
        let body = RouteNetlinkMessage::GetLink(message(LinkHeader::default(), wanted));
        let mut found = None;
        let request = Message::route(body, 0, format!("looking for link {name}"));
        let asked = self.socket.query(request, |payload| found = parse(payload));
        asked.tolerate(&[Errno::ENODEV])?;
        Ok(found)
    }

    /// Sets the bridge port flags of a link.
    pub fn set_port(&mut self, index: u32, hairpin: bool, isolated: bool) -> Result<()> {
        let header = LinkHeader { interface_family: AddressFamily::Bridge, index, ..LinkHeader::default() };
        let flag =
            |kind: u16, on: bool| LinkProtoInfoBridge::Other(DefaultNla::new(kind, vec![u8::from(on)]));
        let flags = vec![flag(IFLA_BRPORT_MODE, hairpin), flag(IFLA_BRPORT_ISOLATED, isolated)];
        let body = RouteNetlinkMessage::SetLink(message(header, vec![LinkAttribute::ProtoInfoBridge(flags)]));
        self.socket.run(Message::route(body, 0, "setting bridge port flags"))
    }

    /// Brings a link up.
    pub fn set_up(&mut self, index: u32) -> Result<()> {
        self.set_flags(index, LinkFlags::Up, LinkFlags::Up)
    }

    /// Takes a link down.
    pub fn set_down(&mut self, index: u32) -> Result<()> {
        self.set_flags(index, LinkFlags::empty(), LinkFlags::Up)
    }

    /// Sets promiscuous mode.
    pub fn set_promiscuous(&mut self, index: u32, on: bool) -> Result<()> {
        let flags = if on { LinkFlags::Promisc } else { LinkFlags::empty() };
        self.set_flags(index, flags, LinkFlags::Promisc)
    }

    fn set_flags(&mut self, index: u32, flags: LinkFlags, change_mask: LinkFlags) -> Result<()> {
        let header = LinkHeader { index, flags, change_mask, ..LinkHeader::default() };
        let body = RouteNetlinkMessage::NewLink(message(header, Vec::new()));
        self.socket.run(Message::route(body, 0, "changing link flags"))
    }

    /// Attaches a link to a bridge.
    pub fn set_master(&mut self, index: u32, master: u32) -> Result<()> {
        let header = LinkHeader { index, ..LinkHeader::default() };
        let body = RouteNetlinkMessage::NewLink(message(header, vec![LinkAttribute::Controller(master)]));
        self.socket.run(Message::route(body, 0, "joining the bridge"))
    }

    /// Removes a link; one that is not there is fine.
    pub fn remove_link(&mut self, name: &str) -> Result<()> {
        let doomed = message(LinkHeader::default(), vec![LinkAttribute::IfName(name.to_owned())]);
        let body = RouteNetlinkMessage::DelLink(doomed);
        self.socket.run(Message::route(body, 0, format!("removing link {name}"))).tolerate(&[Errno::ENODEV])
    }
}

pub(super) fn message(header: LinkHeader, attributes: Vec<LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header = header;
    message.attributes = attributes;
    message
}

fn without_statistics() -> LinkAttribute {
    LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])
}

fn parse(payload: &[u8]) -> Option<Link> {
    let header = LinkHeader::parse(payload).ok()?;
    let mut link = Link {
        index: header.index,
        up: header.flags.contains(LinkFlags::Up),
        promiscuous: header.flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    for attribute in attributes(payload, HEADER) {
        match attribute.kind() {
            // Of what tells its kind only that: every kind has data of its own.
            IFLA_LINKINFO => {
                let kind = attributes(attribute.value(), 0).find_map(|info| InfoKind::parse(&info).ok());
                link.kind = kind.map(|kind| kind.to_string()).unwrap_or_default();
            }
            IFLA_ADDRESS | IFLA_IFNAME | IFLA_MTU | IFLA_LINK | IFLA_MASTER => {
                match LinkAttribute::parse_with_param(&attribute, header.interface_family) {
                    Ok(LinkAttribute::IfName(name)) => link.name = name,
                    Ok(LinkAttribute::Address(mac)) => link.mac = format_mac(&mac),
                    Ok(LinkAttribute::Mtu(mtu)) => link.mtu = mtu,
                    Ok(LinkAttribute::Link(peer)) => link.peer = peer,
                    Ok(LinkAttribute::Controller(master)) => link.master = master,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    Some(link)
}

fn format_mac(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{InfoData, LinkInfo};

    use super::*;

    #[test]
    fn a_link_is_read_whatever_else_the_kernel_says() {
        let header =
            LinkHeader { index: 7, flags: LinkFlags::Up | LinkFlags::Running, ..LinkHeader::default() };
        let attributes = vec![
            // Shorter than any kernel has it.
            LinkAttribute::Other(DefaultNla::new(14, vec![1])),
            LinkAttribute::IfName("coracle-vxlan".to_owned()),
            LinkAttribute::Mtu(1450),
            LinkAttribute::Link(9),
            LinkAttribute::Controller(3),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 0xff]),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Vxlan),
                LinkInfo::Data(InfoData::Other(vec![8, 0, 1, 0, 9, 0, 0, 0])),
            ]),
        ];
        let body = RouteNetlinkMessage::NewLink(message(header, attributes));
        let expected = Link {
            index: 7,
            name: "coracle-vxlan".to_owned(),
            kind: "vxlan".to_owned(),
            mac: "02:00:00:00:00:ff".to_owned(),
            mtu: 1450,
            master: 3,
            peer: 9,
            up: true,
            promiscuous: false,
        };
        assert_eq!(parse(&Message::route(body, 0, "").bytes()[16..]), Some(expected));
        assert_eq!(parse(&[0; 15]), None);
    }
}
