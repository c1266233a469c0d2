//! Attaches volumes of storage drivers to the nodes of their pods, and detaches them: VolumeAttachments, which drivers act on, and
//! `status.volumesAttached` of Nodes, which agents wait for.
//!
//! A volume is detached when no pod of the node needs it and the node does not use it any more. A node that cannot say so is believed
//! to use its volumes for six minutes, unless an operator has declared it out of service.

// What to attach and detach.
mod plan;
// Attachments and volumes, read.
mod read;
#[cfg(test)]
mod tests;

use super::claims::claims_of;
use crate::nodes::health::Node;
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_fields::storage::v1::VolumeAttachment;
use coracle_fields::{Made, make};
use coracle_informer::index::{Index, Pods};
use coracle_informer::informer::Name;
use coracle_informer::pod::{has_ended, node_of};
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cache;
use jiff::Timestamp;
use parking_lot::Mutex;
use plan::{Input, NodeState, Wanted};
use read::{Attachment, claim_of_volume, read_volume};
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

const NAME: &str = "attachdetach-controller";

struct Attacher {
    nodes: Resource,
    pods: Resource,
    claims: Resource,
    volumes: Resource,
    drivers: Resource,
    attachments: Resource,
    of_node: Arc<Pods>,
    index: Index<Attachment>,
    /// Since when attachments are not needed, by node.
    unwanted: Mutex<HashMap<String, HashMap<String, Timestamp>>>,
}

/// Starts the controller; its queue has names of nodes.
pub(super) fn start(setup: &mut Setup<'_>) {
    let nodes = setup.resource(NAME, "", "nodes");
    let pods = setup.resource(NAME, "", "pods");
    let claims = setup.resource(NAME, "", "persistentvolumeclaims");
    let volumes = setup.resource(NAME, "", "persistentvolumes");
    let drivers = setup.resource(NAME, "storage.k8s.io", "csidrivers");
    let attachments = setup.resource(NAME, "storage.k8s.io", "volumeattachments");
    let of_node = setup.pods();
    let mut handlers = setup.enqueue_on_change(&nodes);
    handlers.on_change(&pods.kind, &pods.cache, |change, add| {
        for pod in change.both() {
            if !node_of(pod).is_empty() && may_have_claims(pod) {
                add(Name::new("", node_of(pod)));
            }
        }
    });
    let users = pods.cache.clone();
    handlers.on_change(&claims.kind, &claims.cache, move |change, add| {
        for claim in change.both() {
            nodes_of_claim(&users, &Name::of(claim), add);
        }
    });
    let users = pods.cache.clone();
    handlers.on_change(&volumes.kind, &volumes.cache, move |change, add| {
        for volume in change.both() {
            if let Some(claim) = claim_of_volume(volume) {
                nodes_of_claim(&users, &claim, add);
            }
        }
    });
    let (users, of_volume) = (pods.cache.clone(), volumes.cache.clone());
    handlers.on_change(&attachments.kind, &attachments.cache, move |change, add| {
        for object in change.both() {
            let attachment = Attachment::read(object);
            // Other nodes may wait for this one to let go.
            let claim = of_volume.get("", &attachment.volume).and_then(|volume| claim_of_volume(&volume));
            if let Some(claim) = claim.filter(|_| change.new.is_none()) {
                nodes_of_claim(&users, &claim, add);
            }
            add(Name::new("", &attachment.node));
        }
    });
    let all = nodes.cache.clone();
    handlers.on_change(&drivers.kind, &drivers.cache, move |_, add| {
        all.list(None).iter().for_each(|node| add(Name::of(node)));
    });
    let queue = handlers.queue.clone();
    let index = Index::new(attachments.cache.clone(), Attachment::read, Attachment::keys);
    let unwanted = Mutex::default();
    let attacher = Attacher { nodes, pods, claims, volumes, drivers, attachments, of_node, index, unwanted };
    setup.run(attacher, &queue, 2);
}

/// Most pods need not be read to know that they have none.
fn may_have_claims(pod: &Object) -> bool {
    let text = std::str::from_utf8(&pod.json);
    text.is_ok_and(|text| text.contains("\"persistentVolumeClaim\"") || text.contains("\"ephemeral\""))
}

/// Nodes with pods that use a claim.
fn nodes_of_claim(pods: &Cache, claim: &Name, add: &mut dyn FnMut(Name)) {
    for pod in pods.list(Some(&claim.namespace)) {
        if !node_of(&pod).is_empty() && may_have_claims(&pod) && claims_of(&pod).contains(&claim.name) {
            add(Name::new("", node_of(&pod)));
        }
    }
}

