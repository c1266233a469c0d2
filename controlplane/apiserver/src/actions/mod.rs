//! Behaviour of built-in kinds besides storage: subresources that are actions, resources that are computed and not
//! stored, and allocations before a write.

// `/scale`.
pub mod scale;
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
// IP families of Services.
pub mod service_families;
// Cluster IPs and node ports of Services.
pub mod service_addresses;

use crate::api::ActionKey;
use crate::connect::resource_metrics;
use crate::hook::{Action, Hook};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Subresource;
use service_addresses::RangeError;
use std::collections::HashMap;
use std::sync::Arc;

/// Dependencies of the actions.
pub struct Needs {
    /// Signs service-account tokens.
    pub keys: Arc<coracle_pki::service_account::Keys>,
    /// Decides access reviews; set when the handler chain is built.
    pub access: Arc<reviews::Access>,
    /// CIDRs of cluster IPs.
    pub service_cidr: String,
    /// Usage of nodes and pods.
    pub usage: Arc<resource_metrics::ResourceMetrics>,
    /// Where scheduler and controllers run.
    pub loops: components::LoopPlacement,
    /// Health checks.
    pub checks: coracle_cli::health::Checks,
}

/// Every action, by group, resource and subresource.
pub fn actions(registry: &Registry, needs: &Needs) -> HashMap<ActionKey, Arc<dyn Action>> {
    let mut all: HashMap<ActionKey, Arc<dyn Action>> = HashMap::new();
    let mut add = |group: &str, resource: &str, sub: &str, action: Arc<dyn Action>| {
        all.insert((group.into(), resource.into(), sub.into()), action);
    };
    for kind in registry.all() {
        if kind.subresources.contains(&Subresource::Scale) {
            add(&kind.group, &kind.plural, "scale", Arc::new(scale::Scale));
        }
    }
    add("", "pods", "binding", Arc::new(binding::Binding));
    add("", "bindings", "", Arc::new(binding::Binding));
    add("", "pods", "eviction", Arc::new(eviction::Eviction));
    add("", "serviceaccounts", "token", Arc::new(token::Token { keys: needs.keys.clone() }));
    let components = components::Components { loops: needs.loops, checks: needs.checks.clone() };
    add("", "componentstatuses", "", Arc::new(components));
    for (resource, action) in resource_metrics::actions(&needs.usage) {
        add(resource_metrics::GROUP, resource, "", action);
    }
    reviews::register(&needs.access, &mut add);
    all
}

/// Every hook, by the key prefix of its kind.
pub fn hooks(registry: &Registry, needs: &Needs) -> Result<HashMap<String, Arc<dyn Hook>>, RangeError> {
    let mut all: HashMap<String, Arc<dyn Hook>> = HashMap::new();
    if let Some(kind) = registry.resource("", "v1", "services") {
        all.insert(kind.prefix(), Arc::new(service_addresses::ServiceAddresses::new(&needs.service_cidr)?));
    }
    Ok(all)
}
