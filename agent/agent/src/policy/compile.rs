//! Policies to rules: what the kernel should know, as data. Pure.
//!
//! A pod of this node that some policy is about leads, by its address, to a chain for the set of policies that are
//! about it; that chain tries each policy and drops what none allowed. What goes out and what comes in are looked at
//! in two base chains, so that "allowed" in the first still means the second is asked; a third looks at questions to the
//! DNS of the node, which go nowhere else.

use coracle_cni::nft::{Base, Expr, Meta, Verdict, reg};
use coracle_cni::route::octets;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::limits::Budget;
use super::model::{Pod, Policy, Rule};
use super::rule::Compiler;
use super::ruleset::{self, Chain, Keys, Ruleset};
use crate::cluster::{Name, Namespace};

/// Inputs of the compiler.
pub struct PolicyInput<'a> {
    /// Policies.
    pub policies: &'a BTreeMap<Name, &'a Policy>,
    /// Pods of the cluster.
    pub pods: &'a BTreeMap<Name, &'a Pod>,
    /// Pods of this node: only their traffic is looked at here.
    pub local: &'a BTreeSet<Name>,
    /// Namespaces.
    pub namespaces: &'a BTreeMap<Name, &'a Namespace>,
    /// Addresses of the cluster's DNS, where this node answers for a pod.
    pub dns: &'a [IpAddr],
    /// Policies whose rules the kernel refuses: they isolate the pods that they select, but allow nothing.
    pub refused: &'a BTreeSet<Name>,
}

/// Direction of traffic, seen from the selected pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// Into the pod.
    In,
    /// Out of it.
    Out,
}

impl Direction {
    /// The letter that names of chains and maps begin with.
    pub fn letter(self) -> char {
        match self {
            Direction::In => 'i',
            Direction::Out => 'o',
        }
    }

    /// The map from pods' addresses to chains.
    pub fn map(self, v4: bool) -> String {
        format!("{}-pods{}", self.letter(), family(v4))
    }

    fn rules(self, policy: &Policy) -> Option<&[Rule]> {
        match self {
            Direction::In => policy.ingress.as_deref(),
            Direction::Out => policy.egress.as_deref(),
        }
    }

    /// Address of the peer.
    pub(super) fn peer(self, v4: bool) -> Expr {
        match self {
            Direction::In => Expr::source(v4, reg(0)),
            Direction::Out => Expr::destination(v4, reg(0)),
        }
    }
}

pub(super) fn family(v4: bool) -> char {
    if v4 { '4' } else { '6' }
}

/// The rules of a node, and the policies that are too large for it.
#[derive(Debug, Default)]
pub struct Compiled {
    /// The rules.
    pub rules: Ruleset,
    /// Policies beyond the limits: they still isolate the pods that they select, but allow nothing.
    pub denied: BTreeSet<Name>,
}

/// The rules of this node.
pub fn compile(known: &PolicyInput<'_>) -> Compiled {
    let mut out = Ruleset::default();
    let mut used: BTreeSet<(Direction, &Name)> = BTreeSet::new();
    for (name, pod) in known.pods.iter().filter(|(name, _)| known.local.contains(*name)) {
        for way in [Direction::Out, Direction::In] {
            let about: Vec<&Name> = known
                .policies
                .iter()
                .filter(|(of, policy)| of.namespace == name.namespace && way.rules(policy).is_some())
                .filter(|(_, policy)| policy.pods.matches(&pod.labels))
                .map(|(of, _)| of)
                .collect();
            if about.is_empty() {
                continue;
            }
            used.extend(about.iter().map(|of| (way, *of)));
            let chain = combination(way, &about, &mut out);
            for ip in pod.ips.iter() {
                let v4 = ip.is_ipv4();
                out.maps.entry(way.map(v4)).or_default().insert(octets(*ip), chain.clone());
                out.keys(&format!("self{}", family(v4)), Keys::Pair(v4))
                    .insert([octets(*ip), octets(*ip)].concat());
            }
        }
    }
    if !used.is_empty() {
        for ip in known.dns {
            let v4 = ip.is_ipv4();
            out.keys(&ruleset::dns(v4), Keys::Address(v4)).insert(octets(*ip));
        }
    }
    let mut budget = Budget::default();
    let mut denied = BTreeSet::new();
    for (way, name) in used {
        let policy = known.policies[name];
        let mut rules = way.rules(policy).unwrap_or_default();
        if known.refused.contains(name) {
            rules = &[];
        } else if !budget.affords(&name.namespace, rules) {
            denied.insert(name.clone());
            rules = &[];
        }
        let compiler = Compiler { known, policy: name, about: policy, way };
        let mut chain: Vec<Vec<Expr>> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            chain.extend(compiler.rule(at, rule, &mut out));
        }
        out.chains.insert(policy_chain(way, name), Chain { rules: chain, comment: name.to_string() });
    }
    Compiled { rules: out, denied }
}

pub(super) fn digest(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

pub(super) fn policy_chain(way: Direction, policy: &Name) -> String {
    format!("{}-{}", way.letter(), digest(policy))
}

/// The chain that tries some policies; pods that the same ones are about share it.
fn combination(way: Direction, policies: &[&Name], out: &mut Ruleset) -> String {
    let name = format!("{}all-{}", way.letter(), digest(policies));
    out.chains.entry(name.clone()).or_insert_with(|| {
        let jumps = policies.iter().map(|policy| Verdict::Jump(policy_chain(way, policy)));
        let rules = jumps.chain([Verdict::Drop]).map(|verdict| vec![Expr::Verdict(verdict)]);
        Chain { rules: rules.collect(), comment: String::new() }
    });
    name
}

/// What is let through before any policy is asked: what belongs to a known connection, and neighbours finding each other.
pub fn always() -> Vec<Vec<Expr>> {
    use coracle_cni::nft::Ct;
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
