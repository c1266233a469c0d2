//! Claims and volumes: bound to each other, made on demand on a node's own disk, protected while in use.

// Which volume suits a claim.
pub mod fit;
// Claims of a pod's own.
pub mod ephemeral;

use super::informer::Name;
use super::resource::Resource;
use super::runner::{Again, Controller, Failure};
use super::setup::Setup;
use crate::client::Client;
use crate::object::Object;
use crate::watch::cache::Cache;
use async_trait::async_trait;
use fit::{Claim, ClaimRef, Volume};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME: &str = "persistentvolume-controller";
/// The provisioner that makes directories on nodes.
pub const PROVISIONER: &str = "coracle.dev/local-path";
/// Where those directories are, unless the class says otherwise.
const DIRECTORY: &str = "/var/lib/coracle/storage";
const BOUND: &str = "pv.kubernetes.io/bind-completed";
const BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Clone)]
struct Parts {
    claims: Resource,
    volumes: Resource,
    classes: Resource,
    pods: Resource,
}

#[derive(Deserialize)]
struct Wire<S> {
    spec: S,
}

fn read<S: serde::de::DeserializeOwned>(object: &Object) -> Result<S, Failure> {
    Ok(object.typed::<Wire<S>>()?.spec)
}

/// Starts the controllers, and makes the class `local-path` if there is no class at all.
pub fn start(setup: &mut Setup<'_>) {
    let parts = Parts {
        claims: setup.resource(NAME, "", "persistentvolumeclaims"),
        volumes: setup.resource(NAME, "", "persistentvolumes"),
        classes: setup.resource(NAME, "storage.k8s.io", "storageclasses"),
        pods: setup.resource(NAME, "", "pods"),
    };
    let client = setup.client(NAME);
    setup.spawn(ensure_class(client));

    let mut feed = setup.feed(&parts.claims);
    let pending = parts.claims.cache.clone();
    feed.also(&parts.volumes.kind, &parts.volumes.cache, move |change, add| {
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
    feed.also(&parts.classes.kind, &parts.classes.cache, move |_, add| all_pending(&pending, add));
    feed.also(&parts.pods.kind, &parts.pods.cache, |change, add| {
        // The end of a pod may free a claim.
        if change.new.is_none_or(|p| ended(p))
            && let Some(pod) = change.old
        {
            claims_of(pod).into_iter().for_each(|claim| add(Name::new(&pod.meta.namespace, &claim)));
        }
    });
    let queue = feed.queue.clone();
    // One worker: a volume is given to one claim.
    setup.run(Claims(parts.clone()), &queue, 1);

    let mut feed = setup.feed(&parts.volumes);
    feed.also(&parts.claims.kind, &parts.claims.cache, |change, add| {
        for claim in change.both() {
            if let Some(volume) = read::<Claim>(claim).ok().map(|c| c.volume_name).filter(|v| !v.is_empty()) {
                add(Name::new("", &volume));
            }
        }
    });
    let queue = feed.queue.clone();
    setup.run(Volumes(parts), &queue, 1);
    ephemeral::start(setup);
}

fn all_pending(claims: &Cache, add: &mut dyn FnMut(Name)) {
    let unbound = |c: &&Arc<Object>| c.value()["spec"]["volumeName"].as_str().unwrap_or("").is_empty();
    claims.list(None).iter().filter(unbound).for_each(|c| add(Name::of(c)));
}

fn ended(pod: &Object) -> bool {
    matches!(pod.value()["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
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

async fn ensure_class(client: Client) {
    let kind = client.kind("storage.k8s.io", "storageclasses");
    if !client.cache(&kind).list(None).is_empty() {
        return;
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "local-path", "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": PROVISIONER, "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
    });
    if let Err(error) = client.create(&kind, "", class).await
        && !error.is_already_exists()
    {
        tracing::warn!(%error, "the class local-path was not created");
    }
}

struct Claims(Parts);

#[async_trait]
impl Controller for Claims {
    fn name(&self) -> &'static str {
        "persistentvolumeclaim-binder"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
        let Some(claim) = self.0.claims.get(name) else { return Ok(Again::No) };
        if claim.meta.deletion_timestamp.is_some() {
            return self.unprotect(&claim).await;
        }
        if !claim.meta.finalizers.iter().any(|f| f == CLAIM_PROTECTION) {
            let mut body = claim.value();
            add_finalizer(&mut body, CLAIM_PROTECTION);
            self.0.claims.update(body).await?;
            return Ok(Again::No);
        }
        let spec: Claim = read(&claim)?;
        if !spec.volume_name.is_empty() {
            return self.bound(&claim, &spec).await;
        }
        let Some(class) = spec.storage_class_name.clone() else { return self.default_class(&claim).await };
        let selected = claim.value()["metadata"]["annotations"][SELECTED_NODE].as_str().map(str::to_owned);
        let row = self.0.classes.get(&Name::new("", &class)).map(|c| c.value());
        let waits = row.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer");
        if let Some(volume) = self.find(&claim, &spec, &class, waits && selected.is_none())? {
            return self.bind(&claim, &volume).await;
        }
        let Some(row) = row else {
            let message = if class.is_empty() {
                "no persistent volumes available for this claim and no storage class is set".to_owned()
            } else {
                format!("storageclass.storage.k8s.io \"{class}\" not found")
            };
            let reason = if class.is_empty() { "FailedBinding" } else { "ProvisioningFailed" };
            self.0.claims.warn(&claim, reason, message);
            return Ok(Again::No);
        };
        if waits && selected.is_none() {
            let message = "waiting for first consumer to be created before binding";
            self.0.claims.normal(&claim, "WaitForFirstConsumer", message);
            return Ok(Again::No);
        }
        if row["provisioner"] != PROVISIONER {
            let provisioner = row["provisioner"].as_str().unwrap_or_default();
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by \
                 the system administrator."
            );
            self.0.claims.normal(&claim, "ExternalProvisioning", message);
            let key = "volume.kubernetes.io/storage-provisioner";
            if claim.value()["metadata"]["annotations"][key] != provisioner {
                let change = json!({"metadata": {"annotations": {key: provisioner}}});
                self.0.claims.merge(name, change).await?;
            }
            return Ok(Again::No);
        }
        self.provision(&claim, &spec, &row, selected.as_deref()).await
    }
}

impl Claims {
    async fn default_class(&self, claim: &Arc<Object>) -> Result<Again, Failure> {
        let classes = self.0.classes.all();
        let is_default = |c: &&Arc<Object>| c.value()["metadata"]["annotations"][DEFAULT_CLASS] == "true";
        let Some(class) = classes.iter().find(is_default) else { return Ok(Again::No) };
        let mut body = claim.value();
        body["spec"]["storageClassName"] = json!(class.meta.name);
        self.0.claims.update(body).await?;
        Ok(Again::No)
    }

    /// The volume that is kept for the claim, or the smallest that suits it.
    fn find(
        &self,
        claim: &Object,
        spec: &Claim,
        class: &str,
        kept_only: bool,
    ) -> Result<Option<Arc<Object>>, Failure> {
        let mut best: Option<(Option<coracle_proto::quantity::Quantity>, Arc<Object>)> = None;
        for object in self.0.volumes.all() {
            let volume: Volume = read(&object)?;
            if object.meta.deletion_timestamp.is_some() {
                continue;
            }
            match &volume.claim_ref {
                Some(kept) if is_for(kept, claim) => return Ok(Some(object)),
                Some(_) => continue,
                None if kept_only => continue,
                None => {}
            }
            if fit::suits(spec, class, &volume, &object.meta.labels) {
                let size = fit::size(&volume.capacity);
                if best.as_ref().is_none_or(|(smallest, _)| size < *smallest) {
                    best = Some((size, object));
                }
            }
        }
        Ok(best.map(|(_, object)| object))
    }

    /// Writes the volume first: whoever dies in between, the volume is kept for this claim.
    async fn bind(&self, claim: &Arc<Object>, volume: &Arc<Object>) -> Result<Again, Failure> {
        let spec: Volume = read(volume)?;
        if spec.claim_ref.as_ref().is_none_or(|r| r.uid != claim.meta.uid) {
            let mut body = volume.value();
            if spec.claim_ref.is_none() {
                body["metadata"]["annotations"][BY_CONTROLLER] = json!("yes");
            }
            body["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                "namespace": claim.meta.namespace, "name": claim.meta.name, "uid": claim.meta.uid,
                "resourceVersion": claim.revision.to_string()});
            self.0.volumes.update(body).await?;
        }
        let mut body = claim.value();
        body["spec"]["volumeName"] = json!(volume.meta.name);
        body["metadata"]["annotations"][BOUND] = json!("yes");
        body["metadata"]["annotations"][BY_CONTROLLER] = json!("yes");
        self.0.claims.update(body).await?;
        Ok(Again::No)
    }

    /// A claim that names its volume: told as bound once the volume agrees.
    async fn bound(&self, claim: &Arc<Object>, spec: &Claim) -> Result<Again, Failure> {
        let value = claim.value();
        let once = value["metadata"]["annotations"][BOUND] == "yes";
        let Some(volume) = self.0.volumes.get(&Name::new("", &spec.volume_name)) else {
            if once {
                let mut status = value["status"].clone();
                status["phase"] = json!("Lost");
                self.0.claims.set_status(claim, status).await?;
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.0.claims.warn(claim, "ClaimLost", message);
            }
            return Ok(Again::No);
        };
        let row: Volume = read(&volume)?;
        match &row.claim_ref {
            Some(kept) if !is_for(kept, claim) => {
                if !once {
                    self.0.claims.warn(
                        claim,
                        "FailedBinding",
                        format!("volume \"{}\" already bound to a different claim.", spec.volume_name),
                    );
                }
                return Ok(Again::No);
            }
            Some(kept) if kept.uid == claim.meta.uid && once => {}
            _ => return self.bind(claim, &volume).await,
        }
        let status = json!({"phase": "Bound", "accessModes": row.access_modes, "capacity": row.capacity});
        let mut told = value["status"].clone();
        if !told.is_object() {
            told = json!({});
        }
        for key in ["phase", "accessModes", "capacity"] {
            told[key] = status[key].clone();
        }
        self.0.claims.set_status(claim, told).await?;
        Ok(Again::No)
    }

    /// Makes a volume that is a directory on a node; the node makes the directory when a pod first uses it.
    async fn provision(
        &self,
        claim: &Arc<Object>,
        spec: &Claim,
        class: &Value,
        node: Option<&str>,
    ) -> Result<Again, Failure> {
        let Some(node) = node else {
            let message = "configuration error, no node was specified";
            self.0.claims.warn(claim, "ProvisioningFailed", message);
            return Ok(Again::No);
        };
        let name = format!("pvc-{}", claim.meta.uid);
        let directory = class["parameters"]["path"].as_str().unwrap_or(DIRECTORY).trim_end_matches('/');
        let path = format!("{directory}/{name}_{}_{}", claim.meta.namespace, claim.meta.name);
        let reclaim = class["reclaimPolicy"].as_str().unwrap_or("Delete");
        let body = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER},
                "finalizers": [VOLUME_PROTECTION]},
            "spec": {
                "capacity": {"storage": spec.resources.requests.get("storage")}, "accessModes": spec.access_modes,
                "persistentVolumeReclaimPolicy": reclaim, "storageClassName": class["metadata"]["name"],
                "volumeMode": "Filesystem", "hostPath": {"path": path, "type": "DirectoryOrCreate"},
                "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": claim.meta.namespace,
                    "name": claim.meta.name, "uid": claim.meta.uid},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}},
            },
        });
        match self.0.volumes.create("", body).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {name}");
                self.0.claims.normal(claim, "ProvisioningSucceeded", message);
            }
            Err(error) if error.is_already_exists() => {}
            Err(error) => {
                let message = format!(
                    "failed to provision volume with StorageClass {}: {error}",
                    class["metadata"]["name"]
                );
                self.0.claims.warn(claim, "ProvisioningFailed", message);
                return Err(error.into());
            }
        }
        match self.0.volumes.get(&Name::new("", &name)) {
            Some(volume) => self.bind(claim, &volume).await,
            None => Ok(Again::Now),
        }
    }

    /// Lets a claim go that no pod uses.
    async fn unprotect(&self, claim: &Arc<Object>) -> Result<Again, Failure> {
        if !claim.meta.finalizers.iter().any(|f| f == CLAIM_PROTECTION) {
            return Ok(Again::No);
        }
        let pods = self.0.pods.list(&claim.meta.namespace);
        let uses = |p: &Arc<Object>| !ended(p) && claims_of(p).contains(&claim.meta.name);
        if !pods.iter().any(uses) {
            let mut body = claim.value();
            remove_finalizer(&mut body, CLAIM_PROTECTION);
            self.0.claims.update(body).await?;
        }
        Ok(Again::No)
    }
}

