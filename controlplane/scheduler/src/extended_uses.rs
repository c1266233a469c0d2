//! Extended resources that the containers of a pod ask for, and that devices of a class may be behind.

use super::resources::whole;
use super::wire;
use std::sync::Arc;

/// Before the name of a class: the resource that every class has.
pub const OF_CLASS: &str = "deviceclass.resource.kubernetes.io/";

/// What a container asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerUse {
    /// The container.
    pub container: String,
    /// Its place among init containers and containers.
    pub index: usize,
    /// Others can have its devices when it has ended.
    pub is_short_lived: bool,
    /// Of each resource.
    pub amounts: Vec<ExtendedAmount>,
}

/// A request of a container.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExtendedAmount {
    /// The resource.
    pub resource: Arc<str>,
    /// Its place among all requests of the container.
    pub index: usize,
    /// How much of it.
    pub amount: i64,
}

/// Whether devices of a class can be behind a resource.
pub fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(OF_CLASS) || !(is_native || name.starts_with("requests."))
}

/// Extended resources of a pod's containers.
pub fn uses(spec: &wire::PodSpec) -> Vec<ContainerUse> {
    let of = |(index, container): (usize, &wire::Container)| {
        let requests = container.resources.requests.iter().enumerate();
        let amounts = requests.filter(|(_, (name, _))| is_extended(name)).map(|(index, (name, value))| {
            ExtendedAmount { resource: name.as_str().into(), index, amount: whole(value) }
        });
        ContainerUse {
            container: container.name.clone(),
            index,
            is_short_lived: index < spec.init_containers.len()
                && container.restart_policy.as_deref() != Some("Always"),
            amounts: amounts.filter(|one| one.amount > 0).collect(),
        }
    };
    let all = spec.init_containers.iter().chain(&spec.containers).enumerate();
    all.map(of).filter(|used| !used.amounts.is_empty()).collect()
}
