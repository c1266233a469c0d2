//! Workloads: what makes pods.

// Pods that cannot be created.
mod creation;
// Deployments.
pub mod deployment;
// ReplicaSets and ReplicationControllers.
pub mod replicas;
// StatefulSets.
pub mod stateful_set;
// DaemonSets.
pub mod daemon_set;
// Jobs.
pub mod job;
// CronJobs.
pub mod cron_job;

use crate::finding::{Finding, ObjectRef, metadata};
use crate::follow::follow;
use crate::pod::{has_ended, is_ready};
use crate::trouble::Trouble;
use crate::world::World;
use coracle_fields::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use coracle_fields::core::v1::Pod;
use coracle_fields::meta::ObjectMeta;
use coracle_fields::{Kind, View};

/// Pods of a workload whose causes are shown.
const SHOWN: usize = 5;

/// Whether an object belongs to an owner.
fn owned(meta: View<'_, ObjectMeta>, owner: View<'_, ObjectMeta>) -> bool {
    let uid = owner.uid().text();
    !uid.is_empty() && meta.owner_references().items().any(|reference| reference.uid() == uid)
}

/// Objects of a kind that belong to an owner.
fn owned_by<'a, K: Kind>(world: &'a World, owner: View<'_, ObjectMeta>) -> Vec<View<'a, K>> {
    let all = world.list::<K>(Some(owner.namespace().text())).items.into_iter();
    all.filter(|object| owned(metadata(*object), owner)).collect()
}

/// The causes of an owner's pods that are not ready.
fn of_pods(world: &World, owner: View<'_, ObjectMeta>, trail: &[ObjectRef]) -> Vec<Finding> {
    let pods = owned_by::<Pod>(world, owner).into_iter();
    let unwell = pods.filter(|pod| {
        let wanted = !pod.metadata().deletion_timestamp().is_set() && pod.status().phase() != "Succeeded";
        wanted && !is_ready(*pod)
    });
    // Those that have failed for good were replaced; the others say what is wrong now.
    let (gone, here): (Vec<_>, Vec<_>) = unwell.partition(|pod| has_ended(*pod));
    let chosen = if here.is_empty() { gone } else { here };
    chosen.into_iter().take(SHOWN).flat_map(|pod| follow(world, trail, ObjectRef::to(pod))).collect()
}

/// The workload whose pod template a pod was made from, when a change of the template makes new pods.
pub fn template_of(world: &World, pod: View<'_, Pod>) -> Option<ObjectRef> {
    let namespace = pod.metadata().namespace().text();
    let owner = |meta: View<'_, ObjectMeta>, kind: &str| {
        let mut all = meta.owner_references().items();
        let found = all.find(|owner| owner.controller().flag() && owner.kind() == kind);
        found.map(|owner| owner.name().text().to_owned())
    };
    let meta = pod.metadata();
    if let Some(name) = owner(meta, "StatefulSet") {
        return Some(ObjectRef::new::<StatefulSet>(namespace, &name));
    }
    if let Some(name) = owner(meta, "DaemonSet") {
        return Some(ObjectRef::new::<DaemonSet>(namespace, &name));
    }
    let set = world.get::<ReplicaSet>(namespace, &owner(meta, "ReplicaSet")?).view()?;
    let deployment = owner(set.metadata(), "Deployment")?;
    Some(ObjectRef::new::<Deployment>(namespace, &deployment))
}

/// A workload that is not meant to run.
fn scaled_to_zero<K: Kind>(object: View<'_, K>) -> Finding {
    let object = ObjectRef::to(object);
    let command = format!("kubectl scale {} --replicas=1", object.arguments());
    Finding::new(object, Trouble::ScaledToZero, "the workload is scaled to zero: it has no pods")
        .evidence("field spec.replicas", "0")
        .remedy(command)
}