fn is_for(kept: &ClaimRef, claim: &Object) -> bool {
    kept.namespace == claim.meta.namespace
        && kept.name == claim.meta.name
        && (kept.uid.is_empty() || kept.uid == claim.meta.uid)
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

struct Volumes(Parts);

#[async_trait]
impl Controller for Volumes {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Again, Failure> {
        let Some(volume) = self.0.volumes.get(name) else { return Ok(Again::No) };
        let value = volume.value();
        let protected = volume.meta.finalizers.iter().any(|f| f == VOLUME_PROTECTION);
        if volume.meta.deletion_timestamp.is_some() {
            if protected && value["status"]["phase"] != "Bound" {
                let mut body = value;
                remove_finalizer(&mut body, VOLUME_PROTECTION);
                self.0.volumes.update(body).await?;
                return Ok(Again::No);
            }
        } else if !protected {
            let mut body = value;
            add_finalizer(&mut body, VOLUME_PROTECTION);
            self.0.volumes.update(body).await?;
            return Ok(Again::No);
        }
        let spec: Volume = read(&volume)?;
        let phase = match &spec.claim_ref {
            None => "Available",
            Some(kept) if kept.uid.is_empty() => "Available",
            Some(kept) => {
                let claim = self.0.claims.get(&Name::new(&kept.namespace, &kept.name));
                match claim.filter(|c| c.meta.uid == kept.uid) {
                    Some(_) => "Bound",
                    None => "Released",
                }
            }
        };
        let mut status = value["status"].clone();
        if !status.is_object() {
            status = json!({});
        }
        status["phase"] = json!(phase);
        self.0.volumes.set_status(&volume, status).await?;
        let own = value["metadata"]["annotations"][PROVISIONED_BY] == PROVISIONER;
        let goes = spec.persistent_volume_reclaim_policy == "Delete" && own;
        if phase == "Released" && goes && volume.meta.deletion_timestamp.is_none() {
            self.0.volumes.delete(&volume).await?;
        }
        Ok(Again::No)
    }
}
