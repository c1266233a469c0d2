//! Links to create: bridges, veth pairs and tunnels.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkHeader, LinkInfo},
};

use super::{Route, link::message};
use crate::{
    netlink::{Message, Result},
    netns::Netns,
};

const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// A veth pair to create: one end on a bridge here, the other in a container.
#[derive(Debug)]
pub struct VethPair<'a> {
    /// Name here.
    pub host_name: &'a str,
    /// Index of the bridge here, 0 for none.
    pub master: u32,
    /// Name there.
    pub peer_name: &'a str,
    /// The container's namespace.
    pub peer_netns: &'a Netns,
    /// Hardware address there.
    pub peer_mac: Option<[u8; 6]>,
    /// Largest packet on both ends; 0 for the default.
    pub mtu: u32,
}

/// A VXLAN tunnel to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its network's number.
    pub id: u32,
    /// UDP port.
    pub port: u16,
    /// Address packets leave from.
    pub local: IpAddr,
    /// Index of the link they leave on.
    pub below: u32,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Largest packet inside.
    pub mtu: u32,
}

impl Route {
    /// Creates a tunnel that is up and learns nothing by itself.
    pub fn create_vxlan(&mut self, vxlan: &Vxlan<'_>) -> Result<()> {
        let data = InfoData::Vxlan(vec![
            InfoVxlan::Id(vxlan.id),
            InfoVxlan::Link(vxlan.below),
            match vxlan.local {
                IpAddr::V4(ip) => InfoVxlan::Local(ip),
                IpAddr::V6(ip) => InfoVxlan::Local6(ip),
            },
            InfoVxlan::Learning(false),
            InfoVxlan::Port(vxlan.port),
        ]);
        let body = new(vec![
            LinkAttribute::IfName(vxlan.name.to_owned()),
            LinkAttribute::Address(vxlan.mac.to_vec()),
            LinkAttribute::Mtu(vxlan.mtu),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Vxlan), LinkInfo::Data(data)]),
        ]);
        self.socket.run(Message::route(body, CREATE, format!("creating tunnel {}", vxlan.name)))
    }

    /// Creates a bridge that is up, with a hardware address of its own that does not change with its ports.
    pub fn create_bridge(&mut self, name: &str, mtu: u32, mac: [u8; 6]) -> Result<()> {
        let mut attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Address(mac.to_vec())];
        attributes.extend((mtu > 0).then_some(LinkAttribute::Mtu(mtu)));
        attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
        self.socket.run(Message::route(new(attributes), CREATE, format!("creating bridge {name}")))
    }

    /// Creates a veth pair in one request: the peer is made in its namespace, the near end is up and on its bridge.
    pub fn create_veth(&mut self, pair: &VethPair<'_>) -> Result<()> {
        let action = format!("creating veth pair {} and {}", pair.host_name, pair.peer_name);
        self.socket.run(Message::route(veth(pair), CREATE, action))
    }
}

/// A link to create, which will be up.
fn new(attributes: Vec<LinkAttribute>) -> RouteNetlinkMessage {
    let header = LinkHeader { flags: LinkFlags::Up, change_mask: LinkFlags::Up, ..LinkHeader::default() };
    RouteNetlinkMessage::NewLink(message(header, attributes))
}

fn veth(pair: &VethPair<'_>) -> RouteNetlinkMessage {
    let mtu = (pair.mtu > 0).then_some(LinkAttribute::Mtu(pair.mtu));
    let mut far =
        vec![LinkAttribute::IfName(pair.peer_name.to_owned()), LinkAttribute::NetNsFd(pair.peer_netns.fd())];
    far.extend(mtu.clone());
    far.extend(pair.peer_mac.map(|mac| LinkAttribute::Address(mac.to_vec())));
    // Not up yet: the kernel makes the peer before the pair is joined.
    let peer = InfoData::Veth(InfoVeth::Peer(message(LinkHeader::default(), far)));
    let mut near = vec![LinkAttribute::IfName(pair.host_name.to_owned())];
    near.extend((pair.master > 0).then_some(LinkAttribute::Controller(pair.master)));
    near.extend(mtu);
    near.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)]));
    new(near)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::netlink::Attributes;

    // Attributes of <linux/if_link.h>.
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_MTU: u16 = 4;
    const IFLA_MASTER: u16 = 10;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_NET_NS_FD: u16 = 28;

    #[test]
    fn a_pair_is_one_request() {
        let netns = Netns::current().unwrap();
        let pair = VethPair {
            host_name: "veth0",
            master: 5,
            peer_name: "eth0",
            peer_netns: &netns,
            peer_mac: Some([2, 0, 0, 0, 0, 1]),
            mtu: 1400,
        };
        let built = Message::route(veth(&pair), CREATE, "");
        let up = 1_u32.to_ne_bytes();
        assert_eq!(built.bytes()[4..8], Message::new(libc::RTM_NEWLINK, CREATE, "").bytes()[4..8]);
        assert_eq!(built.bytes()[16..32], [&[0_u8; 8][..], &up[..], &up[..]].concat());
        let near = Attributes::new(&built.bytes()[32..]);
        assert_eq!(near.find_kind(IFLA_IFNAME), Some(&b"veth0\0"[..]));
        assert_eq!(near.find_kind(IFLA_MASTER), Some(&5_u32.to_ne_bytes()[..]));
        assert_eq!(near.find_kind(IFLA_MTU), Some(&1400_u32.to_ne_bytes()[..]));
        let info = Attributes::new(near.find_kind(IFLA_LINKINFO).unwrap());
        assert_eq!(info.find_kind(1), Some(&b"veth\0"[..]));
        // `VETH_INFO_PEER` begins with a header of its own, whose link is not up.
        let peer = Attributes::new(info.find_kind(2).unwrap()).find_kind(1).unwrap();
        assert_eq!(peer[..16], [0_u8; 16]);
        let far = Attributes::new(&peer[16..]);
        assert_eq!(far.find_kind(IFLA_IFNAME), Some(&b"eth0\0"[..]));
        assert_eq!(far.find_kind(IFLA_NET_NS_FD), Some(&netns.fd().to_ne_bytes()[..]));
        assert_eq!(far.find_kind(IFLA_MTU), Some(&1400_u32.to_ne_bytes()[..]));
        assert_eq!(far.find_kind(IFLA_ADDRESS), Some(&[2, 0, 0, 0, 0, 1][..]));
    }
}
