//! Size limits of the policies of a namespace. Pure.
//!
//! Policies are compiled into one transaction for all pods of the node, so whoever writes policies in one namespace
//! could otherwise take the memory and time that the policies of all others need.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::model::{Peer, Rule};

/// The most that one policy may cost in one direction: about the number of kernel rules of a family.
pub const POLICY: usize = 10_000;
/// The most that all policies of a namespace may cost on one node.
pub const NAMESPACE: usize = 20_000;
/// What a selector costs: it is compared with all pods of the cluster and becomes a set of their addresses.
const SELECTOR: usize = 20;

/// What namespaces have used so far.
#[derive(Debug, Default)]
pub(super) struct Budget(BTreeMap<Arc<str>, usize>);

impl Budget {
    /// Whether the rules of a policy are within the limits. Only those that are count against the namespace.
    pub fn affords(&mut self, namespace: &Arc<str>, rules: &[Rule]) -> bool {
        let cost = cost(rules);
        let used = self.0.entry(namespace.clone()).or_default();
        let affords = cost <= POLICY && *used + cost <= NAMESPACE;
        if affords {
            *used += cost;
        }
        affords
    }
}

fn cost(rules: &[Rule]) -> usize {
    let peer = |peer: &Peer| match peer {
        Peer::Block { except, .. } => 1 + except.len(),
        Peer::Pods { .. } => SELECTOR,
    };
    rules.iter().map(|rule| 1 + rule.ports.len() + rule.peers.iter().map(peer).sum::<usize>()).sum()
}
