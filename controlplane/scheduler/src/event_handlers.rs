//! Event handlers: apply changes of API objects to the snapshot and the queue.

use super::devices::DeviceKind;
use super::node::NodeInfo;
use super::place::Placer;
use super::pod::{ClaimSource, PodInfo};
use super::preempt::Budget;
use super::queue::{Event, Millis, Queue};
use super::wire::Labels;
use coracle_cli::causes;
use coracle_fields::Doc;
use coracle_fields::policy::v1::PodDisruptionBudget;
use coracle_kinds::object::Object;
use coracle_proto::selector::LabelSelector;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What the scheduler knows and decides with.
#[derive(Debug, Default)]
pub struct State {
    /// Pods that have nodes, and where others could go.
    pub placer: Placer,
    /// Pods that wait.
    pub queue: Queue,
    /// Disruption budgets by `namespace/name`.
    pub budgets: HashMap<String, Budget>,
    /// A pod of each class, to share with.
    samples: HashMap<u64, Arc<PodInfo>>,
}

/// How many samples are kept.
const SAMPLES: usize = 4096;

/// The kinds that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Source {
    Nodes,
    Pods,
    Namespaces,
    Claims,
    Volumes,
    Classes,
    StorageNodes,
    StorageDrivers,
    Capacities,
    Budgets,
    Devices(DeviceKind),
}

/// Sources in the order in which they are read first: pods need the nodes to be there.
pub const SOURCES: [(Source, &str, &str); 13] = [
    (Source::Nodes, "", "nodes"),
    (Source::Namespaces, "", "namespaces"),
    (Source::Claims, "", "persistentvolumeclaims"),
    (Source::Volumes, "", "persistentvolumes"),
    (Source::Classes, "storage.k8s.io", "storageclasses"),
    (Source::StorageNodes, "storage.k8s.io", "csinodes"),
    (Source::StorageDrivers, "storage.k8s.io", "csidrivers"),
    (Source::Capacities, "storage.k8s.io", "csistoragecapacities"),
    (Source::Budgets, "policy", "poddisruptionbudgets"),
    (Source::Devices(DeviceKind::Classes), "resource.k8s.io", "deviceclasses"),
    (Source::Devices(DeviceKind::Slices), "resource.k8s.io", "resourceslices"),
    (Source::Devices(DeviceKind::Claims), "resource.k8s.io", "resourceclaims"),
    (Source::Pods, "", "pods"),
];

fn key(object: &Object) -> String {
    if object.meta.namespace.is_empty() {
        object.meta.name.clone()
    } else {
        format!("{}/{}", object.meta.namespace, object.meta.name)
    }
}

impl State {
    /// With nothing in it, and a placer and a queue of its own.
    pub fn new(placer: Placer, queue: Queue) -> Self {
        Self { placer, queue, ..Self::default() }
    }

