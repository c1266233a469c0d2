//! Inputs of the compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::model::{Pod, Policy};
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
