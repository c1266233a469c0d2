//! Which endpoints take a port's connections on this node. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::cluster::{Endpoint, Port, Slice};

/// An endpoint address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Address.
    pub ip: IpAddr,
    /// Port.
    pub port: u16,
}

/// Location of this node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeTopology<'a> {
    /// This node.
    pub node: &'a str,
    /// Its zone, empty when it has none.
    pub zone: &'a str,
    /// Service addresses that this node serves itself (DNS).
    pub answers_itself: &'a [IpAddr],
}

/// Endpoints of a port.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Picked {
    /// For connections that may go anywhere.
    pub cluster: Vec<Target>,
    /// For connections that stay on the node.
    pub local: Vec<Target>,
    /// There are endpoints, here or elsewhere.
    pub any: bool,
}

/// Picks endpoints: ready ones; where there are none, those that still serve while they end.
pub fn pick(port: &Port, slices: &[&Slice], place: &NodeTopology<'_>, v4: bool) -> Picked {
    let all = endpoints(port, slices, v4);
    let here = |endpoint: &Endpoint| endpoint.node.as_deref() == Some(place.node);
    let select = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<Target> {
        all.iter().filter(|(_, endpoint)| wanted(endpoint)).map(|(target, _)| *target).collect()
    };
    let or_ending = |wanted: &dyn Fn(&Endpoint) -> bool| -> Vec<Target> {
        let ready = select(&|endpoint| endpoint.ready && wanted(endpoint));
        match ready.is_empty() {
            true => select(&|endpoint| endpoint.serving && endpoint.terminating && wanted(endpoint)),
            false => ready,
        }
    };
    let mut cluster = or_ending(&|_| true);
    if let Some(near) = near(all.values().copied().filter(|endpoint| endpoint.ready), place) {
        cluster = select(&|endpoint| endpoint.ready && near(endpoint));
    }
    let local = or_ending(&here);
    Picked { any: !cluster.is_empty() || !local.is_empty(), cluster, local }
}

type Near<'a> = Box<dyn Fn(&Endpoint) -> bool + 'a>;

/// The endpoints hints name for this node, else for its zone. Hints count only when every endpoint has them and
/// somebody is named for here: upstream's rule, against half-written hints.
fn near<'a>(ready: impl Iterator<Item = &'a Endpoint> + Clone, place: &NodeTopology<'a>) -> Option<Near<'a>> {
    let (node, zone) = (place.node, place.zone);
    let for_node = move |endpoint: &Endpoint| endpoint.nodes.iter().any(|name| **name == *node);
    let for_zone = move |endpoint: &Endpoint| endpoint.zones.iter().any(|name| **name == *zone);
    if ready.clone().all(|endpoint| !endpoint.nodes.is_empty()) && ready.clone().any(for_node) {
        return Some(Box::new(for_node));
    }
    let hinted = ready.clone().all(|endpoint| !endpoint.zones.is_empty());
    (hinted && !zone.is_empty() && ready.clone().any(for_zone)).then(|| Box::new(for_zone) as Near<'a>)
}

/// Endpoints of the port, each target once; an endpoint that two slices tell of is ready if one says so.
fn endpoints<'a>(port: &Port, slices: &[&'a Slice], v4: bool) -> BTreeMap<Target, &'a Endpoint> {
    let mut all: BTreeMap<Target, &Endpoint> = BTreeMap::new();
    for slice in slices {
        let same = slice.ports.iter().find(|p| p.name == port.name && p.protocol == port.protocol);
        let Some(same) = same else { continue };
        for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.ip.is_ipv4() == v4) {
            let target = Target { ip: endpoint.ip, port: same.port };
            let kept = all.entry(target).or_insert(endpoint);
            if !kept.ready && endpoint.ready {
                *kept = endpoint;
            }
        }
    }
    all
}
