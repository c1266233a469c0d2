//! Notifications of the kernel about links, addresses and routes.

use coracle_cni::netlink::Result;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::SocketAddr;
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

use super::links::socket_error;

const GROUPS: [MulticastGroup; 5] = [
    MulticastGroup::Link,
    MulticastGroup::Ipv4Ifaddr,
    MulticastGroup::Ipv6Ifaddr,
    MulticastGroup::Ipv4Route,
    MulticastGroup::Ipv6Route,
];
/// How long notifications after a change of our own are ignored: most are about it.
const OWN_CHANGES: Duration = Duration::from_secs(1);

/// What the node network consists of.
#[derive(Debug, Default)]
pub struct Watched {
    /// Indexes of the tunnel and of the link below it.
    pub links: Vec<u32>,
    /// Routing protocol number of our routes.
    pub owner: u8,
}

/// A connection that receives notifications.
pub struct Notifications {
    messages: UnboundedReceiver<(NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>,
    ignored_until: Instant,
    _connection: AbortOnDropHandle<()>,
}

impl Notifications {
    /// Opens a connection, which a task of the current runtime serves.
    pub fn open() -> Result<Self> {
        let (connection, _, messages) = rtnetlink::new_multicast_connection(&GROUPS).map_err(socket_error)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        Ok(Self { messages, ignored_until: Instant::now(), _connection: connection })
    }

    /// Ignores what is said next, because this process changed something.
    pub fn ignore_own_changes(&mut self) {
        self.ignored_until = Instant::now() + OWN_CHANGES;
    }

    /// Waits until another program changes or removes something of what is watched; false if the connection has failed.
    /// Changes may be missed: they are found by the next full check.
    pub async fn changed(&mut self, watched: &Watched) -> bool {
        loop {
            let Some((message, _)) = self.messages.next().await else { return false };
            if concerns(&message.payload, watched) && Instant::now() >= self.ignored_until {
                return true;
            }
        }
    }
}

fn concerns(message: &NetlinkPayload<RouteNetlinkMessage>, watched: &Watched) -> bool {
    match message {
        // Some were lost.
        NetlinkPayload::Overrun(_) => true,
        NetlinkPayload::InnerMessage(
            RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
        ) => watched.links.contains(&link.header.index),
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelAddress(address)) => {
            watched.links.contains(&address.header.index)
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelRoute(route)) => {
            u8::from(route.header.protocol) == watched.owner
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::address::AddressMessage;
    use rtnetlink::packet_route::link::LinkMessage;
    use rtnetlink::packet_route::route::RouteMessage;

    #[test]
    fn only_what_is_ours_is_looked_at() {
        let watched = Watched { links: vec![2, 7], owner: 67 };
        let is_ours = |message| concerns(&NetlinkPayload::InnerMessage(message), &watched);
        for (index, ours) in [(7, true), (8, false)] {
            let (mut link, mut address) = (LinkMessage::default(), AddressMessage::default());
            (link.header.index, address.header.index) = (index, index);
            assert_eq!(is_ours(RouteNetlinkMessage::NewLink(link.clone())), ours);
            assert_eq!(is_ours(RouteNetlinkMessage::DelLink(link)), ours);
            assert!(!is_ours(RouteNetlinkMessage::NewAddress(address.clone())), "nothing is missing");
            assert_eq!(is_ours(RouteNetlinkMessage::DelAddress(address)), ours);
        }
        for (owner, ours) in [(67_u8, true), (3, false)] {
            let mut route = RouteMessage::default();
            route.header.protocol = owner.into();
            assert!(!is_ours(RouteNetlinkMessage::NewRoute(route.clone())));
            assert_eq!(is_ours(RouteNetlinkMessage::DelRoute(route)), ours);
        }
        assert!(concerns(&NetlinkPayload::Overrun(Vec::new()), &watched));
    }
}
