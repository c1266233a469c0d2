//! What some kinds do besides being stored: subresources that are actions, resources that are only answered, and
//! allocations around the store.

// Replicas of anything that has them.
pub mod scale;
// A pod gets its node.
pub mod binding;
// A pod is asked to go, within its disruption budget.
pub mod eviction;
// Tokens for service accounts.
pub mod token;
// Who am I, may I, who is this.
pub mod reviews;
// How the parts of the control plane are.
pub mod components;
// Which address families a Service gets.
pub mod service_families;
// Addresses and ports of Services.
pub mod service_addresses;

use crate::api::ActionKey;
use crate::connect::usage;
use crate::hook::{Action, Hook};
use coracle_kinds::registry::index::Registry;
use coracle_kinds::registry::kinds::Subresource;
use std::collections::HashMap;
use std::sync::Arc;

/// What the actions need from outside.
pub struct Needs {
    /// Signs service-account tokens.
    pub keys: Arc<coracle_pki::service_account::Keys>,
    /// Decides access reviews; set once the chain stands.
    pub access: Arc<reviews::Access>,
    /// Addresses of Services.
    pub service_cidr: String,
    /// What nodes and pods use.
    pub usage: Arc<usage::Usage>,
    /// Where scheduler and controllers run.
    pub loops: components::Loops,
    /// What health pages ask.
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
    for (resource, action) in usage::actions(&needs.usage) {
        add(usage::GROUP, resource, "", action);
    }
    reviews::register(&needs.access, &mut add);
    all
}

/// Every hook, by the key prefix of its kind.
pub fn hooks(registry: &Registry, needs: &Needs) -> Result<HashMap<String, Arc<dyn Hook>>, String> {
    let mut all: HashMap<String, Arc<dyn Hook>> = HashMap::new();
    if let Some(kind) = registry.resource("", "v1", "services") {
        all.insert(kind.prefix(), Arc::new(service_addresses::ServiceAddresses::new(&needs.service_cidr)?));
    }
    Ok(all)
}
