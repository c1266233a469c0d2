//! What is set up before the first container: account, volumes, network, sandbox.

use super::containers::containers;
use crate::claims;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::follow::follow;
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{Event, PersistentVolumeClaim, Pod, ServiceAccount};

/// Seconds for which a failure is worth a line; those that go on are reported again and again.
const RECENT: i64 = 900;

/// Why a pod that has a node does not start its containers.
pub fn explain(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let creating =
        containers(pod).iter().any(|slot| matches!(slot.waiting(), "ContainerCreating" | "PodInitializing"));
    let unknown = pod.status().container_statuses().is_empty() && pod.status().phase() == "Pending";
    if pod.spec().node_name().text().is_empty() || !(creating || unknown) {
        return Vec::new();
    }
    let mut findings = of_claims(world, pod, trail);
    if findings.is_empty() {
        let recent =
            |event: &View<'_, Event>| world.age(events::last_seen(*event)).is_none_or(|age| age < RECENT);
        let all: Vec<View<'_, Event>> =
            world.events(&ObjectRef::to(pod)).into_iter().filter(recent).collect();
        findings.extend(account(world, pod).or_else(|| by_events(pod, &all)));
    }
    findings
}

fn of_claims(world: &World, pod: View<'_, Pod>, trail: &[ObjectRef]) -> Vec<Finding> {
    let namespace = pod.metadata().namespace().text();
    let names = pod
        .spec()
        .volumes()
        .items()
        .filter_map(|volume| volume.persistent_volume_claim().claim_name().filled());
    let claims = names.filter_map(|name| world.get::<PersistentVolumeClaim>(namespace, name).view());
    let unbound = claims.filter(|claim| !claims::is_bound(*claim));
    unbound.flat_map(|claim| follow(world, trail, ObjectRef::to(claim))).collect()
}

fn account(world: &World, pod: View<'_, Pod>) -> Option<Finding> {
    let namespace = pod.metadata().namespace().text();
    let name = pod.spec().service_account_name().filled()?;
    let Found::No = world.get::<ServiceAccount>(namespace, name) else { return None };
    let similar = suggestion(name, world.names(&Resource::of::<ServiceAccount>(), namespace));
    let cause = format!("the ServiceAccount {name} does not exist{similar}");
    let finding = Finding::new(ObjectRef::to(pod), Trouble::ServiceAccountMissing, cause)
        .since(pod.metadata().creation_timestamp().text())
        .evidence("field spec.serviceAccountName", name)
        .remedy(format!(
            "kubectl create serviceaccount {name} -n {namespace}, or correct spec.serviceAccountName"
        ));
    Some(finding)
}

fn by_events(pod: View<'_, Pod>, all: &[View<'_, Event>]) -> Option<Finding> {
    let object = ObjectRef::to(pod);
    let found = |reasons: &[&str], trouble: Trouble, what: &str, remedy: &str| {
        let event = events::last(all, reasons, |_| true)?;
        let cause = format!("{what}: {}", first_line(event.message().text()));
        let finding = Finding::new(object.clone(), trouble, cause)
            .since(events::first_seen(event))
            .with([events::evidence(event)])
            .remedy(remedy);
        Some(finding)
    };
    let attach = ["FailedAttachVolume"];
    let mount = ["FailedMount", "FailedMapVolume", "VolumeMountsFailed", "FailedSetupVolume"];
    let sandbox =
        ["FailedCreatePodSandBox", "FailedCreatePodSandbox", "NetworkNotReady", "FailedPodSandBoxStatus"];
    found(
        &attach,
        Trouble::VolumeAttachFailed,
        "a volume cannot be attached to the node",
        "if the message says that the volume is used elsewhere, delete the pod that uses it; otherwise look at the CSI driver",
    )
    .or_else(|| {
        let remedy = "correct the volume in spec.volumes, or what the message names on the node";
        found(&mount, Trouble::VolumeMountFailed, "a volume cannot be mounted", remedy)
    })
    .or_else(|| {
        let remedy = "look at the network plugin's pods and at its configuration in /etc/cni/net.d of the node";
        found(&sandbox, Trouble::SandboxFailed, "the pod's sandbox or network cannot be set up", remedy)
    })
}

/// The first line of a message.
pub fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim()
}
