//! Policies to rules: what the kernel should know, as data. Pure.
//!
//! A pod of this node that some policy is about leads, by its address, to a chain for the set of policies that are
//! about it; that chain tries each policy and drops what none allowed. What goes out and what comes in are looked at
//! in two base chains, so that "allowed" in the first still means the second is asked; a third looks at questions to the
//! DNS of the node, which go nowhere else.

use coracle_cni::nft::{Expr, Verdict};
use coracle_cni::route::octets;
use std::collections::BTreeSet;

use super::direction::{Direction, digest, family, policy_chain};
use super::input::PolicyInput;
use super::limits::Budget;
use super::rule::Compiler;
use super::ruleset::{self, Chain, Keys, Ruleset};
use crate::cluster::Name;

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
