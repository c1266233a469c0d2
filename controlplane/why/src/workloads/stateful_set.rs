//! StatefulSets: pods are made one after the other.

use super::{creation, of_pods, owned_by, scaled_to_zero};
use crate::finding::{Finding, ObjectRef};
use crate::kinds::Resource;
use crate::pod::is_ready;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::apps::v1::StatefulSet;
use coracle_fields::core::v1::{Pod, Service};

/// Why a StatefulSet does not have the pods that it should have.
pub fn explain(world: &World, set: View<'_, StatefulSet>, trail: &[ObjectRef]) -> Vec<Finding> {
    let (spec, status) = (set.spec(), set.status());
    let wanted = spec.replicas().or(1);
    if wanted == 0 {
        return vec![scaled_to_zero(set)];
    }
    let mut findings = Vec::new();
    if status.ready_replicas().or(0) < wanted {
        findings.extend(of_pods(world, set.metadata(), trail));
        if findings.is_empty() && status.replicas().or(0) < wanted {
            findings.extend(creation::explain(world, &ObjectRef::to(set), None));
        }
        if findings.is_empty() {
            findings.extend(waits(world, set));
        }
    }
    findings.extend(service(world, set));
    findings
}

/// Later pods wait until the earlier ones are ready.
fn waits(world: &World, set: View<'_, StatefulSet>) -> Option<Finding> {
    let parallel = set.spec().pod_management_policy() == "Parallel";
    let pods = owned_by::<Pod>(world, set.metadata());
    let first = pods.iter().find(|pod| !is_ready(**pod)).filter(|_| !parallel)?;
    let name = first.metadata().name().text();
    let (made, wanted) = (set.status().replicas().or(0), set.spec().replicas().or(1));
    let cause = format!("pod {name} is not ready, and the {} pods after it wait for it", wanted - made);
    (made < wanted).then(|| {
        Finding::new(ObjectRef::to(set), Trouble::StatefulSetWaits, cause)
            .since(first.metadata().creation_timestamp().text())
            .evidence("pods", format!("{made} of {wanted} are made"))
            .remedy("make that pod ready, or use podManagementPolicy: Parallel")
    })
}

/// The governing Service, which gives the pods their names.
fn service(world: &World, set: View<'_, StatefulSet>) -> Option<Finding> {
    let namespace = set.metadata().namespace().text();
    let name = set.spec().service_name().filled()?;
    let Found::No = world.get::<Service>(namespace, name) else { return None };
    let hint = suggestion(name, world.names(&Resource::of::<Service>(), namespace));
    let cause = format!("the governing Service {name} does not exist, so the pods have no DNS names{hint}");
    let finding = Finding::new(ObjectRef::to(set), Trouble::StatefulSetService, cause)
        .since(set.metadata().creation_timestamp().text())
        .evidence("field spec.serviceName", name)
        .remedy(format!("create a headless Service {name} (clusterIP: None) in namespace {namespace}"));
    Some(finding)
}
