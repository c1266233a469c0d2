//! What is said about objects with which nothing is wrong.

use crate::cluster::Answer;
use crate::finding::{ObjectRef, metadata};
use crate::pod::is_ready;
use crate::services::{is_node_dns, is_ready_endpoint, selected, slices};
use crate::world::World;
use crate::{claims, conditions, nodes, rollout, target};
use coracle_fields::batch::v1::{CronJob, Job};
use coracle_fields::certificates::v1::CertificateSigningRequest;
use coracle_fields::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use coracle_fields::{Json, Kind, View};

/// That an object of which nothing wrong was found is well, such as `pod/web is running and ready`; nothing when it does not say
/// so itself.
pub fn describe(world: &World, object: &ObjectRef) -> Option<String> {
    state(world, object).map(|state| format!("{object} {state}"))
}

fn with<K: Kind>(
    world: &World,
    object: &ObjectRef,
    say: impl FnOnce(View<'_, K>) -> Option<String>,
) -> Option<String> {
    let found = world.get::<K>(&object.namespace, &object.name).view()?;
    // What is being deleted is not well, whatever its status says.
    if metadata(found).deletion_timestamp().is_set() { None } else { say(found) }
}

fn state(world: &World, object: &ObjectRef) -> Option<String> {
    match (object.api_version.as_str(), object.kind.as_str()) {
        ("v1", "Pod") => with(world, object, pod),
        ("v1", "Node") => {
            with(world, object, |node: View<'_, Node>| nodes::is_well(node).then(|| "is ready".to_owned()))
        }
        ("v1", "Service") => with(world, object, |found| service(world, found)),
        ("v1", "Namespace") => with(world, object, |namespace: View<'_, Namespace>| {
            (namespace.status().phase().or("Active") == "Active").then(|| "is active".to_owned())
        }),
        ("v1", "PersistentVolumeClaim") => with(world, object, |claim: View<'_, PersistentVolumeClaim>| {
            claims::is_bound(claim)
                .then(|| format!("is bound to volume {}", claim.spec().volume_name().text()))
        }),
        ("v1", "PersistentVolume") => with(world, object, |volume: View<'_, PersistentVolume>| {
            let phase = volume.status().phase().text();
            matches!(phase, "Bound" | "Available").then(|| format!("is {}", phase.to_lowercase()))
        }),
        ("v1", "ReplicationController") => with(world, object, rollout::controller),
        ("apps/v1", "Deployment") => with(world, object, rollout::deployment),
        ("apps/v1", "ReplicaSet") => with(world, object, rollout::replica_set),
        ("apps/v1", "StatefulSet") => with(world, object, rollout::stateful_set),
        ("apps/v1", "DaemonSet") => with(world, object, rollout::daemon_set),
        ("batch/v1", "Job") => with(world, object, job),
        ("batch/v1", "CronJob") => with(world, object, cron_job),
        ("certificates.k8s.io/v1", "CertificateSigningRequest") => {
            with(world, object, |request: View<'_, CertificateSigningRequest>| {
                request.status().certificate().filled().map(|_| "is signed".to_owned())
            })
        }
        ("v1", "ResourceQuota")
        | ("networking.k8s.io/v1", "Ingress")
        | ("policy/v1", "PodDisruptionBudget")
        | ("autoscaling/v2", "HorizontalPodAutoscaler")
        | (
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => other(world, object, true),
        _ => other(world, object, false),
    }
}

fn pod(pod: View<'_, Pod>) -> Option<String> {
    match pod.status().phase().text() {
        "Succeeded" => Some("has ended successfully".to_owned()),
        "Running" if is_ready(pod) => Some("is running and ready".to_owned()),
        _ => None,
    }
}

fn job(job: View<'_, Job>) -> Option<String> {
    let holds =
        |name: &str| job.status().conditions().items().any(|c| c.type_() == name && c.status() == "True");
    let active = job.status().active().or(0);
    if holds("Complete") {
        return Some("is complete".to_owned());
    }
    let noun = if active == 1 { "pod" } else { "pods" };
    (active > 0)
        .then(|| format!("is running: {active} active {noun}, {} failed", job.status().failed().or(0)))
}

fn cron_job(job: View<'_, CronJob>) -> Option<String> {
    let last = match job.status().last_schedule_time().filled() {
        Some(time) => format!("made its last Job at {time}"),
        None => "has made no Job yet".to_owned(),
    };
    Some(format!("has the schedule {}, and {last}", job.spec().schedule().text()))
}

fn service(world: &World, service: View<'_, Service>) -> Option<String> {
    let spec = service.spec();
    if spec.type_() == "ExternalName" {
        return Some(format!("is another name for {}", spec.external_name().text()));
    }
    if spec.selector().entries().next().is_none() {
        return without_selector(world, service);
    }
    let pods = selected(world, service)?;
    let ready = pods.iter().filter(|pod| is_ready(**pod)).count();
    let noun = if ready == 1 { "pod" } else { "pods" };
    (ready > 0).then(|| format!("has {ready} ready {noun} of {}", pods.len()))
}

/// A Service whose endpoints somebody else writes.
fn without_selector(world: &World, service: View<'_, Service>) -> Option<String> {
    let slices = slices(world, service);
    let endpoints: Vec<_> = slices.items.iter().flat_map(|slice| slice.endpoints().items()).collect();
    let (ready, all) =
        (endpoints.iter().filter(|endpoint| is_ready_endpoint(**endpoint)).count(), endpoints.len());
    let noun = if ready == 1 { "endpoint" } else { "endpoints" };
    match all {
        0 if is_node_dns(service) => node_dns(world, service),
        _ => (ready > 0).then(|| format!("has no selector, and {ready} ready {noun} of {all}")),
    }
}

/// The address of the cluster's DNS where nodes answer, which is not asked here; nothing when no node would.
fn node_dns(world: &World, service: View<'_, Service>) -> Option<String> {
    let listed = world.list::<Node>(None);
    let answers = listed.items.iter().filter(|node| nodes::is_ready(**node) && nodes::answers_dns(**node));
    let (answers, all) = (answers.count(), listed.items.len());
    let verb = if answers == 1 { "runs" } else { "run" };
    (listed.complete && answers > 0).then(|| {
        format!(
            "has no selector and no endpoints, only the address {}: {answers} of {all} nodes {verb} an agent that answers DNS there",
            service.spec().cluster_ip().text()
        )
    })
}

/// Objects of other kinds: their conditions, where they have some. `explained` kinds were looked at before.
fn other(world: &World, object: &ObjectRef, explained: bool) -> Option<String> {
    let resource = target::resource_of(world, object)?;
    let Answer::Object(found) = world.object(&resource, &object.namespace, &object.name)? else {
        return None;
    };
    let found = View::<Json>::from(found);
    if metadata(found).deletion_timestamp().is_set() {
        return None;
    }
    let (fulfilled, all) = (conditions::fulfilled(found), conditions::all(found));
    Some(match (fulfilled.is_empty(), explained, all.is_empty()) {
        (false, ..) => format!("is {}", fulfilled.join(", ").to_lowercase()),
        (true, true, _) => "exists, and nothing wrong was found in it".to_owned(),
        (true, false, true) => {
            "exists; it has no conditions, and nothing else is looked at in its kind".to_owned()
        }
        (true, false, false) => {
            format!("exists; what its conditions mean is not known: {}", all.join(", "))
        }
    })
}
