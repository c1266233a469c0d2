//! nftables maps and chains of port mappings.
//!
//! `prerouting` and `output` jump to `hostports` for packets to this host. Two maps per family (with and without host
//! address) give the destination of a port. `hairpin` masquerades packets from the container, its neighbours or the
//! host's loopback to a mapped port, so that replies take the same path.

use std::net::IpAddr;

use nix::errno::Errno;

use super::config::Mapping;
use crate::{
    netlink::Result,
    nft::{
        Batch, Data, Element, Expr, Hook, INET, KeyType, Meta, NatKind, Nft, SetSpec, Table, Verdict, reg,
    },
    route::{Cidr, octets},
};

/// The plugin's table.
pub const TABLE: Table = Table { family: INET, name: "coracle_hostports" };
const PORTS: [&str; 2] = ["ports4", "ports6"];
const ADDRESS_PORTS: [&str; 2] = ["address-ports4", "address-ports6"];
const HAIRPIN: [&str; 2] = ["hairpin4", "hairpin6"];
/// Mark of packets translated by a mapping; the service proxy decides about its own packets to the same container.
const MAPPED: u32 = 0x2000;
/// A scratch register.
const SCRATCH_REGISTER: u32 = 12;

fn family(ip: IpAddr) -> usize {
    usize::from(ip.is_ipv6())
}

/// Adds mappings; replaces a stale mapping of another owner.
pub fn add(mappings: &[Mapping], snat: bool, owner: &str) -> Result<()> {
    let mut nft = Nft::open()?;
    let wanted = elements(mappings, snat, owner);
    let mut batch = Batch::new();
    for (map, element) in &wanted {
        batch.create_elements(TABLE, map, std::slice::from_ref(element));
    }
    match nft.apply(batch) {
        Err(e) if matches!(e.errno(), Some(Errno::ENOENT | Errno::EEXIST)) => {}
        other => return other,
    }
    let mut batch = Batch::new();
    build(&mut batch, mappings);
    for (map, element) in &wanted {
        if nft.elements(TABLE, map).is_ok_and(|found| found.iter().any(|e| e.key == element.key)) {
            batch.delete_elements(TABLE, map, &[Element::key(element.key.clone())]);
        }
        batch.add_elements(TABLE, map, std::slice::from_ref(element));
    }
    nft.apply(batch)
}

/// Removes the mappings of owners for which `doomed` is true.
pub fn remove_where(doomed: impl Fn(&str) -> bool) -> Result<()> {
    let maps: Vec<&str> = PORTS.into_iter().chain(ADDRESS_PORTS).chain(HAIRPIN).collect();
    Nft::open()?.remove_elements(TABLE, &maps, |element| doomed(&element.comment))
}

/// Whether every mapping is there and leads where it should, by rules that are all there.
pub fn present(mappings: &[Mapping], snat: bool, owner: &str) -> Result<bool> {
    let mut nft = Nft::open()?;
    for (map, wanted) in elements(mappings, snat, owner) {
        let found = match nft.elements(TABLE, map) {
            Err(e) if e.errno() == Some(Errno::ENOENT) => return Ok(false),
            other => other?,
        };
        if !found.iter().any(|e| e.key == wanted.key && e.value == wanted.value && e.comment == owner) {
            return Ok(false);
        }
    }
    let hairpins = mappings.iter().filter(|_| snat).map(|mapping| (chain_of(mapping.target.network()), 2));
    let chains = [("hostports", 4), ("prerouting", 1), ("output", 1), ("hairpin", 2)];
    let mut chains = chains.map(|(chain, rules)| (chain.to_owned(), rules)).into_iter().chain(hairpins);
    let whole =
        |(chain, rules): (String, usize)| nft.rule_count(TABLE, &chain).is_ok_and(|count| count == rules);
    Ok(mappings.is_empty() || chains.all(whole))
}

