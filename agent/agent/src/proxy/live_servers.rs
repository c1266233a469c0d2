//! Endpoints of the API servers without those that this node found dead: the server that would withdraw them may be the dead one.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::cluster::{Endpoint, Slice};

/// The slices without endpoints that are unfit on every port; as they are if nothing would take connections then.
pub fn without(slices: Vec<Arc<Slice>>, unfit: &BTreeSet<SocketAddr>) -> Vec<Arc<Slice>> {
    if unfit.is_empty() {
        return slices;
    }
    let kept: Vec<Arc<Slice>> = slices.iter().map(|slice| Arc::new(fit(slice, unfit))).collect();
    let ready = kept.iter().flat_map(|slice| slice.endpoints.iter()).any(|endpoint| endpoint.ready);
    if ready { kept } else { slices }
}

fn fit(slice: &Slice, unfit: &BTreeSet<SocketAddr>) -> Slice {
    let is_fit = |endpoint: &&Endpoint| {
        slice.ports.iter().any(|port| !unfit.contains(&SocketAddr::new(endpoint.ip, port.port)))
    };
    let endpoints = slice.endpoints.iter().filter(is_fit).cloned().collect();
    Slice { endpoints, ..slice.clone() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::SlicePort;

    fn slice(port: u16, ips: &[&str]) -> Arc<Slice> {
        let endpoint = |ip: &&str| Endpoint {
            ip: ip.parse().unwrap(),
            ready: true,
            serving: true,
            terminating: false,
            node: None,
            hostname: None,
            zones: Box::default(),
            nodes: Box::default(),
        };
        let ports = Box::new([SlicePort { name: "https".into(), port, ..SlicePort::default() }]);
        Arc::new(Slice { service: "kubernetes".into(), ports, endpoints: ips.iter().map(endpoint).collect() })
    }

    #[test]
    fn dead_servers_are_left_out_but_never_all() {
        let first = ["192.0.2.1", "192.0.2.2"];
        for (unfit, expected) in [
            (vec![], vec!["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
            (vec!["192.0.2.1:6443"], vec!["192.0.2.2", "192.0.2.3"]),
            (vec!["192.0.2.1:6444"], vec!["192.0.2.1", "192.0.2.2", "192.0.2.3"]),
            (vec!["192.0.2.1:6443", "192.0.2.3:7443"], vec!["192.0.2.2"]),
            (
                vec!["192.0.2.1:6443", "192.0.2.2:6443", "192.0.2.3:7443"],
                vec!["192.0.2.1", "192.0.2.2", "192.0.2.3"],
            ),
        ] {
            let dead = unfit.iter().map(|text| text.parse().unwrap()).collect();
            let kept = without(vec![slice(6443, &first), slice(7443, &["192.0.2.3"])], &dead);
            let endpoints = kept.iter().flat_map(|slice| slice.endpoints.iter());
            let ips: Vec<String> = endpoints.map(|endpoint| endpoint.ip.to_string()).collect();
            assert_eq!(ips, expected, "{unfit:?}");
        }
    }
}