    /// An object came or changed.
    pub fn set(&mut self, source: Source, object: &Object, previous: Option<&Object>, now: Millis) {
        match source {
            Source::Nodes => self.set_node(object, now),
            Source::Pods
                if previous.is_some_and(|p| same_for_scheduling(p, object))
                    && !self.awaits_claims(object)
                    && !self.is_resized(object) => {}
            Source::Pods => match previous.and_then(|before| self.as_assumed(before, object)) {
                Some(pod) => self.set_placed(Arc::new(pod), now),
                None => self.set_pod(object, now),
            },
            Source::Namespaces => {
                let labels: Labels = object.meta.labels.clone();
                self.placer.snapshot.set_namespace(&object.meta.name, Some(labels));
            }
            Source::Budgets => {
                self.budgets.insert(key(object), budget(object));
            }
            Source::Claims
            | Source::Volumes
            | Source::Classes
            | Source::StorageNodes
            | Source::StorageDrivers
            | Source::Capacities => {
                self.set_storage(source, &key(object), Some(&object.doc()), now);
            }
            Source::Devices(kind) => {
                let changed = self.placer.snapshot.devices.set(kind, &key(object), object);
                match changed {
                    Ok(true) => self.queue.on_event(Event::Devices, &self.placer.snapshot, now),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(?kind, name = key(object), error = %causes::chain(&error), "an object about devices cannot be read");
                    }
                }
            }
        }
    }

    /// An object went.
    pub fn remove(&mut self, source: Source, object: &Object, now: Millis) {
        match source {
            Source::Nodes => {
                self.placer.snapshot.remove_node(&object.meta.name);
                self.queue.on_event(Event::NodeGone, &self.placer.snapshot, now);
            }
            Source::Pods => self.gone(&key(object), now),
            Source::Namespaces => self.placer.snapshot.set_namespace(&object.meta.name, None),
            Source::Budgets => {
                self.budgets.remove(&key(object));
            }
            Source::Claims
            | Source::Volumes
            | Source::Classes
            | Source::StorageNodes
            | Source::StorageDrivers
            | Source::Capacities => {
                self.set_storage(source, &key(object), None, now);
            }
            Source::Devices(kind) => {
                self.placer.snapshot.devices.remove(kind, &key(object));
                self.queue.on_event(Event::Devices, &self.placer.snapshot, now);
            }
        }
    }

    /// Forgets what is not in a complete list any more, after changes were missed.
    pub fn retain(&mut self, source: Source, objects: &[Arc<Object>], now: Millis) {
        let there: HashSet<String> = objects.iter().map(|o| key(o)).collect();
        match source {
            Source::Nodes => {
                let nodes = self.placer.snapshot.nodes().map(|(_, n)| n.name.clone());
                let gone: Vec<String> = nodes.filter(|name| !there.contains(name)).collect();
                gone.iter().for_each(|name| self.placer.snapshot.remove_node(name));
                if !gone.is_empty() {
                    self.queue.on_event(Event::NodeGone, &self.placer.snapshot, now);
                }
            }
            Source::Pods => {
                let known = self.placer.snapshot.pod_keys().chain(self.queue.keys());
                let gone: Vec<_> = known.filter(|k| !there.contains(k.as_ref())).cloned().collect();
                gone.iter().for_each(|key| self.gone(key, now));
            }
            Source::Budgets => self.budgets.retain(|key, _| there.contains(key)),
            Source::Devices(kind) => {
                if self.placer.snapshot.devices.retain(kind, &there) {
                    self.queue.on_event(Event::Devices, &self.placer.snapshot, now);
                }
            }
            // Rare kinds, of which an old entry does no harm until the next change.
            Source::Namespaces
            | Source::Claims
            | Source::Volumes
            | Source::Classes
            | Source::StorageNodes
            | Source::StorageDrivers
            | Source::Capacities => {}
        }
    }

    fn set_node(&mut self, object: &Object, now: Millis) {
        match NodeInfo::parse(&object.json) {
            Ok(node) => {
                if let Some(id) = self.placer.snapshot.set_node(node) {
                    self.queue.on_event(Event::Node(id), &self.placer.snapshot, now);
                }
            }
            Err(error) => {
                tracing::warn!(node = object.meta.name, error = %causes::chain(&error), "a node cannot be read")
            }
        }
    }

    fn set_storage(&mut self, source: Source, key: &str, object: Option<&Doc<'_>>, now: Millis) {
        let volumes = &mut self.placer.snapshot.volumes;
        let changed = match source {
            Source::Claims => volumes.set_claim(key, object.map(|doc| doc.view())),
            Source::Volumes => volumes.set_volume(key, object.map(|doc| doc.view())),
            Source::StorageNodes => volumes.set_limits(key, object.map(|doc| doc.view())),
            Source::StorageDrivers => volumes.set_driver(key, object.map(|doc| doc.view())),
            Source::Capacities => volumes.set_capacity(key, object.map(|doc| doc.view())),
            _ => volumes.set_class(key, object.map(|doc| doc.view())),
        };
        if changed {
            self.queue.on_event(Event::Storage, &self.placer.snapshot, now);
        }
    }

    /// Whether a pod waits for a claim to be made for it: its status tells the name.
    fn awaits_claims(&self, pod: &Object) -> bool {
        let waiting = if self.queue.is_empty() { None } else { self.queue.get(&key(pod)) };
        waiting.is_some_and(|pod| pod.device_claims.iter().any(|claim| claim.source == ClaimSource::Awaited))
    }

    /// Whether a status of the pod may change what it counts for.
    fn is_resized(&self, pod: &Object) -> bool {
        self.placer.snapshot.pod(&key(pod)).is_some_and(|pod| pod.resizing)
    }

    /// The pod if all that happened to it since it was read is that it got the node that was decided on here: there is
    /// nothing to read.
    fn as_assumed(&self, before: &Object, after: &Object) -> Option<PodInfo> {
        let (Some((none, rest_before)), Some((node, rest))) =
            (before.fields.split_first(), after.fields.split_first())
        else {
            return None;
        };
        let (key, snapshot) = (key(after), &self.placer.snapshot);
        let id = snapshot.pod_node(&key).filter(|_| snapshot.is_assumed(&key))?;
        let pod = snapshot.pod(&key)?;
        let same = none.is_empty()
            && rest_before == rest
            && snapshot.node(id).is_some_and(|assumed| assumed.name == *node)
            && pod.is_read_from(&after.meta);
        same.then(|| PodInfo { node: node.clone(), ..(**pod).clone() })
    }

    fn set_pod(&mut self, object: &Object, now: Millis) {
        let pod = match PodInfo::parse(&object.json) {
            Ok(mut pod) => {
                self.placer.adapt(&mut pod);
                self.shared(pod)
            }
            Err(error) => {
                tracing::warn!(namespace = object.meta.namespace, pod = object.meta.name, error = %causes::chain(&error), "a pod cannot be read");
                return;
            }
        };
        if pod.finished {
            return self.gone(&pod.key, now);
        }
        if !pod.node.is_empty() {
            return self.set_placed(pod, now);
        }
        if !self.placer.serves(&pod.scheduler) || pod.deleting {
            return self.gone(&pod.key, now);
        }
        // While a binding is under way, what the API says is old.
        if !self.placer.snapshot.is_assumed(&pod.key) {
            self.placer.snapshot.nominate(&pod, &pod.nominated);
            self.queue.add(pod);
        }
    }

    fn shared(&mut self, mut pod: PodInfo) -> Arc<PodInfo> {
        if let Some(like) = self.samples.get(&pod.class) {
            pod.share(like);
            return Arc::new(pod);
        }
        if self.samples.len() >= SAMPLES {
            self.samples.clear();
        }
        let pod = Arc::new(pod);
        self.samples.insert(pod.class, pod.clone());
        pod
    }

    fn set_placed(&mut self, pod: Arc<PodInfo>, now: Millis) {
        let waited = self.queue.get(&pod.key).is_some();
        if waited {
            self.queue.remove(&pod.key);
            self.placer.snapshot.nominate(&pod, "");
        }
        let known = self.placer.snapshot.pod(&pod.key).is_some();
        let node = self.placer.snapshot.node_named(&pod.node);
        let before = self.placer.snapshot.set_pod(pod.clone());
        if let Some(before) = before {
            self.queue.on_event(Event::Gone(&before, node), &self.placer.snapshot, now);
        } else if !known {
            self.queue.on_event(Event::Placed(&pod), &self.placer.snapshot, now);
        }
    }

    /// A pod needs nothing any more.
    pub fn gone(&mut self, key: &str, now: Millis) {
        if let Some(pod) = self.queue.get(key).cloned() {
            self.queue.remove(key);
            self.placer.snapshot.nominate(&pod, "");
        }
        if let Some((pod, node)) = self.placer.snapshot.remove_pod(key) {
            self.queue.on_event(Event::Gone(&pod, node), &self.placer.snapshot, now);
        }
    }
}

/// Whether a change of a pod is none to the scheduler, as most of what a node reports.
pub(super) fn same_for_scheduling(before: &Object, after: &Object) -> bool {
    before.meta.uid == after.meta.uid
        && before.meta.generation == after.meta.generation
        && before.meta.generation != 0
        && before.meta.deletion_timestamp == after.meta.deletion_timestamp
        && before.meta.labels == after.meta.labels
        && before.fields == after.fields
}

fn budget(object: &Object) -> Budget {
    let doc = object.doc();
    let budget = doc.view::<PodDisruptionBudget>();
    let (spec, status) = (budget.spec(), budget.status());
    let selector = LabelSelector::from_object(&spec.selector().to_value());
    Budget {
        namespace: object.meta.namespace.clone(),
        selector: selector.unwrap_or(LabelSelector::Nothing),
        allowed: status.disruptions_allowed().or(0),
        disrupted: status.disrupted_pods().entries().map(|(name, _)| name.to_owned()).collect(),
    }
}
