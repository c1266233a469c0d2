//! Changes of links, addresses, routes and neighbours, with rtnetlink.
//!
//! Lists are not read here but with [`coracle_cni::route`]: a list that changed while it was read is read again, and an
//! attribute of a newer kernel that cannot be decoded hides no object.

use coracle_cni::netlink::{Attributes, Error, Result, Tolerate, u32_at};
use coracle_cni::route::{Cidr, Neighbour, NeighbourTable, OwnRoute, Vxlan};
use nix::errno::Errno;
use rtnetlink::packet_core::ErrorMessage;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::sys::AsyncSocket as _;
use rtnetlink::{Handle, LinkUnspec, LinkVxlan, NeighbourAddRequest, RouteMessageBuilder};
use std::io;
use std::net::IpAddr;
use tokio_util::task::AbortOnDropHandle;

const NUD_NOARP: u16 = 0x40;
const NUD_PERMANENT: u16 = 0x80;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// `NLMSGERR_ATTR_MSG`.
const TEXT: u16 = 1;

/// A connection to the kernel in the network namespace of the thread that opened it.
pub struct Links {
    handle: Handle,
    connection: AbortOnDropHandle<()>,
    /// Whether refusals repeat only the header of a request.
    capped: bool,
}

impl Links {
    /// Opens a connection, which a task of the current runtime serves.
    pub fn open() -> Result<Self> {
        let (mut connection, handle, _) = rtnetlink::new_connection().map_err(socket_error)?;
        let socket = connection.socket_mut().socket_mut();
        // Asks for the kernel's text beside an error code; older kernels return only the code.
        let _ = socket.set_ext_ack(true);
        let capped = socket.set_cap_ack(true).is_ok();
        Ok(Self { handle, connection: AbortOnDropHandle::new(tokio::spawn(connection)), capped })
    }

    /// Whether the connection has failed; every request fails from now on.
    pub fn is_closed(&self) -> bool {
        self.connection.is_finished()
    }

    /// Creates a tunnel that is up and learns nothing by itself.
    pub async fn create_vxlan(&self, vxlan: &Vxlan<'_>) -> Result<()> {
        let link = LinkVxlan::new(vxlan.name, vxlan.id)
            .dev(vxlan.below)
            .learning(false)
            .port(vxlan.port)
            .address(vxlan.mac.to_vec())
            .mtu(vxlan.mtu)
            .up();
        let link = match vxlan.local {
            IpAddr::V4(ip) => link.local(ip),
            IpAddr::V6(ip) => link.local6(ip),
        };
        let answer = self.handle.link().add(link.build()).execute().await;
        self.outcome(format!("creating tunnel {}", vxlan.name), answer)
    }

    /// Removes a link; one that is not there is fine.
    pub async fn remove_link(&self, name: &str) -> Result<()> {
        let link = LinkUnspec::new_with_name(name).build();
        let answer = self.handle.link().del_with_message(link).execute().await;
        self.outcome(format!("removing link {name}"), answer).tolerate(&[Errno::ENODEV])
    }

    /// Adds an address; the same one already there is fine. An IPv6 address is usable at once, without duplicate detection.
    pub async fn add_address(&self, link: u32, address: Cidr) -> Result<()> {
        let mut request = self.handle.address().add(link, address.ip, address.prefix);
        if address.ip.is_ipv6() {
            request.message_mut().header.flags = AddressHeaderFlags::Nodad;
        }
        let answer = request.execute().await;
        self.outcome(format!("adding address {address}"), answer).tolerate(&[Errno::EEXIST])
    }

    /// Adds an entry that stays, in place of one with the same key.
    pub async fn replace_neighbour(&self, table: NeighbourTable, link: u32, entry: Neighbour) -> Result<()> {
        let answer = self.neighbour(table, link, entry).replace().execute().await;
        self.outcome(format!("changing neighbour {}", entry.ip), answer)
    }

