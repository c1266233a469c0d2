//! Allocation of ports of node addresses to Services, first come, first served. No clock, no tasks.

use coracle_informer::informer::Name;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Protocol and number.
pub type Port = (String, u64);

/// The ports of all Services, and the Services that wait for one.
#[derive(Default)]
pub struct PortAllocations {
    holders: HashMap<(String, Port), Name>,
    held: HashMap<Name, BTreeSet<(String, Port)>>,
    /// Waiting Services, with the last message.
    waiting: BTreeMap<Name, String>,
}

/// Result of the allocation for one Service.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Allocated addresses.
    pub given: BTreeSet<String>,
    /// Why some are missing, if this has changed.
    pub news: Option<String>,
    /// Waiting Services that may be retried, because ports were freed.
    pub unblocked: Vec<Name>,
}

impl PortAllocations {
    /// Allocates the wanted addresses on which all ports are free, and releases all others of the Service.
    pub fn allocate(&mut self, name: &Name, wanted: &BTreeSet<String>, ports: &[Port]) -> Allocation {
        let mut given = BTreeSet::new();
        let mut taken: BTreeMap<(&Port, &Name), Vec<&str>> = BTreeMap::new();
        for ip in wanted {
            let others = ports.iter().filter_map(|port| {
                let holder = self.holders.get(&(ip.clone(), port.clone()))?;
                (holder != name).then_some((port, holder))
            });
            let others: Vec<(&Port, &Name)> = others.collect();
            if others.is_empty() {
                given.insert(ip.clone());
            }
            others.into_iter().for_each(|other| taken.entry(other).or_default().push(ip));
        }
        let why = taken.iter().map(|(((protocol, port), holder), ips)| {
            format!("port {port}/{protocol} of {} is in use by service {holder}", ips.join(", "))
        });
        let why = why.collect::<Vec<_>>().join("; ");

        let now: BTreeSet<(String, Port)> =
            given.iter().flat_map(|ip| ports.iter().map(|port| (ip.clone(), port.clone()))).collect();
        let before = self.held.remove(name).unwrap_or_default();
        let freed: Vec<_> = before.difference(&now).collect();
        freed.iter().for_each(|key| drop(self.holders.remove(*key)));
        now.iter().for_each(|key| drop(self.holders.insert(key.clone(), name.clone())));
        let unblocked = match freed.is_empty() {
            true => Vec::new(),
            false => self.waiting.keys().filter(|waiter| *waiter != name).cloned().collect(),
        };
        if !now.is_empty() {
            self.held.insert(name.clone(), now);
        }
        let told = match why.is_empty() {
            true => self.waiting.remove(name).unwrap_or_default(),
            false => self.waiting.insert(name.clone(), why.clone()).unwrap_or_default(),
        };
        Allocation { given, news: (!why.is_empty() && why != told).then_some(why), unblocked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_an_address_has_one_holder_and_heirs() {
        let (web, other) = (Name::new("a", "web"), Name::new("b", "other"));
        let nodes: BTreeSet<String> = ["192.0.2.1".into(), "192.0.2.2".into()].into();
        let (http, both) = ([("TCP".to_owned(), 80)], [("TCP".to_owned(), 80), ("UDP".to_owned(), 53)]);
        let mut port_allocations = PortAllocations::default();
        assert_eq!(port_allocations.allocate(&web, &nodes, &http).given, nodes);
        let refused = port_allocations.allocate(&other, &nodes, &both);
        assert!(refused.given.is_empty());
        assert_eq!(
            refused.news.as_deref(),
            Some("port 80/TCP of 192.0.2.1, 192.0.2.2 is in use by service a/web")
        );
        assert_eq!(port_allocations.allocate(&other, &nodes, &both), Allocation::default(), "it was told");
        assert_eq!(
            port_allocations.allocate(&other, &nodes, &both[1..]).given,
            nodes,
            "another port, another protocol"
        );
        assert!(port_allocations.allocate(&other, &nodes, &both).given.is_empty());

        // The first one leaves one address: that one is free, the other is not.
        let one: BTreeSet<String> = ["192.0.2.1".into()].into();
        assert_eq!(port_allocations.allocate(&web, &one, &http).unblocked, std::slice::from_ref(&other));
        let half = port_allocations.allocate(&other, &nodes, &both);
        assert_eq!(half.given, BTreeSet::from(["192.0.2.2".to_owned()]));
        assert_eq!(half.news.as_deref(), Some("port 80/TCP of 192.0.2.1 is in use by service a/web"));
        assert_eq!(
            port_allocations.allocate(&web, &BTreeSet::new(), &[]).unblocked,
            std::slice::from_ref(&other)
        );
        assert_eq!(
            port_allocations.allocate(&other, &nodes, &both),
            Allocation { given: nodes, ..Allocation::default() }
        );
        assert!(
            port_allocations.allocate(&other, &BTreeSet::new(), &[]).unblocked.is_empty()
                && port_allocations.holders.is_empty()
        );
    }
}
