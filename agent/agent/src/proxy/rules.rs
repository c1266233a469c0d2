//! The table: its maps, base chains, and one chain per class of services.

use coracle_cni::nft::{
    Batch, Ct, Data, Expr, Hook, INET, KeyType, Meta, NatKind, SetSpec, Table, Verdict, reg,
};
use coracle_cni::route::{Cidr, from_octets, octets};
use std::net::IpAddr;

use super::plan::{Empty, Key, Target};

/// The proxy's table.
pub const TABLE: Table = Table { family: INET, name: "coracle-services" };
/// Mark of packets translated by the proxy.
const MARK_TRANSLATED: u32 = 0x4000;
/// Mark of packets to reject; only filter chains can reject.
const MARK_REFUSED: u32 = 0x8000;
/// Bits with the number of the affinity timeout; used only between two hooks of one packet.
const AFFINITY_MASK: u32 = 0x000f_0000;
const AFFINITY_UNIT: u32 = 0x0001_0000;
/// `NFT_REJECT_ICMPX_PORT_UNREACH`.
const PORT_UNREACHABLE: u8 = 1;
/// Where the endpoint is put once it is known.
const TARGET: u32 = 8;
/// A scratch register.
const SCRATCH_REGISTER: u32 = 14;
/// Maximum number of distinct affinity timeouts.
pub const MAX_AFFINITY_TIMEOUTS: usize = 15;

/// Which map a packet was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServiceMap {
    /// By address and port.
    Address {
        /// Only from outside the node.
        outside: bool,
    },
    /// By a port of the node.
    Node {
        /// Only from outside the node.
        outside: bool,
    },
}

impl ServiceMap {
    const ALL: [ServiceMap; 4] = [
        ServiceMap::Address { outside: true },
        ServiceMap::Node { outside: true },
        ServiceMap::Address { outside: false },
        ServiceMap::Node { outside: false },
    ];

    fn map(self, v4: bool) -> &'static str {
        match (self, v4) {
            (ServiceMap::Address { outside: false }, true) => "services4",
            (ServiceMap::Address { outside: false }, false) => "services6",
            (ServiceMap::Address { outside: true }, true) => "services-outside4",
            (ServiceMap::Address { outside: true }, false) => "services-outside6",
            (ServiceMap::Node { outside: false }, true) => "ports4",
            (ServiceMap::Node { outside: false }, false) => "ports6",
            (ServiceMap::Node { outside: true }, true) => "ports-outside4",
            (ServiceMap::Node { outside: true }, false) => "ports-outside6",
        }
    }

    /// Endpoints: what the packet is recognised by and a number lead to address and port.
    pub fn endpoints(self, v4: bool) -> &'static str {
        match (self, v4) {
            (ServiceMap::Address { outside: false }, true) => "endpoints4",
            (ServiceMap::Address { outside: false }, false) => "endpoints6",
            (ServiceMap::Address { outside: true }, true) => "endpoints-outside4",
            (ServiceMap::Address { outside: true }, false) => "endpoints-outside6",
            (ServiceMap::Node { outside: false }, true) => "port-endpoints4",
            (ServiceMap::Node { outside: false }, false) => "port-endpoints6",
            (ServiceMap::Node { outside: true }, true) => "port-endpoints-outside4",
            (ServiceMap::Node { outside: true }, false) => "port-endpoints-outside6",
        }
    }

    fn outside(self) -> bool {
        matches!(self, ServiceMap::Address { outside: true } | ServiceMap::Node { outside: true })
    }
}

/// Session affinity map: destination and client address to endpoint.
pub fn affinity(v4: bool) -> &'static str {
    if v4 { "affinity4" } else { "affinity6" }
}

/// Hairpin set: pairs of the same endpoint address.
pub fn hairpin(v4: bool) -> &'static str {
    if v4 { "hairpin4" } else { "hairpin6" }
}

fn cluster_ips(v4: bool) -> &'static str {
    if v4 { "cluster-ips4" } else { "cluster-ips6" }
}

