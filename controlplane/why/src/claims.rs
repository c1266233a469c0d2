//! PersistentVolumeClaims and PersistentVolumes.

use crate::deletion::uses;
use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::named_volume;
use crate::node_selector;
use crate::select::{selector, selects};
use crate::trouble::Trouble;
use crate::volume_fit::mismatches;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use coracle_fields::storage::v1::StorageClass;
use coracle_fields::{View, storage_class};

/// Annotation of the default storage class.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Seconds that a provisioner may take.
const PATIENCE: i64 = 60;
/// Volumes that are named.
const SHOWN: usize = 5;

/// Whether a claim is bound.
pub fn is_bound(claim: View<'_, PersistentVolumeClaim>) -> bool {
    claim.status().phase() == "Bound"
}

/// Why a claim is not usable.
pub fn explain(world: &World, claim: View<'_, PersistentVolumeClaim>, _trail: &[ObjectRef]) -> Vec<Finding> {
    let volume = claim.spec().volume_name().text();
    let finding = match claim.status().phase().text() {
        "Bound" => node_gone(world, claim, volume),
        "Lost" => lost(world, claim, volume),
        _ if !volume.is_empty() => named_volume::explain(world, claim),
        _ => unbound(world, claim),
    };
    finding.into_iter().collect()
}

/// A finding about a claim, as old as the claim.
fn begun(claim: View<'_, PersistentVolumeClaim>, trouble: Trouble, cause: impl Into<String>) -> Finding {
    Finding::new(ObjectRef::to(claim), trouble, cause).since(claim.metadata().creation_timestamp().text())
}

/// A claim that was bound, and whose volume is gone or belongs to another claim.
fn lost(world: &World, claim: View<'_, PersistentVolumeClaim>, volume: &str) -> Option<Finding> {
    let cause = match world.get::<PersistentVolume>("", volume) {
        Found::Yes(found) if named_volume::is_taken(found, claim) => {
            return Some(named_volume::taken(claim, found));
        }
        // It was restored, and is being bound.
        Found::Yes(_) => return None,
        Found::No => format!("the claim's volume {volume} does not exist any more"),
        Found::Unknown => format!("the claim has lost its volume {volume}"),
    };
    let finding = begun(claim, Trouble::ClaimLost, cause)
        .evidence("field status.phase", "Lost")
        .evidence("field spec.volumeName", volume)
        .remedy(
            "restore the PersistentVolume, or delete the claim and make a new one; its data is lost otherwise",
        );
    Some(finding)
}

/// A bound claim whose volume is on a node that is gone.
fn node_gone(world: &World, claim: View<'_, PersistentVolumeClaim>, volume: &str) -> Option<Finding> {
    let found = world.get::<PersistentVolume>("", volume).view()?;
    let required = found.spec().node_affinity().required();
    let nodes = world.list::<Node>(None);
    if !required.is_set()
        || !nodes.complete
        || nodes.items.iter().any(|node| node_selector::selects(required, *node))
    {
        return None;
    }
    let wanted = node_selector::text_of(required);
    let cause =
        format!("the claim's volume {volume} can only be used where {wanted}, and there is no such node");
    let finding = begun(claim, Trouble::VolumeNodeGone, cause)
        .evidence("field spec.nodeAffinity of the volume", wanted)
        .remedy("bring the node back, or delete claim and volume and restore the data elsewhere");
    Some(finding)
}

fn is_default(class: View<'_, StorageClass>) -> bool {
    class.metadata().annotations().key(DEFAULT_CLASS) == "true"
}

