//! The volume that a claim names in `spec.volumeName`. The claim can be bound to that one only.

use crate::events;
use crate::finding::{Finding, ObjectRef};
use crate::kinds::Resource;
use crate::trouble::Trouble;
use crate::volume_fit::mismatches;
use crate::world::{Found, World};
use coracle_cli::closest::suggestion;
use coracle_fields::View;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// What helps when the claim has to name another volume.
const ANEW: &str =
    "create the claim anew with a free volume, or without spec.volumeName, which cannot be changed";

/// Why a claim is not bound to the volume that it names; nothing while it is being bound.
pub fn explain(world: &World, claim: View<'_, PersistentVolumeClaim>) -> Option<Finding> {
    let name = claim.spec().volume_name().text();
    match world.get::<PersistentVolume>("", name) {
        Found::Yes(volume) if is_taken(volume, claim) => Some(taken(claim, volume)),
        Found::Yes(volume) if volume.spec().claim_ref().is_set() => None,
        Found::Yes(volume) => unfit(world, claim, volume),
        Found::No => Some(missing(world, claim, name)),
        Found::Unknown => None,
    }
}

fn refused(claim: View<'_, PersistentVolumeClaim>, trouble: Trouble, cause: String) -> Finding {
    Finding::new(ObjectRef::to(claim), trouble, cause)
        .since(claim.metadata().creation_timestamp().text())
        .evidence("field spec.volumeName", claim.spec().volume_name().text())
}

/// Whether a volume is for another claim, which may be an earlier one of the same name.
pub fn is_taken(volume: View<'_, PersistentVolume>, claim: View<'_, PersistentVolumeClaim>) -> bool {
    let (holder, meta) = (volume.spec().claim_ref(), claim.metadata());
    let same_name = holder.name() == meta.name().text() && holder.namespace() == meta.namespace().text();
    let same_object = holder.uid().text().is_empty() || holder.uid() == meta.uid().text();
    holder.is_set() && !(same_name && same_object)
}

/// The volume is bound to another claim, or reserved for one.
pub fn taken(claim: View<'_, PersistentVolumeClaim>, volume: View<'_, PersistentVolume>) -> Finding {
    let (name, holder) = (volume.metadata().name().text(), volume.spec().claim_ref());
    let (namespace, owner, phase) =
        (holder.namespace().text(), holder.name().text(), volume.status().phase().text());
    let other = ObjectRef::new::<PersistentVolumeClaim>(namespace, owner);
    let is_earlier = other == ObjectRef::to(claim);
    let held = match phase {
        _ if is_earlier => "is reserved for an earlier claim of the same name, which was deleted".to_owned(),
        "Bound" => format!("is bound to {}", other.described()),
        "Released" => format!("is still reserved for {}, which was deleted", other.described()),
        _ => format!("is reserved for {}", other.described()),
    };
    let remedy = match is_earlier || phase == "Released" {
        true => format!(
            "free the volume, which keeps its data: kubectl patch persistentvolume/{name} --type=merge \
             -p '{{\"spec\":{{\"claimRef\":null}}}}'; or {ANEW}"
        ),
        false => ANEW.to_owned(),
    };
    let cause = format!("the volume {name}, which the claim names, {held}");
    refused(claim, Trouble::ClaimVolumeTaken, cause)
        .evidence("field spec.claimRef of the volume", format!("{namespace}/{owner}"))
        .evidence("phase of the volume", phase)
        .remedy(remedy)
}

fn missing(world: &World, claim: View<'_, PersistentVolumeClaim>, name: &str) -> Finding {
    let hint = suggestion(name, world.names(&Resource::of::<PersistentVolume>(), ""));
    let cause = format!("the volume {name}, which the claim names, does not exist{hint}");
    let finding = refused(claim, Trouble::ClaimVolumeMissing, cause);
    finding.remedy(format!("create the PersistentVolume {name}; or {ANEW}"))
}

/// A volume that is free and cannot be bound to the claim.
fn unfit(
    world: &World,
    claim: View<'_, PersistentVolumeClaim>,
    volume: View<'_, PersistentVolume>,
) -> Option<Finding> {
    let mut reasons = mismatches(volume, claim);
    if volume.metadata().deletion_timestamp().is_set() {
        reasons.insert(0, "is being deleted".to_owned());
    }
    if reasons.is_empty() {
        return None;
    }
    let (name, reasons) = (volume.metadata().name().text(), reasons.join(" and "));
    let all = world.events(&ObjectRef::to(claim));
    let cause = format!("the volume {name}, which the claim names, {reasons}");
    let finding = refused(claim, Trouble::ClaimVolumeUnfit, cause)
        .evidence(format!("volume {name}"), reasons)
        .with(events::last(&all, &["VolumeMismatch"], |_| true).map(events::evidence))
        .remedy(format!(
            "create the claim anew as the volume is, or with another volume: its spec cannot be changed; or correct the volume: \
             kubectl edit persistentvolume/{name}"
        ));
    Some(finding)
}
