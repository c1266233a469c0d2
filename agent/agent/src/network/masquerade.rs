//! Masquerades traffic of pods that leaves the cluster; pods see each other's addresses.

use coracle_cni::netlink;
use coracle_cni::nft::{Batch, Data, Element, Expr, Hook, INET, KeyType, Nft, SetSpec, Table, Verdict, reg};
use coracle_cni::route::{Cidr, octets};
use std::collections::BTreeSet;

/// The network's table.
pub const TABLE: Table = Table { family: INET, name: "coracle-network" };
const HOOK: &str = "postrouting";

/// Rebuilds the table in one transaction: `own` are the pod CIDRs of this node, `all` those of every node.
pub fn write(nft: &mut Nft, own: &[Cidr], all: &BTreeSet<Cidr>) -> netlink::Result<()> {
    let mut batch = Batch::new();
    batch.table(TABLE);
    batch.delete_table(TABLE);
    batch.table(TABLE);
    let hook = Hook { kind: "nat", number: libc::NF_INET_POST_ROUTING as u32, priority: 100 };
    batch.chain(TABLE, HOOK, Some(hook));
    for v4 in [true, false] {
        write_family(&mut batch, own, all, v4);
    }
    nft.apply(batch)
}

/// Whether the table is there.
pub fn is_there(nft: &mut Nft, own: &[Cidr]) -> bool {
    nft.rule_count(TABLE, HOOK).is_ok_and(|count| count == own.len())
}

fn write_family(batch: &mut Batch, own: &[Cidr], all: &BTreeSet<Cidr>, v4: bool) {
    let (pods, leave) = if v4 { ("pods4", "leave4") } else { ("pods6", "leave6") };
    let key = if v4 { KeyType::Ipv4 } else { KeyType::Ipv6 };
    batch.set(TABLE, &SetSpec { name: pods, key: &[key], data: Data::None });
    let ranges: BTreeSet<Cidr> =
        all.iter().chain(own).filter(|range| range.ip.is_ipv4() == v4).map(Cidr::network).collect();
    let elements: Vec<Element> = ranges.iter().map(|range| Element::key(octets(range.ip))).collect();
    batch.add_elements(TABLE, pods, &elements);

    batch.chain(TABLE, leave, None);
    // Ranges of nodes are of one size: one lookup, however many nodes there are.
    let sizes: BTreeSet<Vec<u8>> = ranges.iter().map(Cidr::mask).collect();
    for mask in sizes {
        let rule = [
            Expr::destination(v4, reg(0)),
            Expr::Mask { at: reg(0), mask },
            Expr::InSet { set: pods.into(), from: reg(0), inverted: false },
            Expr::Verdict(Verdict::Return),
        ];
        batch.rule(TABLE, leave, &rule, "");
    }
    let multicast = match v4 {
        true => Cidr { ip: [224, 0, 0, 0].into(), prefix: 4 },
        false => Cidr { ip: [0xff00, 0, 0, 0, 0, 0, 0, 0].into(), prefix: 8 },
    };
    let stay = Expr::Verdict(Verdict::Return);
    batch.rule(TABLE, leave, &Expr::when(v4, Expr::destination(v4, reg(0)), multicast, stay), "");
    batch.rule(TABLE, leave, &[Expr::Masquerade], "");

    for range in own.iter().filter(|range| range.ip.is_ipv4() == v4) {
        let leaves = Expr::Verdict(Verdict::Goto(leave.into()));
        batch.rule(TABLE, HOOK, &Expr::when(v4, Expr::source(v4, reg(0)), *range, leaves), "");
    }
}