    /// Removes an entry; one that is not there is fine.
    pub async fn remove_neighbour(&self, table: NeighbourTable, link: u32, entry: Neighbour) -> Result<()> {
        let doomed = self.neighbour(table, link, entry).message_mut().clone();
        let answer = self.handle.neighbours().del(doomed).execute().await;
        self.outcome(format!("changing neighbour {}", entry.ip), answer).tolerate(&[Errno::ENOENT])
    }

    fn neighbour(&self, table: NeighbourTable, link: u32, entry: Neighbour) -> NeighbourAddRequest {
        let neighbours = self.handle.neighbours();
        match table {
            NeighbourTable::Neighbours => neighbours.add(link, entry.ip).link_layer_address(&entry.mac),
            NeighbourTable::Forwarding => neighbours
                .add_bridge(link, &entry.mac)
                .destination(entry.ip)
                .state(NeighbourState::Other(NUD_PERMANENT | NUD_NOARP))
                .flags(NeighbourFlags::Own),
        }
    }

    /// Adds a route whose router is on the link whatever its address, in place of another to the same destination.
    /// `owner` is the routing protocol's number that marks it.
    pub async fn replace_own_route(&self, route: OwnRoute, owner: u8) -> Result<()> {
        let action = format!("adding route to {}", route.destination);
        let message = own_route(route, owner, &action)?;
        let answer = self.handle.route().add(message).replace().execute().await;
        self.outcome(action, answer)
    }

    /// Removes a route; one that is not there is fine.
    pub async fn remove_own_route(&self, route: OwnRoute, owner: u8) -> Result<()> {
        let action = format!("removing route to {}", route.destination);
        let message = own_route(route, owner, &action)?;
        let answer = self.handle.route().del(message).execute().await;
        self.outcome(action, answer).tolerate(&[Errno::ESRCH])
    }

    fn outcome(&self, action: String, answer: std::result::Result<(), rtnetlink::Error>) -> Result<()> {
        match answer {
            // The answers of a connection that fails end without an error.
            Ok(()) if self.is_closed() => Err(Error::Socket(Errno::ENOTCONN)),
            Ok(()) => Ok(()),
            Err(rtnetlink::Error::NetlinkError(refusal)) => Err(refused(action, &refusal, self.capped)),
            Err(rtnetlink::Error::RequestFailed) => Err(Error::Socket(Errno::ENOTCONN)),
            Err(_) => Err(Error::Malformed),
        }
    }
}

fn own_route(route: OwnRoute, owner: u8, action: &str) -> Result<RouteMessage> {
    let network = route.destination.network();
    let built = RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(network.ip, network.prefix)
        .and_then(|message| message.gateway(route.gateway))
        .map_err(|error| Error::Refused {
            action: action.to_owned(),
            errno: Errno::EINVAL,
            message: error.to_string(),
        })?;
    Ok(built.output_interface(route.link).protocol(owner.into()).onlink().build())
}

/// The kernel's refusal, with its text if it sent one.
fn refused(action: String, refusal: &ErrorMessage, capped: bool) -> Error {
    // The text is behind the request: all of it, or only its header.
    let echoed = if capped { HEADER } else { (u32_at(&refusal.header, 0) as usize).next_multiple_of(4) };
    let text = refusal.header.get(echoed..).and_then(|rest| Attributes::new(rest).find_kind(TEXT));
    let message =
        text.map(|text| String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()).unwrap_or_default();
    Error::Refused { action, errno: Errno::from_raw(refusal.raw_code().saturating_neg()), message }
}

