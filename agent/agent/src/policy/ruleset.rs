//! Rules as data, and the changes from one set of them to the next.

use coracle_cni::nft::{
    Base, Batch, Ct, Data, Element, Expr, Hook, INET, KeyType, Meta, SetSpec, Table, Verdict, reg,
};
use std::collections::{BTreeMap, BTreeSet};

use super::direction::Direction;

/// Our table.
pub const TABLE: Table = Table { family: INET, name: "coracle_policy" };

/// What the keys of a set are made of; the flag says IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// An address.
    Address(bool),
    /// Two addresses.
    Pair(bool),
    /// An address, a protocol and a port.
    AddressPort(bool),
}

impl Keys {
    fn parts(self) -> Vec<KeyType> {
        let address = |v4: bool| if v4 { KeyType::Ipv4 } else { KeyType::Ipv6 };
        match self {
            Keys::Address(v4) => vec![address(v4)],
            Keys::Pair(v4) => vec![address(v4), address(v4)],
            Keys::AddressPort(v4) => vec![address(v4), KeyType::Protocol, KeyType::Port],
        }
    }
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// Its rules.
    pub rules: Vec<Vec<Expr>>,
    /// Shown with each.
    pub comment: String,
}

/// Everything but the base chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruleset {
    /// Sets by name.
    pub sets: BTreeMap<String, (Option<Keys>, BTreeSet<Vec<u8>>)>,
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Maps from addresses of pods to chains.
    pub maps: BTreeMap<String, BTreeMap<Vec<u8>, String>>,
}

impl Ruleset {
    /// A set's keys, to add to.
    pub fn keys(&mut self, set: &str, keys: Keys) -> &mut BTreeSet<Vec<u8>> {
        let entry = self.sets.entry(set.to_owned()).or_default();
        entry.0 = Some(keys);
        &mut entry.1
    }
}

/// Makes everything from nothing, whatever was there before, at once.
pub fn rebuild(new: &Ruleset) -> Batch {
    let mut batch = Batch::new();
    batch.table(TABLE);
    batch.delete_table(TABLE);
    batch.table(TABLE);
    base(&mut batch);
    change(&mut batch, &Ruleset::default(), new);
    batch
}

/// Removes everything; a table that is not there is made first, so that it can be removed.
pub fn clear() -> Batch {
    let mut batch = Batch::new();
    batch.table(TABLE);
    batch.delete_table(TABLE);
    batch
}

/// Only what is different.
pub fn update(old: &Ruleset, new: &Ruleset) -> Batch {
    let mut batch = Batch::new();
    change(&mut batch, old, new);
    batch
}

/// What is let through before any policy is asked: what belongs to a known connection, and neighbours finding each other.
pub fn always() -> Vec<Vec<Expr>> {
    const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
    const ICMP6: u8 = 58;
    let accept = Expr::Verdict(Verdict::Accept);
    vec![
        vec![
            Expr::Ct { key: Ct::State, to: reg(0) },
            Expr::Mask { at: reg(0), mask: ESTABLISHED_OR_RELATED.to_ne_bytes().to_vec() },
            Expr::Compare { from: reg(0), equal: false, value: vec![0; 4] },
            accept.clone(),
        ],
        vec![
            Expr::Meta { key: Meta::L4Proto, to: reg(0) },
            Expr::Compare { from: reg(0), equal: true, value: vec![ICMP6] },
            Expr::Payload { base: Base::Transport, offset: 0, len: 1, to: reg(0) },
            Expr::Range { register: reg(0), from: vec![133], to: vec![137] },
            accept,
        ],
    ]
}

/// Two base chains on the way through the node: what leaves pods, then what reaches them. Traffic of the node itself
/// passes neither, but for what pods ask its DNS, which is to them as any other pod.
fn base(batch: &mut Batch) {
    for v4 in [true, false] {
        let address = if v4 { [KeyType::Ipv4] } else { [KeyType::Ipv6] };
        for way in [Direction::Out, Direction::In] {
            let spec = SetSpec { name: &way.map(v4), key: &address, data: Data::Verdict };
            batch.set(TABLE, &spec);
        }
        let pair = Keys::Pair(v4).parts();
        batch.set(TABLE, &SetSpec { name: &own(v4), key: &pair, data: Data::None });
        batch.set(TABLE, &SetSpec { name: &dns(v4), key: &address, data: Data::None });
    }
    for (way, name, priority) in [(Direction::Out, "leaving", 0), (Direction::In, "entering", 1)] {
        let hook = Hook { kind: "filter", number: libc::NF_INET_FORWARD as u32, priority };
        batch.chain(TABLE, name, Some(hook));
        for rule in always() {
            batch.rule(TABLE, name, &rule, "");
        }
        for v4 in [true, false] {
            let next = if v4 { 1 } else { 4 };
            // No pod can be kept from itself.
            let mut itself = Expr::family_is(v4).to_vec();
            itself.extend([
                Expr::source(v4, reg(0)),
                Expr::destination(v4, reg(next)),
                Expr::InSet { set: own(v4), from: reg(0), inverted: false },
                Expr::Verdict(Verdict::Accept),
            ]);
            batch.rule(TABLE, name, &itself, "");
            let mut pod = Expr::family_is(v4).to_vec();
            pod.push(match way {
                Direction::In => Expr::destination(v4, reg(0)),
                Direction::Out => Expr::source(v4, reg(0)),
            });
            pod.push(Expr::VerdictMap { map: way.map(v4), from: reg(0) });
            batch.rule(TABLE, name, &pod, "");
        }
    }
    base_asking(batch);
}

