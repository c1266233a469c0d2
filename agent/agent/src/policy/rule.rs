//! One entry of a policy to rules. Pure.
//!
//! No rule has more than a fixed number of expressions, and the number of rules grows with the number of peers,
//! exceptions and ports, not with their product: both are chosen by whoever may write policies in a namespace.

use coracle_cni::nft::{Expr, Meta, Verdict, reg};
use coracle_cni::route::{Cidr, octets};
use std::collections::BTreeSet;
use std::net::IpAddr;

use super::direction::{Direction, digest, family, policy_chain};
use super::input::PolicyInput;
use super::model::{Peer, Pod, Policy, PortMatch, PortRule, Rule};
use super::ports::{AllowedPorts, ending, gate, port_within, protocol_is};
use super::ruleset::{Chain, Keys, Ruleset};
use crate::cluster::{Name, Protocol};

/// Up to this many ports, a single peer is matched together with each port.
const FEW_PORTS: usize = 16;

/// What matches a peer, and what then becomes of the packet.
type Allowed = (Vec<Expr>, Verdict);

/// Whether matching every pair of peer and port costs little. Exceptions count as peers.
fn is_small(rule: &Rule) -> bool {
    let holes = |peer: &Peer| matches!(peer, Peer::Block { except, .. } if !except.is_empty());
    let one_peer = rule.peers.len() <= 1 && !rule.peers.iter().any(holes);
    rule.ports.len() <= 1 || (one_peer && rule.ports.len() <= FEW_PORTS)
}

/// Whether address, protocol and port of the destination are in a set.
fn in_named(set: String, v4: bool) -> Vec<Expr> {
    let next = if v4 { 1 } else { 4 };
    vec![
        Expr::destination(v4, reg(0)),
        Expr::Meta { key: Meta::L4Proto, to: reg(next) },
        Expr::destination_port(reg(next + 1)),
        Expr::InSet { set, from: reg(0), inverted: false },
    ]
}

/// One policy's rules in one direction.
pub(super) struct Compiler<'a> {
    pub(super) known: &'a PolicyInput<'a>,
    pub(super) policy: &'a Name,
    pub(super) about: &'a Policy,
    pub(super) way: Direction,
}

