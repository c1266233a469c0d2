//! Claims and volumes: bound to each other, made on demand on a node's own disk, protected while in use.

// Which volume suits a claim.
pub mod fit;
// The kinds that the controllers read and write.
mod parts;
// Finalizers of claims and volumes.
mod finalizers;
// What nodes keep of volumes that go.
pub mod directories;
// Volumes made on demand.
mod provision;
// Claims that have grown.
mod expand;
// Classes of attributes.
mod attributes_classes;
// From claims to volumes.
mod claims;
// From volumes to claims.
mod reclaim;
// Attachments of volumes to nodes.
mod attach;
// Claims of a pod's own.
pub mod ephemeral;
#[cfg(test)]
mod tests;

use claims::{Claims, claims_of};
use coracle_client::node_volumes::NodeVolumes;
use coracle_fields::core::v1;
use coracle_informer::identity::{Account, Identity};
use coracle_informer::informer::Name;
use coracle_informer::pod::has_ended;
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use parts::{Parts, read_claim, read_volume};
use reclaim::Volumes;
use std::sync::Arc;

/// Creates the class `local-path`. The controllers of Kubernetes create no classes: the accounts have no role for it.
const CLASS_CREATOR: Identity = Identity::without_account(Account::Server, "storage-class");

/// Starts the controllers, and makes the class `local-path` if there is no class at all. Without `node_volumes` the directories of
/// volumes stay on their nodes.
pub fn start(setup: &mut Setup<'_>, node_volumes: Option<Arc<dyn NodeVolumes>>) {
    let parts = Parts::new(setup);
    let client = setup.client(CLASS_CREATOR);
    setup.finish("storage-class", move || provision::ensure_class(client.clone()));

    let mut handlers = setup.enqueue_on_change(&parts.claims);
    let pending = parts.claims.cache.clone();
    handlers.on_change(&parts.volumes.kind, &parts.volumes.cache, move |change, add| {
        for volume in change.both() {
            if let Some(claim) = read_volume(volume).ok().and_then(|v| v.claim_ref) {
                add(Name::new(&claim.namespace, &claim.name));
            }
        }
        let Some(new) = change.new else { return };
        if change.old.is_none() {
            all_pending(&pending, add);
        }
        if read_volume(new).is_ok_and(|v| v.claim_ref.is_none()) {
            waiting_for(&pending, &new.meta.name, add);
        }
    });
    let pending = parts.claims.cache.clone();
    handlers.on_change(&parts.classes.kind, &parts.classes.cache, move |_, add| all_pending(&pending, add));
    handlers.on_change(&parts.pods.kind, &parts.pods.cache, |change, add| {
        // The end of a pod may free a claim.
        if change.new.is_none_or(|p| has_ended(p))
            && let Some(pod) = change.old
        {
            claims_of(pod).into_iter().for_each(|claim| add(Name::new(&pod.meta.namespace, &claim)));
        }
    });
    let queue = handlers.queue.clone();
    // One worker: a volume is given to one claim.
    setup.run(Claims(parts.clone()), &queue, 1);

    let mut handlers = setup.enqueue_on_change(&parts.volumes);
    handlers.on_change(&parts.claims.kind, &parts.claims.cache, |change, add| {
        for claim in change.both() {
            if let Some(volume) = read_claim(claim).ok().map(|c| c.volume_name).filter(|v| !v.is_empty()) {
                add(Name::new("", &volume));
            }
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Volumes(parts), &queue, 1);
    directories::start(setup, node_volumes);
    ephemeral::start(setup);
    attach::start(setup);
    attributes_classes::start(setup);
}

fn all_pending(claims: &Cache, add: &mut dyn FnMut(Name)) {
    let unbound =
        |c: &&Arc<Object>| c.doc().view::<v1::PersistentVolumeClaim>().spec().volume_name().text().is_empty();
    claims.list(None).iter().filter(unbound).for_each(|c| add(Name::of(c)));
}

/// Claims that name a volume which is not bound yet.
fn waiting_for(claims: &Cache, volume: &str, add: &mut dyn FnMut(Name)) {
    let names = |c: &&Arc<Object>| c.doc().view::<v1::PersistentVolumeClaim>().spec().volume_name() == volume;
    claims.list(None).iter().filter(names).for_each(|c| add(Name::of(c)));
}
