//! Removes stale conntrack and session affinity entries.

use coracle_cni::conntrack::{Conntrack, Flow, UDP};
use coracle_cni::netlink;
use coracle_cni::nft::{Element, Nft};
use std::collections::HashSet;
use std::net::IpAddr;

use super::plan::{Key, Target};
use super::rules::{self, TABLE};

/// Entries to remove.
#[derive(Debug, Default)]
pub struct Stale {
    /// Endpoints of UDP ports that are gone.
    pub dead: HashSet<Target>,
    /// Keys of UDP ports that had no endpoints before: earlier packets were not translated.
    pub revived: Vec<Key>,
    /// Removed endpoints with session affinity.
    pub left: HashSet<Target>,
}

impl Stale {
    /// Removes the entries; `may_stay` is asked for each session affinity of a family. On error they stay until they time
    /// out.
    pub fn forget(&self, nft: &mut Nft, may_stay: impl Fn(&Element, bool) -> bool) -> netlink::Result<()> {
        for v4 in [true, false] {
            if self.left.iter().any(|target| target.ip.is_ipv4() == v4) {
                nft.remove_elements(TABLE, &[rules::affinity(v4)], |element| !may_stay(element, v4))?;
            }
            if self.touches(v4) {
                let removed = Conntrack::open()?.remove(v4, |flow| self.is_stale(flow))?;
                tracing::debug!(removed, "stale conntrack entries removed");
            }
        }
        Ok(())
    }

    fn touches(&self, v4: bool) -> bool {
        let of_family = |key: &Key| match key {
            Key::Address { ip, .. } | Key::Cluster(ip) => ip.is_ipv4() == v4,
            Key::Node { v4: family, .. } => *family == v4,
        };
        self.dead.iter().any(|target| target.ip.is_ipv4() == v4) || self.revived.iter().any(of_family)
    }

    fn is_stale(&self, flow: &Flow) -> bool {
        let (ip, port) = flow.answered_by;
        let led = flow.answered_by != flow.destination;
        if flow.protocol != UDP {
            return false;
        }
        if led {
            return self.dead.contains(&Target { ip, port });
        }
        self.revived.iter().any(|key| leads(key, flow.destination))
    }
}

fn leads(key: &Key, destination: (IpAddr, u16)) -> bool {
    match *key {
        Key::Address { ip, port, .. } => (ip, port) == destination,
        Key::Node { v4, port, .. } => v4 == destination.0.is_ipv4() && port == destination.1,
        Key::Cluster(_) => false,
    }
}
