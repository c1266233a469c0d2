//! Policies to rules: what the kernel should know, as data. Pure.
//!
//! A pod of this node that some policy is about leads, by its address, to a chain for the set of policies that are
//! about it; that chain tries each policy and drops what none allowed. What goes out and what comes in are looked at
//! in two base chains, so that "allowed" in the first still means the second is asked; a third looks at questions to the
//! DNS of the node, which go nowhere else.

use coracle_cni::nft::{Base, Expr, Meta, Verdict, reg};
use coracle_cni::route::{Cidr, octets};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use super::model::{Peer, Pod, Policy, PortMatch, PortRule, Rule};
use super::ruleset::{self, Chain, Keys, Ruleset};
use crate::cluster::{Name, Namespace, Protocol};

/// Everything that rules are made from.
pub struct Known<'a> {
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
}

/// The way a packet goes, as the pod sees it that a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// Into the pod.
    In,
    /// Out of it.
    Out,
}

impl Way {
    /// The letter that names of chains and maps begin with.
    pub fn letter(self) -> char {
        match self {
            Way::In => 'i',
            Way::Out => 'o',
        }
    }

    /// The map from pods' addresses to chains.
    pub fn map(self, v4: bool) -> String {
        format!("{}-pods{}", self.letter(), family(v4))
    }

    fn rules(self, policy: &Policy) -> Option<&[Rule]> {
        match self {
            Way::In => policy.ingress.as_deref(),
            Way::Out => policy.egress.as_deref(),
        }
    }

    /// The address of whoever is at the other end.
    fn peer(self, v4: bool) -> Expr {
        match self {
            Way::In => Expr::source(v4, reg(0)),
            Way::Out => Expr::destination(v4, reg(0)),
        }
    }
}

fn family(v4: bool) -> char {
    if v4 { '4' } else { '6' }
}

