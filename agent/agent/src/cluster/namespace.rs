//! Namespaces, as policies select them and names are under them.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::reflector::FromWire;
use super::wire::slim_meta;

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A Namespace as it is read.
#[derive(Clone, Debug, Deserialize)]
pub struct WireNamespace {
    #[serde(deserialize_with = "slim_meta")]
    metadata: ObjectMeta,
}

crate::wire_kind!(WireNamespace, ClusterResourceScope, "", "v1", "Namespace", "namespaces");

impl FromWire for Namespace {
    type Wire = WireNamespace;

    fn from_wire(wire: WireNamespace) -> Option<Self> {
        Some(Namespace { labels: wire.metadata.labels.unwrap_or_default() })
    }
}
