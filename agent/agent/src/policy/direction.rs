//! Directions of traffic, and the names of chains and maps for them.

use coracle_cni::nft::{Expr, reg};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::model::{Policy, Rule};
use crate::cluster::Name;

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

    pub(super) fn rules(self, policy: &Policy) -> Option<&[Rule]> {
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

pub(super) fn digest(of: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

pub(super) fn policy_chain(way: Direction, policy: &Name) -> String {
    format!("{}-{}", way.letter(), digest(policy))
}
