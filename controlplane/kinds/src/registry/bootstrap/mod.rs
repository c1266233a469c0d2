//! Bootstrap objects of every cluster, as data. A starting server creates those that are missing; of existing ones it only
//! changes roles and bindings (`server/bootstrap_roles/` of `coracle`), and flow schemas and priority levels
//! (`server/flow_control/`).

pub use cluster::Cluster;
use serde_json::Value;
pub use system_objects::dns;

// Address ranges and port of the cluster.
mod cluster;
// Namespaces, the `kubernetes` Service, its address range, priorities.
mod system_objects;
// Flow schemas and priority levels.
mod flow;
// Default roles, and who has them.
mod roles;

/// Every object with its `apiVersion` and `kind`, in an order in which they can be created one after the other.
pub fn objects(cluster: &Cluster<'_>) -> Vec<Value> {
    let mut objects = system_objects::objects(cluster);
    objects.extend(flow::objects());
    objects.extend(roles::objects());
    objects
}

/// The rules of one of the default roles; none when there is no such role.
pub fn role_rules(name: &str) -> Vec<Value> {
    roles::rules_of(name)
}

#[cfg(test)]
mod tests;