pub(super) fn socket_error(error: io::Error) -> Error {
    Error::Socket(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_cni::netlink::Message;
    use rtnetlink::packet_core::Emitable;
    use std::num::NonZeroI32;

    fn bytes(message: &impl Emitable) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn routes_on_the_wire() {
        let route = |destination: &str, gateway: &str| OwnRoute {
            destination: destination.parse().unwrap(),
            gateway: gateway.parse().unwrap(),
            link: 7,
        };
        // `struct rtmsg` and attributes as <linux/rtnetlink.h> has them.
        let [a, b, c, d] = 4_u32.to_ne_bytes();
        let expected = Message::new(libc::RTM_NEWROUTE, 0, "")
            .raw(&[2, 24, 0, 0, 254, 67, 0, 1, a, b, c, d])
            .attr(1, &[10, 244, 1, 0])
            .attr(5, &[192, 0, 2, 2])
            .u32(4, 7);
        let built = own_route(route("10.244.1.9/24", "192.0.2.2"), 67, "").unwrap();
        assert_eq!(bytes(&built), expected.bytes()[HEADER..]);
        let error = own_route(route("fd00::/64", "192.0.2.2"), 67, "adding route to fd00::/64").unwrap_err();
        assert!(error.to_string().starts_with("adding route to fd00::/64: EINVAL: "), "{error}");
    }

    #[tokio::test]
    async fn neighbours_on_the_wire() {
        use NeighbourTable::{Forwarding, Neighbours};

        let links = Links::open().unwrap();
        // Family, state and flags of `struct ndmsg`.
        for (table, ip, family, state, flags) in [
            (Neighbours, "10.0.0.1", libc::AF_INET, NUD_PERMANENT, 0),
            (Neighbours, "fd00::1", libc::AF_INET6, NUD_PERMANENT, 0),
            (Forwarding, "192.0.2.1", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP, 2),
            (Forwarding, "fd00::2", libc::AF_BRIDGE, NUD_PERMANENT | NUD_NOARP, 2),
        ] {
            let entry = Neighbour { ip: ip.parse().unwrap(), mac: [2, 0, 0, 0, 0, 1] };
            let [low, high] = state.to_ne_bytes();
            let expected = Message::new(libc::RTM_NEWNEIGH, 0, "")
                .raw(&[family as u8, 0, 0, 0])
                .raw(&7_u32.to_ne_bytes())
                .raw(&[low, high, flags, 0]);
            let built = bytes(links.neighbour(table, 7, entry).message_mut());
            assert_eq!(built[..12], expected.bytes()[HEADER..], "{entry:?}");
            let attributes = Attributes::new(&built[12..]);
            assert_eq!(attributes.find_kind(1), Some(&coracle_cni::route::octets(entry.ip)[..]));
            assert_eq!(attributes.find_kind(2), Some(&entry.mac[..]));
        }
    }

    #[test]
    fn refusals_have_the_kernel_s_words() {
        let mut request = Message::new(libc::RTM_DELLINK, 0, "").raw(&[0; 16]).text(3, "x0").bytes().to_vec();
        let length = u32::try_from(request.len()).unwrap();
        request[..4].copy_from_slice(&length.to_ne_bytes());
        let text = Message::new(0, 0, "").text(TEXT, "Device does not exist");
        for (capped, echoed) in [(false, request.len()), (true, HEADER)] {
            let mut refusal = ErrorMessage::default();
            refusal.code = NonZeroI32::new(-libc::ENODEV);
            refusal.header = [&request[..echoed], &text.bytes()[HEADER..]].concat();
            let error = refused("removing link x0".to_owned(), &refusal, capped);
            assert_eq!(error.errno(), Some(Errno::ENODEV));
            assert!(error.to_string().starts_with("removing link x0: ENODEV: "), "{error}");
            assert!(error.to_string().ends_with(" (Device does not exist)"), "{error}");
        }
    }

    #[tokio::test]
    async fn errors_name_the_request_and_the_code() {
        let links = Links::open().unwrap();
        // Nobody has this link, and few may try.
        let error = links.add_address(i32::MAX as u32, "192.0.2.1/32".parse().unwrap()).await.unwrap_err();
        assert!(error.to_string().starts_with("adding address 192.0.2.1/32: E"), "{error}");
        assert!(matches!(error.errno(), Some(Errno::EPERM | Errno::ENODEV)), "{error}");
        assert!(!links.is_closed());
    }
}
