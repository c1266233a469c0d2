//! Inputs of the compiler at one moment: a bisection compiles the same inputs more than once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::bisect::Specs;
use super::compile::{Compiled, compile};
use super::input::PolicyInput;
use super::model::Pod;
use crate::cluster::{Name, Namespace};

/// Policies, pods and namespaces of the cluster.
pub(super) struct Snapshot {
    pub policies: Specs,
    pub pods: BTreeMap<Name, Pod>,
    /// Pods of this node.
    pub local: BTreeSet<Name>,
    pub namespaces: BTreeMap<Name, Arc<Namespace>>,
}

impl Snapshot {
    /// The rules of a node that answers at `dns`, without those of refused policies.
    pub fn compile(&self, dns: &[IpAddr], refused: &BTreeSet<Name>) -> Compiled {
        compile(&PolicyInput {
            policies: &self.policies.iter().map(|(name, policy)| (name.clone(), &**policy)).collect(),
            pods: &self.pods.iter().map(|(name, pod)| (name.clone(), pod)).collect(),
            local: &self.local,
            namespaces: &self.namespaces.iter().map(|(name, of)| (name.clone(), &**of)).collect(),
            dns,
            refused,
        })
    }
}
