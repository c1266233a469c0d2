//! Source NAT for what leaves a container's network.
//!
//! One map from source address to the chain of its subnet: a packet costs one lookup regardless of the number of containers.
//! An attachment is one element with its owner as comment.

use nix::errno::Errno;

use crate::{
    netlink::Result,
    nft::{Batch, Data, Element, Expr, Hook, INET, KeyType, Nft, SetSpec, Table, Verdict, reg},
    route::{Cidr, octets},
};

/// The plugins' table.
pub const TABLE: Table = Table { family: INET, name: "coracle_cni" };
const MAPS: [&str; 2] = ["masquerade4", "masquerade6"];
const CHAIN: &str = "postrouting";

/// Owner of an element, stored as its comment.
pub fn owner(network: &str, container_id: &str, ifname: &str) -> String {
    format!("{network} {container_id} {ifname}")
}

/// Masquerades what `addresses` send out of their subnets.
pub fn add(addresses: &[Cidr], owner: &str) -> Result<()> {
    let mut nft = Nft::open()?;
    let mut batch = Batch::new();
    add_elements(&mut batch, addresses, owner);
    match nft.apply(batch) {
        // First attachment, or another program removed our chains: builds everything in one batch.
        Err(e) if e.errno() == Some(Errno::ENOENT) => {}
        // Stale element of a container that was never deleted.
        Err(e) if e.errno() == Some(Errno::EEXIST) => {}
        other => return other,
    }
    let mut batch = Batch::new();
    build(&mut batch, addresses);
    for address in addresses {
        let key = Element::key(octets(address.ip));
        let taken =
            nft.elements(TABLE, map_of(address)).is_ok_and(|found| found.iter().any(|e| e.key == key.key));
        if taken {
            batch.delete_elements(TABLE, map_of(address), &[key]);
        }
    }
    add_elements(&mut batch, addresses, owner);
    nft.apply(batch)
}

/// Removes the elements of an attachment.
pub fn remove(owner: &str) -> Result<()> {
    remove_where(|comment| comment == owner)
}

/// Removes the elements of attachments of a network for which `keep` is false.
pub fn retain(network: &str, keep: impl Fn(&str, &str) -> bool) -> Result<()> {
    remove_where(|comment| {
        let mut words = comment.split(' ');
        let (Some(of), Some(id), Some(ifname)) = (words.next(), words.next(), words.next()) else {
            return false;
        };
        of == network && !keep(id, ifname)
    })
}

/// Whether every address has its element and the rules are there.
pub fn present(addresses: &[Cidr], owner: &str) -> Result<bool> {
    let mut nft = Nft::open()?;
    if nft.rule_count(TABLE, CHAIN)? != MAPS.len() {
        return Ok(false);
    }
    for address in addresses {
        let found = nft.elements(TABLE, map_of(address))?;
        if !found.iter().any(|e| e.key == octets(address.ip) && e.comment == owner) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn remove_where(doomed: impl Fn(&str) -> bool) -> Result<()> {
    Nft::open()?.remove_elements(TABLE, &MAPS, |element| doomed(&element.comment))
}

fn map_of(address: &Cidr) -> &'static str {
    MAPS[usize::from(address.ip.is_ipv6())]
}

fn add_elements(batch: &mut Batch, addresses: &[Cidr], owner: &str) {
    for address in addresses {
        let verdict = Some(Verdict::Jump(chain_of(address.network())));
        let element = Element { verdict, comment: owner.to_owned(), ..Element::key(octets(address.ip)) };
        batch.create_elements(TABLE, map_of(address), &[element]);
    }
}

fn chain_of(subnet: Cidr) -> String {
    format!("masquerade-{}", subnet.to_string().replace(':', "-"))
}

fn build(batch: &mut Batch, addresses: &[Cidr]) {
    batch.table(TABLE);
    let hook = Hook { kind: "nat", number: libc::NF_INET_POST_ROUTING as u32, priority: 100 };
    batch.chain(TABLE, CHAIN, Some(hook));
    for (map, key) in MAPS.into_iter().zip([KeyType::Ipv4, KeyType::Ipv6]) {
        batch.set(TABLE, &SetSpec { name: map, key: &[key], data: Data::Verdict });
    }
    batch.flush_chain(TABLE, CHAIN);
    for (map, v4) in MAPS.into_iter().zip([true, false]) {
        let mut rule = Expr::family_is(v4).to_vec();
        rule.push(Expr::source(v4, reg(0)));
        rule.push(Expr::VerdictMap { map: map.into(), from: reg(0) });
        batch.rule(TABLE, CHAIN, &rule, "");
    }
    for address in addresses {
        build_subnet(batch, address.network());
    }
}

/// Masquerades everything but traffic to the subnet itself and to multicast.
fn build_subnet(batch: &mut Batch, subnet: Cidr) {
    let v4 = subnet.ip.is_ipv4();
    let chain = chain_of(subnet);
    batch.chain(TABLE, &chain, None);
    batch.flush_chain(TABLE, &chain);
    let multicast: Cidr = Cidr {
        ip: if v4 { [224, 0, 0, 0].into() } else { [0xff00, 0, 0, 0, 0, 0, 0, 0].into() },
        prefix: if v4 { 4 } else { 8 },
    };
    for spared in [subnet, multicast] {
        batch.rule(
            TABLE,
            &chain,
            &Expr::when(v4, Expr::destination(v4, reg(0)), spared, Expr::Verdict(Verdict::Return)),
            "",
        );
    }
    batch.rule(TABLE, &chain, &[Expr::Masquerade], "");
}