/// The rules of this node.
pub fn compile(known: &Known<'_>) -> Ruleset {
    let mut out = Ruleset::default();
    let mut used: BTreeSet<(Way, &Name)> = BTreeSet::new();
    for (name, pod) in known.pods.iter().filter(|(name, _)| known.local.contains(*name)) {
        for way in [Way::Out, Way::In] {
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
    for (way, name) in used {
        let policy = known.policies[name];
        let rules = way.rules(policy).unwrap_or_default();
        let chain = rules
            .iter()
            .flat_map(|rule| Compiler { known, policy: name, about: policy, way }.rule(rule, &mut out));
        let chain: Vec<Vec<Expr>> = chain.collect();
        out.chains.insert(policy_chain(way, name), Chain { rules: chain, comment: name.to_string() });
    }
    out
}

fn digest(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn policy_chain(way: Way, policy: &Name) -> String {
    format!("{}-{}", way.letter(), digest(policy))
}

/// The chain that tries some policies; pods that the same ones are about share it.
fn combination(way: Way, policies: &[&Name], out: &mut Ruleset) -> String {
    let name = format!("{}all-{}", way.letter(), digest(policies));
    out.chains.entry(name.clone()).or_insert_with(|| {
        let jumps = policies.iter().map(|policy| Verdict::Jump(policy_chain(way, policy)));
        let rules = jumps.chain([Verdict::Drop]).map(|verdict| vec![Expr::Verdict(verdict)]);
        Chain { rules: rules.collect(), comment: String::new() }
    });
    name
}

/// One policy's rules in one direction.
struct Compiler<'a> {
    known: &'a Known<'a>,
    policy: &'a Name,
    about: &'a Policy,
    way: Way,
}

impl Compiler<'_> {
    /// A rule for every pair of peer and port.
    fn rule(&self, rule: &Rule, out: &mut Ruleset) -> Vec<Vec<Expr>> {
        let ports: Vec<Option<&PortRule>> = match rule.ports.is_empty() {
            true => vec![None],
            false => rule.ports.iter().map(Some).collect(),
        };
        let mut rules = Vec::new();
        for v4 in [true, false] {
            let mut peers: Vec<Vec<Expr>> =
                rule.peers.iter().filter_map(|peer| self.peer(peer, v4, out)).collect();
            if rule.peers.is_empty() {
                peers.push(vec![]);
            }
            for port in &ports {
                let Some(matches) = self.port(*port, rule, v4, out) else { continue };
                for peer in &peers {
                    let mut all = Expr::family_is(v4).to_vec();
                    all.extend(peer.iter().cloned());
                    all.extend(matches.iter().cloned());
                    all.push(Expr::Verdict(Verdict::Accept));
                    rules.push(all);
                }
            }
        }
        rules
    }

    /// Whether the other end is a peer; `None` for one that has no addresses of the family.
    fn peer(&self, peer: &Peer, v4: bool, out: &mut Ruleset) -> Option<Vec<Expr>> {
        match peer {
            Peer::Block { cidr, except } => {
                if cidr.ip.is_ipv4() != v4 {
                    return None;
                }
                let mut all = self.within(*cidr, true, v4);
                for hole in except.iter().filter(|hole| hole.ip.is_ipv4() == v4) {
                    all.extend(self.within(*hole, false, v4));
                }
                Some(all)
            }
            Peer::Pods { .. } => {
                let set = format!("p{}-{}", family(v4), self.peer_digest(peer));
                if !out.sets.contains_key(&set) {
                    let keys: BTreeSet<Vec<u8>> =
                        self.selected(peer).flat_map(|pod| addresses(pod, v4)).collect();
                    out.keys(&set, Keys::Address(v4)).extend(keys);
                }
                Some(vec![self.way.peer(v4), Expr::InSet { set, from: reg(0), inverted: false }])
            }
        }
    }

    fn within(&self, cidr: Cidr, inside: bool, v4: bool) -> Vec<Expr> {
        if cidr.prefix == 0 && inside {
            return vec![];
        }
        vec![
            self.way.peer(v4),
            Expr::Mask { at: reg(0), mask: cidr.mask() },
            Expr::Compare { from: reg(0), equal: inside, value: octets(cidr.network().ip) },
        ]
    }

    fn peer_digest(&self, peer: &Peer) -> String {
        let Peer::Pods { namespaces, pods } = peer else { return String::new() };
        let home = if namespaces.is_none() { &*self.policy.namespace } else { "" };
        digest((home, namespaces.as_ref().map(|s| s.text()), pods.as_ref().map(|s| s.text())))
    }

    fn selected<'b>(&'b self, peer: &'b Peer) -> impl Iterator<Item = &'b Pod> {
        let homes = self.homes(peer);
        let pods = self.known.pods.iter();
        pods.filter(move |(name, pod)| selects(peer, &homes, name, pod)).map(|(_, pod)| *pod)
    }

    /// The namespaces that a peer's pods may be in.
    fn homes(&self, peer: &Peer) -> BTreeSet<&str> {
        match peer {
            Peer::Block { .. } => BTreeSet::new(),
            Peer::Pods { namespaces: None, .. } => BTreeSet::from([&*self.policy.namespace]),
            Peer::Pods { namespaces: Some(selector), .. } => {
                let all = self.known.namespaces.iter();
                all.filter(|(_, of)| selector.matches(&of.labels)).map(|(name, _)| &*name.name).collect()
            }
        }
    }

    /// Whether the port is one; `None` for a name that nobody has.
    fn port(&self, port: Option<&PortRule>, rule: &Rule, v4: bool, out: &mut Ruleset) -> Option<Vec<Expr>> {
        let Some(PortRule { protocol, port }) = port else { return Some(vec![]) };
        let protocol_is = [
            Expr::Meta { key: Meta::L4Proto, to: reg(0) },
            Expr::Compare { from: reg(0), equal: true, value: vec![protocol.number()] },
        ];
        match port {
            PortMatch::Any => Some(protocol_is.to_vec()),
            PortMatch::Range(first, last) => {
                let (from, to) = (first.to_be_bytes().to_vec(), last.to_be_bytes().to_vec());
                let mut all = protocol_is.to_vec();
                all.push(Expr::destination_port(reg(0)));
                all.push(match first == last {
                    true => Expr::Compare { from: reg(0), equal: true, value: from },
                    false => Expr::Range { register: reg(0), from, to },
                });
                Some(all)
            }
            PortMatch::Named(name) => {
                let keys = self.named(name, *protocol, rule, v4);
                if keys.is_empty() {
                    return None;
                }
                let peers: Vec<String> = rule.peers.iter().map(|peer| self.peer_digest(peer)).collect();
                let about = match self.way {
                    Way::In => self.about.pods.text().to_owned(),
                    Way::Out => format!("{peers:?}"),
                };
                let key = (self.way, &self.policy.namespace, about, name, *protocol);
                let set = format!("n{}-{}", family(v4), digest(key));
                out.keys(&set, Keys::AddressPort(v4)).extend(keys);
                let next = if v4 { 1 } else { 4 };
                Some(vec![
                    Expr::destination(v4, reg(0)),
                    Expr::Meta { key: Meta::L4Proto, to: reg(next) },
                    Expr::destination_port(reg(next + 1)),
                    Expr::InSet { set, from: reg(0), inverted: false },
                ])
            }
        }
    }

    /// Address and number of every pod that has a port of a name and may be talked to: those the policy is about for
    /// what comes in, the peers for what goes out.
    fn named(&self, name: &str, protocol: Protocol, rule: &Rule, v4: bool) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        let homes: Vec<BTreeSet<&str>> = rule.peers.iter().map(|peer| self.homes(peer)).collect();
        for (of, pod) in self.known.pods {
            let talked_to = match self.way {
                Way::In => of.namespace == self.policy.namespace && self.about.pods.matches(&pod.labels),
                Way::Out if rule.peers.is_empty() => true,
                Way::Out => rule.peers.iter().zip(&homes).any(|(peer, homes)| selects(peer, homes, of, pod)),
            };
            if !talked_to {
                continue;
            }
            for port in pod.ports.iter().filter(|port| &*port.name == name && port.protocol == protocol) {
                let [high, low] = port.number.to_be_bytes();
                let tail = [protocol.number(), 0, 0, 0, high, low, 0, 0];
                keys.extend(addresses(pod, v4).map(|address| [&address[..], &tail].concat()));
            }
        }
        keys
    }
}

fn selects(peer: &Peer, homes: &BTreeSet<&str>, name: &Name, pod: &Pod) -> bool {
    let Peer::Pods { pods, .. } = peer else { return false };
    homes.contains(&*name.namespace) && pods.as_ref().is_none_or(|selector| selector.matches(&pod.labels))
}

fn addresses(pod: &Pod, v4: bool) -> impl Iterator<Item = Vec<u8>> {
    pod.ips.iter().filter(move |ip| ip.is_ipv4() == v4).map(|ip: &IpAddr| octets(*ip))
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