/// What pods send to addresses of the node's DNS.
fn base_asking(batch: &mut Batch) {
    let hook = Hook { kind: "filter", number: libc::NF_INET_LOCAL_IN as u32, priority: 0 };
    batch.chain(TABLE, "asking", Some(hook));
    for rule in always() {
        batch.rule(TABLE, "asking", &rule, "");
    }
    for v4 in [true, false] {
        let mut asks = Expr::family_is(v4).to_vec();
        asks.extend([
            Expr::destination(v4, reg(0)),
            Expr::InSet { set: dns(v4), from: reg(0), inverted: false },
            Expr::source(v4, reg(0)),
            Expr::VerdictMap { map: Direction::Out.map(v4), from: reg(0) },
        ]);
        batch.rule(TABLE, "asking", &asks, "");
    }
}

/// The set of the addresses of the node's DNS.
pub fn dns(v4: bool) -> String {
    format!("dns{}", if v4 { '4' } else { '6' })
}

fn own(v4: bool) -> String {
    format!("self{}", if v4 { '4' } else { '6' })
}

/// In an order in which nothing is used before it is there, and nothing removed while it is used.
fn change(batch: &mut Batch, old: &Ruleset, new: &Ruleset) {
    let none = BTreeSet::new();
    for (name, (keys, elements)) in &new.sets {
        let before = old.sets.get(name).map_or(&none, |(_, before)| before);
        if !old.sets.contains_key(name)
            && let Some(keys) = keys
        {
            batch.set(TABLE, &SetSpec { name, key: &keys.parts(), data: Data::None });
        }
        elements_changed(batch, name, before, elements);
    }
    for name in new.chains.keys().filter(|name| !old.chains.contains_key(*name)) {
        batch.chain(TABLE, name, None);
    }
    for (name, chain) in &new.chains {
        let before = old.chains.get(name);
        if before == Some(chain) {
            continue;
        }
        if before.is_some() {
            batch.flush_chain(TABLE, name);
        }
        for rule in &chain.rules {
            batch.rule(TABLE, name, rule, &chain.comment);
        }
    }
    let empty = BTreeMap::new();
    let maps: BTreeSet<&String> = old.maps.keys().chain(new.maps.keys()).collect();
    for map in maps {
        let (before, after) = (old.maps.get(map).unwrap_or(&empty), new.maps.get(map).unwrap_or(&empty));
        let gone = before.iter().filter(|(key, chain)| after.get(*key) != Some(chain));
        let gone: Vec<Element> = gone.map(|(key, _)| Element::key(key.clone())).collect();
        batch.delete_elements(TABLE, map, &gone);
        let fresh = after.iter().filter(|(key, chain)| before.get(*key) != Some(chain));
        let fresh = fresh.map(|(key, chain)| {
            let verdict = Some(Verdict::Goto(chain.clone()));
            Element { verdict, ..Element::key(key.clone()) }
        });
        batch.add_elements(TABLE, map, &fresh.collect::<Vec<_>>());
    }
    let gone: Vec<&String> = old.chains.keys().filter(|name| !new.chains.contains_key(*name)).collect();
    gone.iter().for_each(|name| batch.flush_chain(TABLE, name));
    gone.iter().for_each(|name| batch.delete_chain(TABLE, name));
    for (name, (_, before)) in old.sets.iter().filter(|(name, _)| !new.sets.contains_key(*name)) {
        // Base chains look into these.
        match [own(true), own(false), dns(true), dns(false)].contains(name) {
            true => elements_changed(batch, name, before, &none),
            false => batch.delete_set(TABLE, name),
        }
    }
}

fn elements_changed(batch: &mut Batch, set: &str, before: &BTreeSet<Vec<u8>>, after: &BTreeSet<Vec<u8>>) {
    let elements = |keys: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<Element> {
        keys.map(|key| Element::key(key.clone())).collect()
    };
    batch.delete_elements(TABLE, set, &elements(&mut before.difference(after)));
    batch.add_elements(TABLE, set, &elements(&mut after.difference(before)));
}
