//! Claims and volumes: bound to each other, made on demand on a node's own disk, protected while in use.

// Which volume suits a claim.
pub mod fit;
// From claims to volumes.
mod claims;
// Volumes made on demand.
mod provision;
// From volumes to claims.
mod reclaim;
// What nodes keep of volumes that go.
pub mod directories;
// Claims of a pod's own.
pub mod ephemeral;
#[cfg(test)]
mod tests;

use claims::Claims;
use coracle_client::node_volumes::NodeVolumes;
use coracle_informer::informer::Name;
use coracle_informer::pod::has_ended;
use coracle_informer::resource::Resource;
use coracle_informer::runner::Failure;
use coracle_informer::setup::Setup;
use coracle_informer::wire::Wire;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use fit::{Claim, Volume};
use reclaim::Volumes;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "persistentvolume-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Clone)]
struct Parts {
    claims: Resource,
    volumes: Resource,
    classes: Resource,
    pods: Resource,
    nodes: Resource,
}

fn read<S: Default + serde::de::DeserializeOwned>(object: &Object) -> Result<S, Failure> {
    Ok(object.typed::<Wire<S>>()?.spec)
}

/// Starts the controllers, and makes the class `local-path` if there is no class at all. Without `node_volumes` the directories of
/// volumes stay on their nodes.
pub fn start(setup: &mut Setup<'_>, node_volumes: Option<Arc<dyn NodeVolumes>>) {
    let parts = Parts {
        claims: setup.resource(NAME, "", "persistentvolumeclaims"),
        volumes: setup.resource(NAME, "", "persistentvolumes"),
        classes: setup.resource(NAME, "storage.k8s.io", "storageclasses"),
        pods: setup.resource(NAME, "", "pods"),
        nodes: setup.resource(NAME, "", "nodes"),
    };
    let client = setup.client(NAME);
    setup.finish("storage-class", move || provision::ensure_class(client.clone()));

    let mut handlers = setup.enqueue_on_change(&parts.claims);
    let pending = parts.claims.cache.clone();
    handlers.on_change(&parts.volumes.kind, &parts.volumes.cache, move |change, add| {
        for volume in change.both() {
            if let Some(claim) = read::<Volume>(volume).ok().and_then(|v| v.claim_ref) {
                add(Name::new(&claim.namespace, &claim.name));
            }
        }
        if change.old.is_none() {
            all_pending(&pending, add);
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
            if let Some(volume) = read::<Claim>(claim).ok().map(|c| c.volume_name).filter(|v| !v.is_empty()) {
                add(Name::new("", &volume));
            }
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Volumes(parts), &queue, 1);
    directories::start(setup, node_volumes);
    ephemeral::start(setup);
}

fn all_pending(claims: &Cache, add: &mut dyn FnMut(Name)) {
    let unbound = |c: &&Arc<Object>| c.value()["spec"]["volumeName"].as_str().unwrap_or("").is_empty();
    claims.list(None).iter().filter(unbound).for_each(|c| add(Name::of(c)));
}

/// The claims a pod uses.
fn claims_of(pod: &Object) -> Vec<String> {
    let value = pod.value();
    let volumes = value["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let claim = |v: &Value| {
        let named = v["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned);
        let own = || {
            (!v["ephemeral"].is_null())
                .then(|| format!("{}-{}", pod.meta.name, v["name"].as_str().unwrap_or("")))
        };
        named.or_else(own)
    };
    volumes.iter().filter_map(claim).collect()
}

fn add_finalizer(body: &mut Value, finalizer: &str) {
    match body["metadata"]["finalizers"].as_array_mut() {
        Some(list) => list.push(json!(finalizer)),
        None => body["metadata"]["finalizers"] = json!([finalizer]),
    }
}

fn remove_finalizer(body: &mut Value, finalizer: &str) {
    if let Some(list) = body["metadata"]["finalizers"].as_array_mut() {
        list.retain(|f| f != finalizer);
    }
}