impl Compiler<'_> {
    /// The rules of one entry of the policy; its position names the chains that it needs.
    pub(super) fn rule(&self, at: usize, rule: &Rule, out: &mut Ruleset) -> Vec<Vec<Expr>> {
        let mut rules = Vec::new();
        for v4 in [true, false] {
            let prefix = format!("{}-{at}-{}", policy_chain(self.way, self.policy), family(v4));
            let peers = self.peers(rule, &prefix, v4, out);
            if peers.is_empty() {
                continue;
            }
            let found = match is_small(rule) {
                true => self.pairs(rule, &peers, v4, out),
                false => self.steps(rule, peers, &prefix, v4, out),
            };
            rules.extend(found.into_iter().map(|rest| [&Expr::family_is(v4)[..], &rest[..]].concat()));
        }
        rules
    }

    /// A rule for every pair of peer and port.
    fn pairs(&self, rule: &Rule, peers: &[Allowed], v4: bool, out: &mut Ruleset) -> Vec<Vec<Expr>> {
        let ports: Vec<Option<&PortRule>> = match rule.ports.is_empty() {
            true => vec![None],
            false => rule.ports.iter().map(Some).collect(),
        };
        let mut rules = Vec::new();
        for port in ports {
            let Some(port) = self.port(port, rule, v4, out) else { continue };
            for (peer, verdict) in peers {
                rules.push(ending([&peer[..], &port[..]].concat(), verdict.clone()));
            }
        }
        rules
    }

    /// First the ports, then the peers in a chain of their own: as many rules as there are ports and peers together.
    ///
    /// The kernel checks a chain again for every jump to it, so the number of jumps to the peers must not depend on
    /// the number of ports. That is why the chain of the ports returns on ports that are not allowed.
    fn steps(
        &self,
        rule: &Rule,
        peers: Vec<Allowed>,
        prefix: &str,
        v4: bool,
        out: &mut Ruleset,
    ) -> Vec<Vec<Expr>> {
        let chain = format!("{prefix}-peers");
        let peers = peers.into_iter().map(|(peer, verdict)| ending(peer, verdict)).collect();
        self.add_chain(&chain, peers, out);
        let to_peers = Verdict::Jump(chain);
        let wanted = AllowedPorts::new(&rule.ports);
        let mut rules: Vec<Vec<Expr>> =
            wanted.any.iter().map(|protocol| ending(protocol_is(*protocol), to_peers.clone())).collect();
        let keys = self.named(&wanted.names, rule, v4);
        if !keys.is_empty() {
            let set = format!("n{}-{prefix}", family(v4));
            out.keys(&set, Keys::AddressPort(v4)).extend(keys);
            rules.push(ending(in_named(set, v4), to_peers.clone()));
        }
        if !wanted.ranges.is_empty() {
            let chain = format!("{prefix}-ports");
            self.add_chain(&chain, gate(&wanted.ranges, to_peers), out);
            rules.push(vec![Expr::Verdict(Verdict::Jump(chain))]);
        }
        rules
    }

    fn add_chain(&self, name: &str, rules: Vec<Vec<Expr>>, out: &mut Ruleset) {
        out.chains.insert(name.to_owned(), Chain { rules, comment: self.policy.to_string() });
    }

    /// What matches each peer that has addresses of the family, and what then becomes of the packet.
    fn peers(&self, rule: &Rule, prefix: &str, v4: bool, out: &mut Ruleset) -> Vec<Allowed> {
        if rule.peers.is_empty() {
            return vec![(vec![], Verdict::Accept)];
        }
        let mut found = Vec::new();
        for (at, peer) in rule.peers.iter().enumerate() {
            let Some(matches) = self.peer(peer, v4, out) else { continue };
            let mut holes = self.holes(peer, v4);
            let verdict = match holes.is_empty() {
                true => Verdict::Accept,
                false => {
                    let chain = format!("{prefix}-x{at}");
                    holes.push(vec![Expr::Verdict(Verdict::Accept)]);
                    self.add_chain(&chain, holes, out);
                    Verdict::Jump(chain)
                }
            };
            found.push((matches, verdict));
        }
        found
    }

    /// A rule for every exception of a block: the kernel refuses a rule of more than 128 expressions, and with it
    /// the whole transaction, so exceptions cannot be part of the block's own rule.
    fn holes(&self, peer: &Peer, v4: bool) -> Vec<Vec<Expr>> {
        let Peer::Block { except, .. } = peer else { return vec![] };
        let holes = except.iter().filter(|hole| hole.ip.is_ipv4() == v4);
        holes.map(|hole| ending(self.within(*hole, v4), Verdict::Return)).collect()
    }

    /// Whether the other end is a peer, but for exceptions; `None` for one that has no addresses of the family.
    fn peer(&self, peer: &Peer, v4: bool, out: &mut Ruleset) -> Option<Vec<Expr>> {
        match peer {
            Peer::Block { cidr, .. } => (cidr.ip.is_ipv4() == v4).then(|| self.within(*cidr, v4)),
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

    fn within(&self, cidr: Cidr, v4: bool) -> Vec<Expr> {
        if cidr.prefix == 0 {
            return vec![];
        }
        vec![
            self.way.peer(v4),
            Expr::Mask { at: reg(0), mask: cidr.mask() },
            Expr::Compare { from: reg(0), equal: true, value: octets(cidr.network().ip) },
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

    /// Matches the port; `None` for a named port that no pod has.
    fn port(&self, port: Option<&PortRule>, rule: &Rule, v4: bool, out: &mut Ruleset) -> Option<Vec<Expr>> {
        let Some(PortRule { protocol, port }) = port else { return Some(vec![]) };
        match port {
            PortMatch::Any => Some(protocol_is(*protocol)),
            PortMatch::Range(first, last) => Some(port_within(*protocol, (*first, *last))),
            PortMatch::Named(name) => {
                let keys = self.named(&BTreeSet::from([(&**name, *protocol)]), rule, v4);
                if keys.is_empty() {
                    return None;
                }
                let peers: Vec<String> = rule.peers.iter().map(|peer| self.peer_digest(peer)).collect();
                let about = match self.way {
                    Direction::In => self.about.pods.text().to_owned(),
                    Direction::Out => format!("{peers:?}"),
                };
                let key = (self.way, &self.policy.namespace, about, name, *protocol);
                let set = format!("n{}-{}", family(v4), digest(key));
                out.keys(&set, Keys::AddressPort(v4)).extend(keys);
                Some(in_named(set, v4))
            }
        }
    }

    /// Address and number of every pod that has a port of one of the names and may be talked to: those the policy is
    /// about for what comes in, the peers for what goes out.
    fn named(&self, names: &BTreeSet<(&str, Protocol)>, rule: &Rule, v4: bool) -> BTreeSet<Vec<u8>> {
        let mut keys = BTreeSet::new();
        if names.is_empty() {
            return keys;
        }
        let homes: Vec<BTreeSet<&str>> = rule.peers.iter().map(|peer| self.homes(peer)).collect();
        for (of, pod) in self.known.pods {
            let talked_to = match self.way {
                Direction::In => {
                    of.namespace == self.policy.namespace && self.about.pods.matches(&pod.labels)
                }
                Direction::Out if rule.peers.is_empty() => true,
                Direction::Out => {
                    rule.peers.iter().zip(&homes).any(|(peer, homes)| selects(peer, homes, of, pod))
                }
            };
            if !talked_to {
                continue;
            }
            for port in pod.ports.iter().filter(|port| names.contains(&(&*port.name, port.protocol))) {
                let [high, low] = port.number.to_be_bytes();
                let tail = [port.protocol.number(), 0, 0, 0, high, low, 0, 0];
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
