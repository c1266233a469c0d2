//! Behaviour of built-in kinds besides storage: subresources that are actions, resources that are computed and not
//! stored, and allocations before a write.

// `/scale`.
pub mod scale;
// Owners of the number of replicas.
mod scale_owners;
// `/binding`.
pub mod binding;
// `/eviction`.
pub mod eviction;
// `/token` of service accounts.
pub mod token;
// Access reviews and token reviews.
pub mod reviews;
// ComponentStatuses.
pub mod components;
// `metrics.k8s.io`.
pub mod resource_metrics;
// The figures of an agent that it reads.
mod summary;
// IP families of Services.
pub mod service_families;
// Cluster IPs and node ports of Services.
pub mod service_addresses;
// Ranges of those addresses.
mod service_cidrs;

use crate::authn;
use crate::authz::Authorizer;
use crate::hook::Hook;
use crate::run_action::Actions;
use crate::service_ranges::{RangeError, ServiceRanges};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Subresource;
use std::collections::HashMap;
use std::sync::Arc;

/// Dependencies of the actions.
pub struct Needs {
    /// Signs service-account tokens.
    pub keys: Arc<coracle_pki::service_account::Keys>,
    /// Decides token reviews.
    pub authn: Arc<authn::Union>,
    /// Decides access reviews.
    pub authz: Arc<dyn Authorizer>,
    /// Usage of nodes and pods.
    pub usage: Arc<resource_metrics::ResourceMetrics>,
    /// Where scheduler and controllers run.
    pub loops: components::LoopPlacement,
    /// Health checks.
    pub checks: coracle_cli::health::Checks,
}

/// Every action.
pub fn actions(registry: &Registry, needs: &Needs) -> Actions {
    let mut all = Actions::default();
    for kind in registry.all() {
        if kind.subresources.contains(&Subresource::Scale) {
            all.add(&kind.group, &kind.plural, "scale", Arc::new(scale::Scale));
        }
    }
    all.add("", "pods", "binding", Arc::new(binding::Binding));
    all.add("", "bindings", "", Arc::new(binding::Binding));
    all.add("", "pods", "eviction", Arc::new(eviction::Eviction));
    all.add("", "serviceaccounts", "token", Arc::new(token::Token { keys: needs.keys.clone() }));
    let components = components::Components { loops: needs.loops, checks: needs.checks.clone() };
    all.add("", "componentstatuses", "", Arc::new(components));
    for (resource, action) in resource_metrics::actions(&needs.usage) {
        all.add(resource_metrics::GROUP, resource, "", action);
    }
    reviews::register(&needs.authn, &needs.authz, &mut all);
    all
}

/// Every hook, by the key prefix of its kind. Cluster IPs come from the ranges `service_cidr`.
pub fn hooks(registry: &Registry, service_cidr: &str) -> Result<HashMap<String, Arc<dyn Hook>>, RangeError> {
    let mut all: HashMap<String, Arc<dyn Hook>> = HashMap::new();
    if let Some(kind) = registry.resource("", "v1", "services") {
        let ranges = ServiceRanges::new(service_cidr)?;
        all.insert(kind.prefix(), Arc::new(service_addresses::ServiceAddresses::new(ranges)));
    }
    Ok(all)
}