/// Class of a group: Services of one class share a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// IPv4, or IPv6.
    pub v4: bool,
    /// The map its packets are found in.
    pub way: ServiceMap,
    /// How many endpoints.
    pub count: u32,
    /// How long clients stay: the number of the time, from 1.
    pub affinity: Option<u32>,
    /// What becomes of connections when there are none.
    pub empty: Empty,
    /// Allowed source ranges; empty for all.
    pub sources: Box<[Cidr]>,
}

/// Configuration of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableConfig {
    /// Ranges of this node's pods.
    pub pod_ranges: Vec<Cidr>,
    /// Whether answers that stay on the pods' bridge come through the tables, IPv4 and IPv6.
    pub sees_bridge: [bool; 2],
}

/// The map and key of an entry.
pub fn key_of(key: &Key) -> (&'static str, Vec<u8>) {
    match *key {
        Key::Address { outside, ip, protocol, port } => {
            let mut bytes = octets(ip);
            bytes.extend([protocol.number(), 0, 0, 0]);
            bytes.extend(padded(port));
            (ServiceMap::Address { outside }.map(ip.is_ipv4()), bytes)
        }
        Key::Node { outside, v4, protocol, port } => {
            let mut bytes = vec![protocol.number(), 0, 0, 0];
            bytes.extend(padded(port));
            (ServiceMap::Node { outside }.map(v4), bytes)
        }
        Key::Cluster(ip) => (cluster_ips(ip.is_ipv4()), octets(ip)),
    }
}

/// The way and family of an entry; `None` for those without a group.
pub fn way_of(key: &Key) -> Option<(ServiceMap, bool)> {
    match *key {
        Key::Address { outside, ip, .. } => Some((ServiceMap::Address { outside }, ip.is_ipv4())),
        Key::Node { outside, v4, .. } => Some((ServiceMap::Node { outside }, v4)),
        Key::Cluster(_) => None,
    }
}

/// Where an entry leads: the chain of its class.
pub fn entry_verdict(class: &Class, number: u32) -> Verdict {
    let kind = if class.sources.is_empty() { "pick" } else { "guard" };
    Verdict::Goto(format!("{kind}-{number}"))
}

/// The key of an endpoint.
pub fn endpoint_key(mut entry: Vec<u8>, slot: usize) -> Vec<u8> {
    entry.extend((slot as u32).to_ne_bytes());
    entry
}

/// What a client that stays asked for, from an element of the map.
pub fn asked_for(element: &[u8], v4: bool) -> Option<(IpAddr, u8, u16)> {
    let words = if v4 { 4 } else { 16 };
    let ip = from_octets(element.get(..words)?)?;
    let port = element.get(words + 4..words + 6)?.try_into().ok()?;
    Some((ip, *element.get(words)?, u16::from_be_bytes(port)))
}

/// An endpoint as maps give it.
pub fn target_value(target: Target) -> Vec<u8> {
    let mut bytes = octets(target.ip);
    bytes.extend(padded(target.port));
    bytes
}

/// A key of those who are led to themselves.
pub fn hairpin_key(ip: IpAddr) -> Vec<u8> {
    [octets(ip), octets(ip)].concat()
}

/// A port as it lies in a register: network order, then padding.
fn padded(port: u16) -> [u8; 4] {
    let [a, b] = port.to_be_bytes();
    [a, b, 0, 0]
}

/// Replaces the table by an empty one with all chains, within the batch.
pub fn build(batch: &mut Batch, ground: &TableConfig) {
    batch.table(TABLE);
    batch.delete_table(TABLE);
    batch.table(TABLE);
    build_sets(batch);
    for name in ["outside", "services", "stays"] {
        batch.chain(TABLE, name, None);
    }
    for v4 in [true, false] {
        for way in ServiceMap::ALL {
            let chain = if way.outside() { "outside" } else { "services" };
            let mut rule = Expr::family_is(v4).to_vec();
            if matches!(way, ServiceMap::Node { .. }) {
                rule.extend(to_this_node());
            }
            rule.extend(recognise(way, v4).0);
            rule.push(Expr::VerdictMap { map: way.map(v4).into(), from: reg(0) });
            batch.rule(TABLE, chain, &rule, "");
        }
        let mut rule = Expr::family_is(v4).to_vec();
        rule.push(Expr::destination(v4, reg(0)));
        rule.push(Expr::InSet { set: cluster_ips(v4).into(), from: reg(0), inverted: false });
        rule.extend(refuse());
        batch.rule(TABLE, "services", &rule, "no such port");
    }
    build_destination_hooks(batch, ground);
    build_source_hook(batch, ground);
    build_filters(batch);
}

