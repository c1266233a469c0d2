//! How many pods a rule is about, per node and per domain, kept up to date with every pod that comes or goes.

use super::terms::Term;
use std::collections::HashMap;
use std::sync::Arc;

/// No domain: the node lacks the label.
pub const NONE: u32 = u32::MAX;

/// The domains of one node label.
#[derive(Debug)]
pub struct Topology {
    /// The label.
    pub key: Arc<str>,
    values: HashMap<String, u32>,
    /// Domain of each node.
    pub of_node: Vec<u32>,
    /// Nodes in each domain.
    pub sizes: Vec<u32>,
    /// Domains with several nodes.
    shared: usize,
}

impl Topology {
    /// A topology without nodes.
    pub fn new(key: Arc<str>) -> Self {
        Self { key, values: HashMap::new(), of_node: Vec::new(), sizes: Vec::new(), shared: 0 }
    }

    /// A node's label changed, or the node went.
    pub fn place(&mut self, node: usize, value: Option<&str>) {
        if self.of_node.len() <= node {
            self.of_node.resize(node + 1, NONE);
        }
        let old = self.of_node[node];
        if old != NONE {
            self.sizes[old as usize] -= 1;
            self.shared -= usize::from(self.sizes[old as usize] == 1);
        }
        self.of_node[node] = value.map_or(NONE, |value| {
            let next = self.sizes.len() as u32;
            let domain = *self.values.entry(value.to_owned()).or_insert(next);
            if domain == next {
                self.sizes.push(0);
            }
            self.sizes[domain as usize] += 1;
            self.shared += usize::from(self.sizes[domain as usize] == 2);
            domain
        });
    }

    /// The domain of a node.
    pub fn domain(&self, node: usize) -> u32 {
        self.of_node.get(node).copied().unwrap_or(NONE)
    }

    /// Whether no two nodes share a domain, so that the rule is one about single nodes.
    pub fn is_per_node(&self) -> bool {
        self.shared == 0
    }
}

/// Amounts per node and per domain of one topology.
#[derive(Debug, Default)]
pub struct Tally {
    /// By node.
    pub nodes: Vec<i64>,
    /// By domain.
    pub domains: Vec<i64>,
    /// In all domains.
    pub total: i64,
}

impl Tally {
    /// Adds an amount at a node; nodes outside of any domain count only for themselves.
    pub fn add(&mut self, node: usize, domain: u32, amount: i64) {
        grow(&mut self.nodes, node);
        self.nodes[node] += amount;
        if domain != NONE {
            grow(&mut self.domains, domain as usize);
            self.domains[domain as usize] += amount;
            self.total += amount;
        }
    }

    /// The amount in a domain.
    pub fn in_domain(&self, domain: u32) -> i64 {
        self.domains.get(domain as usize).copied().unwrap_or(0)
    }

    /// The amount at a node.
    pub fn at_node(&self, node: usize) -> i64 {
        self.nodes.get(node).copied().unwrap_or(0)
    }
}

fn grow(list: &mut Vec<i64>, at: usize) {
    if list.len() <= at {
        list.resize(at + 1, 0);
    }
}

/// Pods that a term matches.
#[derive(Debug)]
pub struct Matching {
    /// The rule.
    pub term: Arc<Term>,
    /// Index of its topology.
    pub topology: usize,
    /// The pods.
    pub tally: Tally,
    /// When it was last asked for.
    pub used: u64,
}

/// Pods that carry a term.
#[derive(Debug)]
pub struct Holding {
    /// The rule.
    pub term: Arc<Term>,
    /// Index of its topology.
    pub topology: usize,
    /// Pods that must not be with what it matches.
    pub repelled: Tally,
    /// Pods that must be with what it matches.
    pub bound: Tally,
    /// Sum of the weights of pods that like or dislike what it matches.
    pub inclined: Tally,
    /// How many pods carry it.
    pub holders: u32,
}
