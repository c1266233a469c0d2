//! Objects that are being deleted and do not go away.

use crate::finding::{Evidence, Finding, ObjectRef, metadata};
use crate::kinds::Resource;
use crate::trouble::{Severity, Trouble};
use crate::world::World;
use coracle_fields::core::v1::Pod;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Json, View};

/// Seconds that a deletion may take before it is worth a line in an analysis of the whole cluster.
const PATIENCE: i64 = 30;

/// Why an object is not deleted.
pub fn explain(world: &World, object: View<'_, Json>, trail: &[ObjectRef]) -> Vec<Finding> {
    let meta = metadata(object);
    let Some(reference) = trail.last() else { return Vec::new() };
    if !meta.deletion_timestamp().is_set() {
        return Vec::new();
    }
    blocked(world, meta, reference).into_iter().collect()
}

/// The finalizers that keep an object which is being deleted.
pub fn blocked(world: &World, meta: View<'_, ObjectMeta>, object: &ObjectRef) -> Option<Finding> {
    let finalizers: Vec<&str> = meta.finalizers().texts().collect();
    let first = finalizers.first()?;
    let cause = format!(
        "{} is being deleted, and the finalizer {} keeps it: {}",
        object.kind,
        finalizers.join(", "),
        owner(first)
    );
    let finding = Finding::new(object.clone(), Trouble::FinalizerBlocks, cause)
        .since(meta.deletion_timestamp().text())
        .evidence("field metadata.finalizers", finalizers.join(", "))
        .with(managers(meta))
        .with(users(world, meta, first))
        .remedy(release(object));
    Some(patient(world, finding))
}

/// How an object is freed from its finalizers.
pub fn release(object: &ObjectRef) -> String {
    let patch = r#"-p '{"metadata":{"finalizers":null}}'"#;
    format!(
        "let the owner of the finalizer finish; if it is gone for good, remove the finalizer, which skips its cleanup: \
         kubectl patch {} --type=merge {patch}",
        object.arguments()
    )
}

/// A deletion that has only begun is normal: it is told to those who ask for the object.
pub fn patient(world: &World, mut finding: Finding) -> Finding {
    if finding.since.as_deref().is_some_and(|since| !world.older(since, PATIENCE)) {
        finding.severity = Severity::Notice;
    }
    finding
}

/// Objects of a resource that their finalizers keep, from their metadata.
pub fn kept(world: &World, resource: &Resource, namespace: Option<&str>) -> Vec<Finding> {
    let all = world.metadata(resource, namespace).into_iter();
    let going = all.filter(|meta| meta.deletion_timestamp().is_set());
    going.filter_map(|meta| blocked(world, meta, &reference(resource, meta))).collect()
}

/// The objects of a namespace with finalizers, each with these.
pub fn holders(world: &World, resource: &Resource, namespace: &str) -> Vec<(ObjectRef, String)> {
    let all = world.metadata(resource, Some(namespace)).into_iter();
    let held = all.filter(|meta| !meta.finalizers().is_empty());
    held.map(|meta| {
        let finalizers: Vec<&str> = meta.finalizers().texts().collect();
        (reference(resource, meta), finalizers.join(", "))
    })
    .collect()
}

fn reference(resource: &Resource, meta: View<'_, ObjectMeta>) -> ObjectRef {
    ObjectRef {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: meta.namespace().text().to_owned(),
        name: meta.name().text().to_owned(),
    }
}

/// Who removes a finalizer, and when.
fn owner(finalizer: &str) -> String {
    let known = match finalizer {
        "kubernetes.io/pvc-protection" => "it is removed when no pod uses the claim",
        "kubernetes.io/pv-protection" => "it is removed when no claim is bound to the volume",
        "foregroundDeletion" => "it is removed when all dependents are deleted",
        "orphan" => "it is removed when the dependents have no owner any more",
        "batch.kubernetes.io/job-tracking" => "the Job controller removes it when it has counted the pod",
        "service.kubernetes.io/load-balancer-cleanup" => {
            "the cloud controller removes it when the load balancer is gone"
        }
        "customresourcecleanup.apiextensions.k8s.io" => "it is removed when all custom resources are deleted",
        _ => "",
    };
    match (known, finalizer.split_once('/')) {
        ("", Some((domain, _))) => format!("its owner, a controller of {domain}, has not removed it"),
        ("", None) => "its owner has not removed it".to_owned(),
        (known, _) => known.to_owned(),
    }
}

/// Who wrote the finalizers, by the managed fields.
fn managers(meta: View<'_, ObjectMeta>) -> Option<Evidence> {
    let wrote = |fields: View<'_, Json>| fields.at("f:metadata").at("f:finalizers").is_set();
    let entries = meta.managed_fields().items().filter(|entry| wrote(entry.fields_v1()));
    let names: Vec<&str> = entries.map(|entry| entry.manager().text()).collect();
    (!names.is_empty()).then(|| Evidence { what: "finalizers written by".to_owned(), text: names.join(", ") })
}

/// The pods that use a claim which is protected from deletion.
fn users(world: &World, meta: View<'_, ObjectMeta>, finalizer: &str) -> Option<Evidence> {
    if finalizer != "kubernetes.io/pvc-protection" {
        return None;
    }
    let pods = world.list::<Pod>(Some(meta.namespace().text())).items;
    let users: Vec<&str> = pods
        .iter()
        .filter(|pod| uses(**pod, meta.name().text()))
        .map(|pod| pod.metadata().name().text())
        .collect();
    (!users.is_empty())
        .then(|| Evidence { what: "pods that use the claim".to_owned(), text: users.join(", ") })
}

/// Whether a pod uses a claim.
pub fn uses(pod: View<'_, Pod>, claim: &str) -> bool {
    pod.spec().volumes().items().any(|volume| volume.persistent_volume_claim().claim_name() == claim)
}