fn build_sets(batch: &mut Batch) {
    use KeyType::{Ipv4, Ipv6, Mark, Port, Protocol};
    for (v4, address) in [(true, Ipv4), (false, Ipv6)] {
        let target = Data::Value(if v4 { &[Ipv4, Port] } else { &[Ipv6, Port] });
        for way in ServiceMap::ALL {
            let key: &[KeyType] = match way {
                ServiceMap::Address { .. } => &[address, Protocol, Port, Mark],
                ServiceMap::Node { .. } => &[Protocol, Port, Mark],
            };
            let (without_slot, name) = (&key[..key.len() - 1], way.map(v4));
            batch.set(TABLE, &SetSpec { name, key: without_slot, data: Data::Verdict });
            batch.set(TABLE, &SetSpec { name: way.endpoints(v4), key, data: target });
        }
        let key = &[address, Protocol, Port, address];
        batch.dynamic_set(TABLE, &SetSpec { name: affinity(v4), key, data: target });
        batch.set(TABLE, &SetSpec { name: hairpin(v4), key: &[address, address], data: Data::None });
        batch.set(TABLE, &SetSpec { name: cluster_ips(v4), key: &[address], data: Data::None });
    }
}

fn to_this_node() -> [Expr; 2] {
    let local = u32::from(libc::RTN_LOCAL).to_ne_bytes().to_vec();
    [Expr::FibDestinationType { to: reg(0) }, Expr::Compare { from: reg(0), equal: true, value: local }]
}

/// What a packet is recognised by into the first registers; the number of the next one.
fn recognise(way: ServiceMap, v4: bool) -> (Vec<Expr>, u32) {
    let mut rule = Vec::new();
    let next = match way {
        ServiceMap::Address { .. } => {
            rule.push(Expr::destination(v4, reg(0)));
            if v4 { 1 } else { 4 }
        }
        ServiceMap::Node { .. } => 0,
    };
    rule.push(Expr::Meta { key: Meta::L4Proto, to: reg(next) });
    rule.push(Expr::destination_port(reg(next + 1)));
    (rule, next + 2)
}

fn refuse() -> Vec<Expr> {
    let mut rule = Expr::mark(MARK_REFUSED, 0, reg(SCRATCH_REGISTER)).to_vec();
    rule.push(Expr::Verdict(Verdict::Accept));
    rule
}

fn jump(chain: &str) -> Expr {
    Expr::Verdict(Verdict::Jump(chain.to_owned()))
}

/// Traffic from pods of this node and from the node itself is internal; everything else is external.
fn build_destination_hooks(batch: &mut Batch, ground: &TableConfig) {
    for (chain, number) in [("prerouting", libc::NF_INET_PRE_ROUTING), ("output", libc::NF_INET_LOCAL_OUT)] {
        batch.chain(TABLE, chain, Some(Hook { kind: "nat", number: number as u32, priority: -100 }));
    }
    for range in &ground.pod_ranges {
        let v4 = range.ip.is_ipv4();
        let rule =
            Expr::when(v4, Expr::source(v4, reg(0)), *range, Expr::Verdict(Verdict::Goto("services".into())));
        batch.rule(TABLE, "prerouting", &rule, "");
    }
    batch.rule(TABLE, "prerouting", &[jump("outside")], "");
    batch.rule(TABLE, "prerouting", &[jump("services")], "");
    batch.rule(TABLE, "output", &[jump("services")], "");
}