fn unbound(world: &World, claim: View<'_, PersistentVolumeClaim>) -> Option<Finding> {
    let classes = world.list::<StorageClass>(None);
    let wanted = storage_class::of_claim(claim);
    let class = match wanted {
        Some("") => None,
        Some(name) => match classes.items.iter().find(|class| class.metadata().name() == name) {
            Some(class) => Some(*class),
            None if classes.complete => return Some(class_missing(world, claim, name)),
            None => return None,
        },
        None => classes.items.iter().copied().find(|class| is_default(*class)),
    };
    match class {
        Some(class) => of_class(world, claim, class),
        None if classes.complete => static_only(world, claim, Trouble::ClaimWithoutClass),
        None => None,
    }
}

fn class_missing(world: &World, claim: View<'_, PersistentVolumeClaim>, name: &str) -> Finding {
    let classes = world.list::<StorageClass>(None).items;
    let names: Vec<&str> = classes.iter().map(|class| class.metadata().name().text()).collect();
    let cause = format!("the storage class {name} does not exist{}", suggestion(name, names.iter().copied()));
    begun(claim, Trouble::ClaimClassMissing, cause)
        .evidence("field spec.storageClassName", name)
        .evidence("storage classes", names.join(", "))
        .remedy("delete the claim and make it with a class that exists, or create the class; spec.storageClassName cannot be changed")
}

fn of_class(
    world: &World,
    claim: View<'_, PersistentVolumeClaim>,
    class: View<'_, StorageClass>,
) -> Option<Finding> {
    let (name, provisioner) = (class.metadata().name().text(), class.provisioner().text());
    // Upstream's controller reports that it has no plugin of that name, which is what the name is for.
    if provisioner == "kubernetes.io/no-provisioner" {
        return static_only(world, claim, Trouble::ClaimNoProvisioner);
    }
    let object = ObjectRef::to(claim);
    let all = world.events(&object);
    if let Some(event) = events::last(&all, &["ProvisioningFailed"], |_| true) {
        let cause = format!(
            "the provisioner {provisioner} fails: {}",
            event.message().text().lines().next().unwrap_or_default()
        );
        let finding = begun(claim, Trouble::ClaimProvisioningFails, cause)
            .with([events::evidence(event)])
            .remedy(format!("correct what the message names, in the claim or in the storage class {name}"));
        return Some(finding);
    }
    let consumer = class.volume_binding_mode() == "WaitForFirstConsumer";
    let pods = world.list::<Pod>(Some(claim.metadata().namespace().text()));
    let used = pods.items.iter().any(|pod| uses(*pod, claim.metadata().name().text()));
    if consumer && !used {
        let cause =
            format!("the storage class {name} binds claims when a pod uses them, and none uses this one");
        return pods.complete.then(|| {
            begun(claim, Trouble::ClaimWaitsForConsumer, cause)
                .evidence("field volumeBindingMode of the class", "WaitForFirstConsumer")
                .remedy("create a pod that uses the claim")
        });
    }
    let waits = events::last(&all, &["ExternalProvisioning", "Provisioning"], |_| true);
    let late = world.older(claim.metadata().creation_timestamp().text(), PATIENCE);
    match waits {
        Some(event) if late => {
            let cause = format!("the provisioner {provisioner} of the storage class {name} does not answer");
            let finding = begun(claim, Trouble::ClaimProvisioningFails, cause)
                .with([events::evidence(event)])
                .remedy(format!("start the provisioner {provisioner}; its pods' logs say more"));
            Some(finding)
        }
        _ => None,
    }
}