#[async_trait]
impl Controller for Attacher {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Requeue, Failure> {
        let here = self.index.find(&read::on_node(&name.name));
        let wanted = self.wanted(&name.name)?;
        let node = self.nodes.get(name);
        if here.is_empty() && wanted.is_empty() && node.as_ref().is_none_or(|node| !has_attached(node)) {
            self.unwanted.lock().remove(&name.name);
            return Ok(Requeue::No);
        }
        let state = match &node {
            Some(node) => Some(NodeState::read(node, &node.typed::<Node>()?)),
            None => None,
        };
        let plan = {
            let mut unwanted = self.unwanted.lock();
            let input = Input { node: &name.name, state: state.as_ref(), wanted: &wanted, here: &here, now };
            let unwanted = unwanted.entry(name.name.clone()).or_default();
            plan::plan(&input, unwanted, |volume| self.nodes_of_volume(volume))
        };
        for (wanted, nodes) in &plan.blocked {
            let nodes = nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!(
                "Multi-Attach error for volume {:?} Volume is already exclusively attached to one node and can't be \
                 attached to another ({nodes})",
                wanted.volume
            );
            self.warn(wanted, message);
        }
        for (wanted, error) in &plan.failed {
            self.warn(wanted, format!("AttachVolume.Attach failed for volume {:?} : {error}", wanted.volume));
        }
        for wanted in &plan.attach {
            self.attach(&name.name, wanted).await?;
        }
        // Agents look here before they mount: it is written before anything is detached. Fails if the node has changed since.
        if let Some(node) = node.as_ref().filter(|node| has_attached(node) || !plan.attached.is_empty()) {
            let mut body = node.copy::<v1::Node>();
            body.edit().status().volumes_attached().put(json!(plan.attached));
            self.nodes.set_status(node, body.view().status().to_value()).await?;
        }
        for wanted in &plan.succeeded {
            let message = format!("AttachVolume.Attach succeeded for volume {:?} ", wanted.volume);
            if let Some(pod) = self.pods.get(&wanted.pod) {
                self.pods.normal(&pod, "SuccessfulAttachVolume", message);
            }
        }
        for attachment in &plan.detach {
            tracing::info!(attachment = attachment.name, node = name.name, "volume detached");
            if let Some(object) = self.attachments.get(&Name::new("", &attachment.name)) {
                self.attachments.delete(&object).await?;
            }
        }
        Ok(Requeue::from(plan.again_at))
    }
}

fn has_attached(node: &Object) -> bool {
    std::str::from_utf8(&node.json).is_ok_and(|text| text.contains("\"volumesAttached\""))
}

impl Attacher {
    /// Volumes that pods of a node need to be attached, each once.
    fn wanted(&self, node: &str) -> Result<Vec<Wanted>, Failure> {
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        for pod in self.of_node.on_node(node) {
            if has_ended(&pod.object) || !may_have_claims(&pod.object) {
                continue;
            }
            for claim in claims_of(&pod.object) {
                let claim = Name::new(&pod.object.meta.namespace, &claim);
                if let Some(wanted) = self.wanted_of(&Name::of(&pod.object), &claim)
                    && seen.insert(wanted.volume.clone())
                {
                    all.push(wanted);
                }
            }
        }
        Ok(all)
    }

    /// The volume of a claim, if it is bound and has to be attached.
    fn wanted_of(&self, pod: &Name, claim: &Name) -> Option<Wanted> {
        let claim = self.claims.get(claim)?;
        let doc = claim.doc();
        let volume = doc.view::<v1::PersistentVolumeClaim>().spec().volume_name().text();
        let volume = self.volumes.get(&Name::new("", volume))?;
        let bound = read_volume(&volume, &claim.meta.uid)?;
        let driver = self.drivers.get(&Name::new("", &bound.driver));
        let attaches = driver.is_none_or(|driver| read::attach_required(&driver));
        attaches.then(|| Wanted {
            pod: pod.clone(),
            volume: volume.meta.name.clone(),
            driver: bound.driver,
            handle: bound.handle,
            is_exclusive: bound.is_exclusive,
        })
    }

    fn nodes_of_volume(&self, volume: &str) -> Vec<String> {
        let found = self.index.find(&read::of_volume(volume));
        found.iter().map(|attachment| attachment.node.clone()).collect()
    }

    fn warn(&self, wanted: &Wanted, message: String) {
        if let Some(pod) = self.pods.get(&wanted.pod) {
            self.pods.warn(&pod, "FailedAttachVolume", message);
        }
    }

    async fn attach(&self, node: &str, wanted: &Wanted) -> Result<(), Failure> {
        let body: Made<VolumeAttachment> = make!(VolumeAttachment {
            metadata: { name: plan::attachment_name(&wanted.driver, &wanted.handle, node) },
            spec: {
                attacher: &wanted.driver,
                node_name: node,
                source: { persistent_volume_name: &wanted.volume },
            },
        });
        match self.attachments.create("", body).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => {
                self.warn(
                    wanted,
                    format!("AttachVolume.Attach failed for volume {:?} : {error}", wanted.volume),
                );
                Err(error.into())
            }
        }
    }
}