fn elements(mappings: &[Mapping], snat: bool, owner: &str) -> Vec<(&'static str, Element)> {
    let mut list: Vec<(&'static str, Element)> = Vec::new();
    for mapping in mappings {
        let at = family(mapping.target.ip);
        let mut key = mapping.host_ip.map(octets).unwrap_or_default();
        key.extend_from_slice(&[mapping.protocol, 0, 0, 0]);
        key.extend_from_slice(&padded(mapping.host_port));
        let mut value = octets(mapping.target.ip);
        value.extend_from_slice(&padded(mapping.target_port));
        let map = if mapping.host_ip.is_some() { ADDRESS_PORTS[at] } else { PORTS[at] };
        list.push((map, Element { key, value, verdict: None, comment: owner.to_owned(), time: None }));
        let key = octets(mapping.target.ip);
        if snat && !list.iter().any(|(map, e)| *map == HAIRPIN[at] && e.key == key) {
            let verdict = Some(Verdict::Jump(chain_of(mapping.target.network())));
            list.push((HAIRPIN[at], Element { verdict, comment: owner.to_owned(), ..Element::key(key) }));
        }
    }
    list
}

/// A port as it lies in a register: network order, then padding.
fn padded(port: u16) -> [u8; 4] {
    let [a, b] = port.to_be_bytes();
    [a, b, 0, 0]
}

fn chain_of(subnet: Cidr) -> String {
    format!("hairpin-{}", subnet.to_string().replace(':', "-"))
}

fn build(batch: &mut Batch, mappings: &[Mapping]) {
    use KeyType::{Ipv4, Ipv6, Port, Protocol};
    batch.table(TABLE);
    for (at, address) in [Ipv4, Ipv6].into_iter().enumerate() {
        let data = Data::Value(if at == 0 { &[Ipv4, Port] } else { &[Ipv6, Port] });
        batch.set(TABLE, &SetSpec { name: PORTS[at], key: &[Protocol, Port], data });
        batch.set(TABLE, &SetSpec { name: ADDRESS_PORTS[at], key: &[address, Protocol, Port], data });
        batch.set(TABLE, &SetSpec { name: HAIRPIN[at], key: &[address], data: Data::Verdict });
    }
    batch.chain(TABLE, "hostports", None);
    batch.flush_chain(TABLE, "hostports");
    for v4 in [true, false] {
        batch.rule(TABLE, "hostports", &translate(v4, true), "");
        batch.rule(TABLE, "hostports", &translate(v4, false), "");
    }
    for (chain, number) in [("prerouting", libc::NF_INET_PRE_ROUTING), ("output", libc::NF_INET_LOCAL_OUT)] {
        batch.chain(TABLE, chain, Some(Hook { kind: "nat", number: number as u32, priority: -100 }));
        batch.flush_chain(TABLE, chain);
        let local = u32::from(libc::RTN_LOCAL).to_ne_bytes().to_vec();
        batch.rule(
            TABLE,
            chain,
            &[
                Expr::FibDestinationType { to: reg(0) },
                Expr::Compare { from: reg(0), equal: true, value: local },
                Expr::Verdict(Verdict::Jump("hostports".into())),
            ],
            "",
        );
    }
    build_hairpin(batch, mappings);
}

/// Looks a port up and translates the destination; continues if there is no mapping.
fn translate(v4: bool, with_address: bool) -> Vec<Expr> {
    let at = usize::from(!v4);
    let words = if v4 { 1 } else { 4 };
    let mut rule = Expr::family_is(v4).to_vec();
    let next = match with_address {
        true => {
            rule.push(Expr::destination(v4, reg(0)));
            words
        }
        false => 0,
    };
    rule.push(Expr::Meta { key: Meta::L4Proto, to: reg(next) });
    rule.push(Expr::destination_port(reg(next + 1)));
    let map = if with_address { ADDRESS_PORTS[at] } else { PORTS[at] }.into();
    rule.push(Expr::Map { map, from: reg(0), to: reg(0) });
    rule.extend(Expr::mark(MAPPED, 0, reg(SCRATCH_REGISTER)));
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 };
    rule.push(Expr::Nat { kind: NatKind::Destination, family, address: reg(0), port: Some(reg(words)) });
    rule
}

fn build_hairpin(batch: &mut Batch, mappings: &[Mapping]) {
    let hook = Hook { kind: "nat", number: libc::NF_INET_POST_ROUTING as u32, priority: 99 };
    batch.chain(TABLE, "hairpin", Some(hook));
    batch.flush_chain(TABLE, "hairpin");
    for v4 in [true, false] {
        let mut rule = Expr::marked(MAPPED).to_vec();
        rule.extend(Expr::family_is(v4));
        rule.push(Expr::destination(v4, reg(0)));
        rule.push(Expr::VerdictMap { map: HAIRPIN[usize::from(!v4)].into(), from: reg(0) });
        batch.rule(TABLE, "hairpin", &rule, "");
    }
    let loopback4 = Cidr { ip: [127, 0, 0, 0].into(), prefix: 8 };
    let loopback6 = Cidr { ip: [0, 0, 0, 0, 0, 0, 0, 1].into(), prefix: 128 };
    for mapping in mappings {
        let v4 = mapping.target.ip.is_ipv4();
        let chain = chain_of(mapping.target.network());
        batch.chain(TABLE, &chain, None);
        batch.flush_chain(TABLE, &chain);
        for source in [mapping.target.network(), if v4 { loopback4 } else { loopback6 }] {
            batch.rule(
                TABLE,
                &chain,
                &Expr::when(v4, Expr::source(v4, reg(0)), source, Expr::Masquerade),
                "",
            );
        }
    }
}
