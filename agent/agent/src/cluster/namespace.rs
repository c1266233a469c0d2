//! Namespaces, as policies select them and names are under them.

use coracle_fields::core::v1;
use coracle_fields::fields;
use k8s_openapi::ClusterResourceScope;
use std::collections::BTreeMap;

use super::reflector::FromWire;
use super::wire::SlimMeta;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

fields! {
    /// A Namespace as it is read.
    #[derive(Clone, Debug)]
    pub struct WireNamespace: v1::Namespace {
        metadata: SlimMeta,
    }
}

crate::wire_kind!(WireNamespace, ClusterResourceScope, "", "v1", "Namespace", "namespaces");

impl FromWire for Namespace {
    type Wire = WireNamespace;

    fn from_wire(wire: WireNamespace) -> Option<Self> {
        Some(Namespace { labels: wire.metadata.0.labels.unwrap_or_default() })
    }
}