/// Masquerades so that replies return through this node: hairpin traffic, loopback, and external traffic to another node.
fn build_source_hook(batch: &mut Batch, ground: &TableConfig) {
    let chain = "postrouting";
    let hook = Hook { kind: "nat", number: libc::NF_INET_POST_ROUTING as u32, priority: 95 };
    batch.chain(TABLE, chain, Some(hook));
    batch.chain(TABLE, "led", None);
    let mut rule = Expr::marked(MARK_TRANSLATED).to_vec();
    rule.push(Expr::Verdict(Verdict::Goto("led".into())));
    batch.rule(TABLE, chain, &rule, "");

    let chain = "led";
    batch.rule(TABLE, chain, &Expr::mark(0, MARK_TRANSLATED, reg(0)), "");
    for v4 in [true, false] {
        let mut rule = Expr::family_is(v4).to_vec();
        rule.push(Expr::source(v4, reg(0)));
        rule.push(Expr::destination(v4, reg(if v4 { 1 } else { 4 })));
        rule.push(Expr::InSet { set: hairpin(v4).into(), from: reg(0), inverted: false });
        rule.push(Expr::Masquerade);
        batch.rule(TABLE, chain, &rule, "to itself");
    }
    let loopback = Cidr { ip: [127, 0, 0, 0].into(), prefix: 8 };
    batch.rule(TABLE, chain, &Expr::when(true, Expr::source(true, reg(0)), loopback, Expr::Masquerade), "");
    for range in &ground.pod_ranges {
        let v4 = range.ip.is_ipv4();
        if !ground.sees_bridge[usize::from(!v4)] {
            let mut rule = Expr::when(v4, Expr::source(v4, reg(0)), *range, Expr::destination(v4, reg(0)));
            rule.push(Expr::Mask { at: reg(0), mask: range.mask() });
            rule.push(Expr::Compare { from: reg(0), equal: true, value: octets(range.network().ip) });
            rule.push(Expr::Masquerade);
            batch.rule(TABLE, chain, &rule, "answers would stay on the bridge");
        }
    }
    for range in &ground.pod_ranges {
        let v4 = range.ip.is_ipv4();
        for end in [Expr::source(v4, reg(0)), Expr::destination(v4, reg(0))] {
            let rule = Expr::when(v4, end, *range, Expr::Verdict(Verdict::Return));
            batch.rule(TABLE, chain, &rule, "");
        }
    }
    batch.rule(TABLE, chain, &[Expr::Masquerade], "");
}

fn build_filters(batch: &mut Batch) {
    for (chain, number) in
        [("refuse-prerouting", libc::NF_INET_PRE_ROUTING), ("refuse-output", libc::NF_INET_LOCAL_OUT)]
    {
        batch.chain(TABLE, chain, Some(Hook { kind: "filter", number: number as u32, priority: -90 }));
        let mut rule = Expr::marked(MARK_REFUSED).to_vec();
        rule.push(Expr::Reject { icmpx: PORT_UNREACHABLE });
        batch.rule(TABLE, chain, &rule, "");
    }
    // Right after packets were led: who stays with whom.
    for (chain, number) in
        [("stay-prerouting", libc::NF_INET_PRE_ROUTING), ("stay-output", libc::NF_INET_LOCAL_OUT)]
    {
        batch.chain(TABLE, chain, Some(Hook { kind: "filter", number: number as u32, priority: -95 }));
        let mut rule = Expr::marked(AFFINITY_MASK).to_vec();
        rule.push(jump("stays"));
        batch.rule(TABLE, chain, &rule, "");
        let mut rule = Expr::marked(AFFINITY_MASK).to_vec();
        rule.extend(Expr::mark(0, AFFINITY_MASK, reg(0)));
        batch.rule(TABLE, chain, &rule, "");
    }
    // Ports of the node also answer on loopback, for which the kernel routes 127/8; nobody else may use that.
    let number = libc::NF_INET_PRE_ROUTING as u32;
    batch.chain(TABLE, "martians", Some(Hook { kind: "filter", number, priority: -300 }));
    let mut name = b"lo".to_vec();
    name.resize(16, 0);
    let mut rule = vec![
        Expr::Meta { key: Meta::InputName, to: reg(4) },
        Expr::Compare { from: reg(4), equal: false, value: name },
    ];
    let loopback = Cidr { ip: [127, 0, 0, 0].into(), prefix: 8 };
    let drop = Expr::Verdict(Verdict::Drop);
    rule.extend(Expr::when(true, Expr::destination(true, reg(0)), loopback, drop));
    batch.rule(TABLE, "martians", &rule, "");
}

