//! Links.

use std::net::IpAddr;

use nix::errno::Errno;

use super::{Route, address::octets};
use crate::{
    netlink::{Attributes, Message, Result, Tolerate, u32_at},
    netns::Netns,
};

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_ISOLATED: u16 = 33;
const IFLA_VXLAN_ID: u16 = 1;
const IFLA_VXLAN_LINK: u16 = 3;
const IFLA_VXLAN_LOCAL: u16 = 4;
const IFLA_VXLAN_LEARNING: u16 = 7;
const IFLA_VXLAN_PORT: u16 = 15;
const IFLA_VXLAN_LOCAL6: u16 = 17;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const UP: u32 = libc::IFF_UP as u32;
const PROMISC: u32 = libc::IFF_PROMISC as u32;

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
    /// Administratively up.
    pub up: bool,
    /// Receives everything.
    pub promiscuous: bool,
}

/// What a new veth pair is like: one end on a bridge here, the other in a container.
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

/// What a new tunnel is like.
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
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let local = if vxlan.local.is_ipv4() { IFLA_VXLAN_LOCAL } else { IFLA_VXLAN_LOCAL6 };
        let message = Message::new(libc::RTM_NEWLINK, flags, format!("creating tunnel {}", vxlan.name))
            .raw(&header(0, UP, UP))
            .text(IFLA_IFNAME, vxlan.name)
            .attr(IFLA_ADDRESS, &vxlan.mac)
            .u32(IFLA_MTU, vxlan.mtu)
            .nest(IFLA_LINKINFO, |m| {
                m.attr(IFLA_INFO_KIND, b"vxlan").nest(IFLA_INFO_DATA, |m| {
                    m.u32(IFLA_VXLAN_ID, vxlan.id)
                        .u32(IFLA_VXLAN_LINK, vxlan.below)
                        .attr(local, &octets(vxlan.local))
                        .attr(IFLA_VXLAN_LEARNING, &[0])
                        .attr(IFLA_VXLAN_PORT, &vxlan.port.to_be_bytes())
                })
            });
        self.socket.run(message)
    }

    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let message = Message::new(libc::RTM_GETLINK, libc::NLM_F_DUMP as u16, "listing links")
            .raw(&header(0, 0, 0))
            .u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        let mut found = Vec::new();
        self.socket.query(message, |payload| found.push(parse(payload)))?;
        Ok(found)
    }

    /// The link of a name.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>> {
        let message = Message::new(libc::RTM_GETLINK, 0, format!("looking for link {name}"))
            .raw(&header(0, 0, 0))
            .text(IFLA_IFNAME, name)
            .u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
        let mut found = None;
        let asked = self.socket.query(message, |payload| found = Some(parse(payload)));
        asked.tolerate(&[Errno::ENODEV])?;
        Ok(found)
    }

    /// Creates a bridge that is up, with a hardware address of its own that does not change with its ports.
    pub fn create_bridge(&mut self, name: &str, mtu: u32, mac: [u8; 6]) -> Result<()> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mut message = Message::new(libc::RTM_NEWLINK, flags, format!("creating bridge {name}"))
            .raw(&header(0, UP, UP))
            .text(IFLA_IFNAME, name)
            .attr(IFLA_ADDRESS, &mac);
        if mtu > 0 {
            message = message.u32(IFLA_MTU, mtu);
        }
        self.socket.run(message.nest(IFLA_LINKINFO, |m| m.attr(IFLA_INFO_KIND, b"bridge")))
    }

    /// Creates a veth pair in one request: the peer is made in its namespace, the near end is up and on its bridge.
    pub fn create_veth(&mut self, pair: &VethPair<'_>) -> Result<()> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let mtu = |m: Message| if pair.mtu > 0 { m.u32(IFLA_MTU, pair.mtu) } else { m };
        let action = format!("creating veth pair {} and {}", pair.host_name, pair.peer_name);
        let mut message = Message::new(libc::RTM_NEWLINK, flags, action)
            .raw(&header(0, UP, UP))
            .text(IFLA_IFNAME, pair.host_name);
        if pair.master > 0 {
            message = message.u32(IFLA_MASTER, pair.master);
        }
        let message = mtu(message).nest(IFLA_LINKINFO, |m| {
            m.attr(IFLA_INFO_KIND, b"veth").nest(IFLA_INFO_DATA, |m| {
                m.nest(VETH_INFO_PEER, |m| {
                    // Not up yet: the kernel makes the peer before the pair is joined.
                    let m = m
                        .raw(&header(0, 0, 0))
                        .text(IFLA_IFNAME, pair.peer_name)
                        .attr(IFLA_NET_NS_FD, &pair.peer_netns.fd().to_ne_bytes());
                    let m = mtu(m);
                    match pair.peer_mac {
                        Some(mac) => m.attr(IFLA_ADDRESS, &mac),
                        None => m,
                    }
                })
            })
        });
        self.socket.run(message)
    }

    /// Sets the bridge port flags of a link.
    pub fn set_port(&mut self, index: u32, hairpin: bool, isolated: bool) -> Result<()> {
        let mut head = header(index, 0, 0);
        head[0] = libc::AF_BRIDGE as u8;
        let message = Message::new(libc::RTM_SETLINK, 0, "setting bridge port flags").raw(&head).nest(
            IFLA_PROTINFO,
            |m| {
                m.attr(IFLA_BRPORT_MODE, &[u8::from(hairpin)])
                    .attr(IFLA_BRPORT_ISOLATED, &[u8::from(isolated)])
            },
        );
        self.socket.run(message)
    }

    /// Brings a link up.
    pub fn set_up(&mut self, index: u32) -> Result<()> {
        self.set_flags(index, UP, UP)
    }

    /// Takes a link down.
    pub fn set_down(&mut self, index: u32) -> Result<()> {
        self.set_flags(index, 0, UP)
    }

    /// Makes a link receive everything, or no longer.
    pub fn set_promiscuous(&mut self, index: u32, on: bool) -> Result<()> {
        self.set_flags(index, if on { PROMISC } else { 0 }, PROMISC)
    }

    fn set_flags(&mut self, index: u32, flags: u32, mask: u32) -> Result<()> {
        let message =
            Message::new(libc::RTM_NEWLINK, 0, "changing link flags").raw(&header(index, flags, mask));
        self.socket.run(message)
    }

    /// Attaches a link to a bridge.
    pub fn set_master(&mut self, index: u32, master: u32) -> Result<()> {
        let message = Message::new(libc::RTM_NEWLINK, 0, "joining the bridge")
            .raw(&header(index, 0, 0))
            .u32(IFLA_MASTER, master);
        self.socket.run(message)
    }

    /// Removes a link; one that is not there is fine.
    pub fn remove_link(&mut self, name: &str) -> Result<()> {
        let message = Message::new(libc::RTM_DELLINK, 0, format!("removing link {name}"))
            .raw(&header(0, 0, 0))
            .text(IFLA_IFNAME, name);
        self.socket.run(message).tolerate(&[Errno::ENODEV])
    }
}

/// `struct ifinfomsg`.
fn header(index: u32, flags: u32, mask: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&mask.to_ne_bytes());
    bytes
}

fn parse(payload: &[u8]) -> Link {
    let flags = u32_at(payload, 8);
    let mut link = Link {
        index: u32_at(payload, 4),
        up: flags & UP != 0,
        promiscuous: flags & PROMISC != 0,
        ..Link::default()
    };
    for (kind, value) in Attributes::new(payload.get(16..).unwrap_or_default()) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_ADDRESS => link.mac = format_mac(value),
            IFLA_MTU => link.mtu = u32_at(value, 0),
            IFLA_MASTER => link.master = u32_at(value, 0),
            IFLA_LINKINFO => {
                link.kind = Attributes::new(value).find_kind(IFLA_INFO_KIND).map(text).unwrap_or_default();
            }
            _ => {}
        }
    }
    link
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
}

fn format_mac(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}
