//! The rows of every built-in kind, one file per API group, in the order of discovery.

use super::kinds::Kind;

mod core;
mod registration;
mod apps;
mod events;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod networking;
mod policy;
mod rbac;
mod storage;
mod admission;
mod extensions;
mod scheduling;
mod coordination;
mod node;
mod discovery;
mod flowcontrol;
mod resource;

/// Every built-in kind.
pub fn builtin() -> Vec<Kind> {
    let groups = [
        core::kinds,
        registration::kinds,
        apps::kinds,
        events::kinds,
        authentication::kinds,
        authorization::kinds,
        autoscaling::kinds,
        batch::kinds,
        certificates::kinds,
        networking::kinds,
        policy::kinds,
        rbac::kinds,
        storage::kinds,
        admission::kinds,
        extensions::kinds,
        scheduling::kinds,
        coordination::kinds,
        node::kinds,
        discovery::kinds,
        flowcontrol::kinds,
        resource::kinds,
    ];
    groups.into_iter().flat_map(|kinds| kinds()).map(with_schema).collect()
}

/// The kind that the feature `Initializers` adds.
pub fn initializer_configuration() -> Kind {
    with_schema(admission::initializer_configuration())
}

/// Names the row's type in the schema table, from its group, version and kind.
fn with_schema(mut kind: Kind) -> Kind {
    let package = match kind.group.as_str() {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned(),
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        group => format!("io.k8s.api.{}", group.split('.').next().unwrap_or_default()),
    };
    kind.schema = format!("{package}.{}.{}", kind.version, kind.kind);
    kind
}

#[cfg(test)]
mod tests;
