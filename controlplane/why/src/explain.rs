//! Which area explains which kind.

use crate::finding::{Finding, ObjectRef};
use crate::follow::located;
use crate::world::World;
use crate::{
    api_services, autoscalers, budgets, claims, conditions, deletion, ingress, namespaces, nodes, pod,
    quotas, services, signing, webhooks, workloads,
};
use coracle_fields::{Kind, View};

/// Finds the causes of an object's trouble. `trail` are the references that led to the object, which is the last.
pub type Explain<K> = fn(&World, View<'_, K>, &[ObjectRef]) -> Vec<Finding>;

/// The causes of the trouble of an object that was read already.
pub fn explain<K: Kind>(world: &World, object: View<'_, K>, explain: Explain<K>) -> Vec<Finding> {
    let trail = [ObjectRef::to(object)];
    located(looked(world, object, &trail, explain), &trail)
}

/// Objects that are being deleted have other troubles than those that are wanted.
fn looked<K: Kind>(
    world: &World,
    object: View<'_, K>,
    trail: &[ObjectRef],
    explain: Explain<K>,
) -> Vec<Finding> {
    let mut findings = match K::KIND {
        "Pod" | "Namespace" => Vec::new(),
        _ => deletion::explain(world, object.erased(), trail),
    };
    if findings.is_empty() {
        findings = explain(world, object, trail);
    }
    findings
}

fn with<K: Kind>(
    world: &World,
    object: &ObjectRef,
    trail: &[ObjectRef],
    explain: Explain<K>,
) -> Vec<Finding> {
    match world.get::<K>(&object.namespace, &object.name).view() {
        Some(view) => looked(world, view, trail, explain),
        None => Vec::new(),
    }
}

/// The causes of the trouble of an object of any kind; [`World::new`] takes it for references.
pub fn inspect(world: &World, object: &ObjectRef, trail: &[ObjectRef]) -> Vec<Finding> {
    match (object.api_version.as_str(), object.kind.as_str()) {
        ("v1", "Pod") => with(world, object, trail, pod::explain),
        ("v1", "Node") => with(world, object, trail, nodes::explain),
        ("v1", "Service") => with(world, object, trail, services::explain),
        ("v1", "Namespace") => with(world, object, trail, namespaces::explain),
        ("v1", "PersistentVolumeClaim") => with(world, object, trail, claims::explain),
        ("v1", "PersistentVolume") => with(world, object, trail, claims::explain_volume),
        ("v1", "ResourceQuota") => with(world, object, trail, quotas::explain),
        ("v1", "ReplicationController") => {
            with(world, object, trail, workloads::replicas::explain_controller)
        }
        ("apps/v1", "Deployment") => with(world, object, trail, workloads::deployment::explain),
        ("apps/v1", "ReplicaSet") => with(world, object, trail, workloads::replicas::explain),
        ("apps/v1", "StatefulSet") => with(world, object, trail, workloads::stateful_set::explain),
        ("apps/v1", "DaemonSet") => with(world, object, trail, workloads::daemon_set::explain),
        ("batch/v1", "Job") => with(world, object, trail, workloads::job::explain),
        ("batch/v1", "CronJob") => with(world, object, trail, workloads::cron_job::explain),
        ("networking.k8s.io/v1", "Ingress") => with(world, object, trail, ingress::explain),
        ("policy/v1", "PodDisruptionBudget") => with(world, object, trail, budgets::explain),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => with(world, object, trail, autoscalers::explain),
        ("certificates.k8s.io/v1", "CertificateSigningRequest") => {
            with(world, object, trail, signing::explain)
        }
        ("apiregistration.k8s.io/v1", "APIService") => with(world, object, trail, api_services::explain),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            with(world, object, trail, conditions::explain_definition)
        }
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration") => {
            with(world, object, trail, webhooks::explain_mutating)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration") => {
            with(world, object, trail, webhooks::explain_validating)
        }
        _ => conditions::explain_other(world, object, trail),
    }
}
