//! Who has which port of which address: the first who asks keeps it for as long as it wants it. No clock, no tasks.

use coracle_informer::informer::Name;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Protocol and number.
pub type Port = (String, u64);

/// What all services hold and wait for.
#[derive(Default)]
pub struct Claims {
    holders: HashMap<(String, Port), Name>,
    held: HashMap<Name, BTreeSet<(String, Port)>>,
    /// With what each was told.
    waiting: BTreeMap<Name, String>,
}

/// What becomes of one service's wishes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Addresses it has now.
    pub given: BTreeSet<String>,
    /// Why it has not all of them, when it was not told so before.
    pub news: Option<String>,
    /// Those who wait, when something became free.
    pub heirs: Vec<Name>,
}

impl Claims {
    /// Gives a service the addresses it wants where none of its ports is somebody else's; what it had besides is free.
    pub fn settle(&mut self, name: &Name, wanted: &BTreeSet<String>, ports: &[Port]) -> Settled {
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
        let heirs = match freed.is_empty() {
            true => Vec::new(),
            false => self.waiting.keys().filter(|heir| *heir != name).cloned().collect(),
        };
        if !now.is_empty() {
            self.held.insert(name.clone(), now);
        }
        let told = match why.is_empty() {
            true => self.waiting.remove(name).unwrap_or_default(),
            false => self.waiting.insert(name.clone(), why.clone()).unwrap_or_default(),
        };
        Settled { given, news: (!why.is_empty() && why != told).then_some(why), heirs }
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
        let mut claims = Claims::default();
        assert_eq!(claims.settle(&web, &nodes, &http).given, nodes);
        let refused = claims.settle(&other, &nodes, &both);
        assert!(refused.given.is_empty());
        assert_eq!(
            refused.news.as_deref(),
            Some("port 80/TCP of 192.0.2.1, 192.0.2.2 is in use by service a/web")
        );
        assert_eq!(claims.settle(&other, &nodes, &both), Settled::default(), "it was told");
        assert_eq!(claims.settle(&other, &nodes, &both[1..]).given, nodes, "another port, another protocol");
        assert!(claims.settle(&other, &nodes, &both).given.is_empty());

        // The first one leaves one address: that one is free, the other is not.
        let one: BTreeSet<String> = ["192.0.2.1".into()].into();
        assert_eq!(claims.settle(&web, &one, &http).heirs, std::slice::from_ref(&other));
        let half = claims.settle(&other, &nodes, &both);
        assert_eq!(half.given, BTreeSet::from(["192.0.2.2".to_owned()]));
        assert_eq!(half.news.as_deref(), Some("port 80/TCP of 192.0.2.1 is in use by service a/web"));
        assert_eq!(claims.settle(&web, &BTreeSet::new(), &[]).heirs, std::slice::from_ref(&other));
        assert_eq!(claims.settle(&other, &nodes, &both), Settled { given: nodes, ..Settled::default() });
        assert!(claims.settle(&other, &BTreeSet::new(), &[]).heirs.is_empty() && claims.holders.is_empty());
    }
}