/// A claim that can only be bound to a volume that exists already.
fn static_only(world: &World, claim: View<'_, PersistentVolumeClaim>, trouble: Trouble) -> Option<Finding> {
    let volumes = world.list::<PersistentVolume>(None);
    if !volumes.complete {
        return None;
    }
    let class = storage_class::of_claim(claim).unwrap_or_default();
    let (own, foreign): (Vec<View<'_, PersistentVolume>>, Vec<_>) = volumes
        .items
        .iter()
        .copied()
        .filter(|volume| is_free(*volume, claim))
        .partition(|volume| storage_class::of_volume(*volume) == class);
    let misfits: Vec<(View<'_, PersistentVolume>, Vec<String>)> =
        own.into_iter().map(|volume| (volume, misfit(volume, claim))).collect();
    let foreign: Vec<&str> =
        foreign.into_iter().take(SHOWN).map(|volume| volume.metadata().name().text()).collect();
    let begun = |trouble: Trouble, cause: String| {
        let shown = if class.is_empty() { "none" } else { class };
        begun(claim, trouble, cause)
            .evidence("field spec.storageClassName", shown)
            .evidence("free volumes of other classes", foreign.join(", "))
    };
    let closest = misfits.iter().min_by_key(|(_, reasons)| reasons.len());
    let remedy = "create a PersistentVolume that fits, or use a storage class with a provisioner";
    match closest {
        Some((_, reasons)) if reasons.is_empty() => None,
        Some((volume, reasons)) => {
            let name = volume.metadata().name().text();
            let cause = format!("no volume fits the claim; the closest, {name}, {}", reasons.join(" and "));
            let mut finding = begun(Trouble::ClaimNoVolumeFits, cause).remedy(remedy);
            for (volume, reasons) in misfits.iter().take(SHOWN) {
                finding = finding
                    .evidence(format!("volume {}", volume.metadata().name().text()), reasons.join(" and "));
            }
            Some(finding)
        }
        None if trouble == Trouble::ClaimWithoutClass => {
            let (cause, remedy) = match storage_class::of_claim(claim) {
                Some(_) => (
                    "the claim wants a volume without a storage class, and there is none that is free",
                    "create a PersistentVolume without storageClassName that fits, or create the claim anew: spec.storageClassName \
                     cannot be changed"
                        .to_owned(),
                ),
                None => (
                    "the claim has no storage class, there is no default class, and there is no free volume",
                    format!("set spec.storageClassName, or mark a class as the default with the annotation {DEFAULT_CLASS}=true"),
                ),
            };
            Some(begun(trouble, cause.to_owned()).remedy(remedy))
        }
        None => {
            let cause = format!("the storage class {class} has no provisioner, and there is no free volume");
            Some(begun(trouble, cause).remedy(remedy))
        }
    }
}

fn is_free(volume: View<'_, PersistentVolume>, claim: View<'_, PersistentVolumeClaim>) -> bool {
    let owner = volume.spec().claim_ref();
    let reserved = owner.name() == claim.metadata().name().text()
        && owner.namespace() == claim.metadata().namespace().text();
    volume.status().phase() == "Available" && (!owner.is_set() || reserved)
}

/// Why a volume is not one that a claim would select.
fn misfit(volume: View<'_, PersistentVolume>, claim: View<'_, PersistentVolumeClaim>) -> Vec<String> {
    let (mut reasons, wanted) = (mismatches(volume, claim), claim.spec().selector());
    if wanted.is_set() && !selects(&selector(wanted), volume.metadata()) {
        reasons.push(format!("does not match the selector {}", selector(wanted)));
    }
    reasons
}

/// What is wrong with a volume.
pub fn explain_volume(
    world: &World,
    volume: View<'_, PersistentVolume>,
    _trail: &[ObjectRef],
) -> Vec<Finding> {
    if volume.status().phase() != "Failed" {
        return Vec::new();
    }
    let object = ObjectRef::to(volume);
    let all = world.events(&object);
    let message = volume.status().message().text();
    let cause = format!("the volume could not be reclaimed: {message}");
    let finding = Finding::new(object.clone(), Trouble::VolumeFailed, cause)
        .since(volume.status().last_phase_transition_time().text())
        .evidence("status", message)
        .with(
            events::last(&all, &["VolumeFailedDelete", "VolumeFailedRecycle"], |_| true)
                .map(events::evidence),
        )
        .remedy(format!(
            "correct what the message names, then delete the volume: kubectl delete {}",
            object.arguments()
        ));
    vec![finding]
}