/// Adds the chain of a class.
pub fn build_class(batch: &mut Batch, class: &Class, number: u32) {
    let chain = format!("pick-{number}");
    batch.chain(TABLE, &chain, None);
    if class.count == 0 {
        let rule = match class.empty {
            Empty::Refuse => refuse(),
            Empty::Drop => vec![Expr::Verdict(Verdict::Drop)],
        };
        batch.rule(TABLE, &chain, &rule, "no endpoints");
    } else {
        if let Some(time) = class.affinity {
            batch.rule(TABLE, &chain, &stay(class, time), "where the client was before");
        }
        batch.rule(TABLE, &chain, &draw(class), "");
    }
    if class.sources.is_empty() {
        return;
    }
    let guard = format!("guard-{number}");
    batch.chain(TABLE, &guard, None);
    for range in class.sources.iter().filter(|range| range.ip.is_ipv4() == class.v4) {
        let source = Expr::source(class.v4, reg(0));
        let pass = Expr::Verdict(Verdict::Goto(chain.clone()));
        batch.rule(TABLE, &guard, &Expr::when(class.v4, source, *range, pass), "");
    }
    batch.rule(TABLE, &guard, &[Expr::Verdict(Verdict::Drop)], "");
}

/// Looks up the endpoint of the client's session affinity.
fn stay(class: &Class, time: u32) -> Vec<Expr> {
    // Also for ports of the node the address is part of the key: one map for all.
    let (mut rule, next) = recognise(ServiceMap::Address { outside: false }, class.v4);
    rule.push(Expr::source(class.v4, reg(next)));
    rule.push(Expr::Map { map: affinity(class.v4).into(), from: reg(0), to: reg(TARGET) });
    rule.extend(lead(class.v4, MARK_TRANSLATED | (time * AFFINITY_UNIT)));
    rule
}

/// Selects a random endpoint.
fn draw(class: &Class) -> Vec<Expr> {
    let (mut rule, next) = recognise(class.way, class.v4);
    rule.push(Expr::NumberRandom { to: reg(next), modulus: class.count });
    rule.push(Expr::Map { map: class.way.endpoints(class.v4).into(), from: reg(0), to: reg(TARGET) });
    rule.extend(lead(class.v4, MARK_TRANSLATED | (class.affinity.unwrap_or(0) * AFFINITY_UNIT)));
    rule
}

fn lead(v4: bool, mark: u32) -> Vec<Expr> {
    let mut rule = Expr::mark(mark, AFFINITY_MASK, reg(SCRATCH_REGISTER)).to_vec();
    rule.push(Expr::Nat {
        kind: NatKind::Destination,
        family: if v4 { libc::AF_INET } else { libc::AF_INET6 },
        address: reg(TARGET),
        port: Some(reg(TARGET + if v4 { 1 } else { 4 })),
    });
    rule
}

/// Adds a time that clients stay for: once a packet was led, who was led where is kept for so long.
pub fn build_time(batch: &mut Batch, number: u32, seconds: u32) {
    for v4 in [true, false] {
        let mut rule = vec![
            Expr::Meta { key: Meta::Mark, to: reg(0) },
            Expr::Mask { at: reg(0), mask: AFFINITY_MASK.to_ne_bytes().to_vec() },
            Expr::Compare {
                from: reg(0),
                equal: true,
                value: (number * AFFINITY_UNIT).to_ne_bytes().to_vec(),
            },
        ];
        rule.extend(Expr::family_is(v4));
        let words = if v4 { 1 } else { 4 };
        let original = if v4 { Ct::OriginalIpv4 } else { Ct::OriginalIpv6 };
        rule.push(Expr::Ct { key: original, to: reg(0) });
        rule.push(Expr::Meta { key: Meta::L4Proto, to: reg(words) });
        rule.push(Expr::Ct { key: Ct::OriginalPort, to: reg(words + 1) });
        rule.push(Expr::source(v4, reg(words + 2)));
        // After the key; with IPv6 it takes ten registers, the value the next five.
        let value = words * 2 + 2;
        rule.push(Expr::destination(v4, reg(value)));
        rule.push(Expr::destination_port(reg(value + words)));
        rule.push(Expr::Update {
            set: affinity(v4).into(),
            key: reg(0),
            value: Some(reg(value)),
            milliseconds: u64::from(seconds) * 1000,
        });
        batch.rule(TABLE, "stays", &rule, "");
    }
}
