//! Graph of the node authorizer: a pod that is bound to a node relates the node to every object that the pod
//! references. The graph reads the events of the pods' cache before every lookup.

use crate::objects::Objects;
use coracle_fields::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, SecretReference};
use coracle_fields::resource::v1::ResourceSlice;
use coracle_fields::storage::v1::VolumeAttachment;
use coracle_fields::{Json, View};
use coracle_kinds::object::Object;
use coracle_kinds::watch::cache::Cursor;
use coracle_kinds::watch::event::EventType;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Plural name of a resource that pods can reference.
type Resource = &'static str;
/// A resource with namespace and name.
type Vertex = (Resource, String, String);

/// A pod's node and the objects it references.
struct PodReferences {
    uid: String,
    node: String,
    ends: BTreeSet<(Resource, String)>,
    /// Claims of devices come and go in the status: such pods are looked at again with every change.
    fixed: bool,
}

#[derive(Default)]
struct State {
    /// By `namespace/name`.
    pods: HashMap<String, PodReferences>,
    /// Number of pods on a node that reference an object.
    edges: HashMap<Vertex, HashMap<String, usize>>,
    cursor: Option<Cursor>,
}

/// The graph.
pub struct Graph {
    objects: Arc<Objects>,
    state: Mutex<State>,
}

impl Graph {
    /// On the caches of a server.
    pub fn new(objects: Arc<Objects>) -> Self {
        Self { objects, state: Mutex::default() }
    }

    /// Whether a pod on the node references the object.
    pub fn has_path(&self, node: &str, resource: &str, namespace: &str, name: &str) -> bool {
        let mut state = self.state.lock();
        self.catch_up(&mut state);
        let direct = |resource: Resource, namespace: &str, name: &str| {
            let vertex = (resource, namespace.to_owned(), name.to_owned());
            state.edges.get(&vertex).is_some_and(|nodes| nodes.contains_key(node))
        };
        match resource {
            "pods" => {
                let pod_references = state.pods.get(&format!("{namespace}/{name}"));
                pod_references.is_some_and(|pod_references| pod_references.node == node)
            }
            "secrets" => {
                direct("secrets", namespace, name) || self.secret_of_volume(&direct, namespace, name)
            }
            "configmaps" => direct("configmaps", namespace, name),
            "serviceaccounts" => direct("serviceaccounts", namespace, name),
            "persistentvolumeclaims" => direct("persistentvolumeclaims", namespace, name),
            "resourceclaims" => direct("resourceclaims", namespace, name),
            "persistentvolumes" => self
                .object("", "persistentvolumes", "", name)
                .is_some_and(|volume| self.volume_in_use(&direct, &volume)),
            "volumeattachments" => {
                self.object("storage.k8s.io", "volumeattachments", "", name).is_some_and(|attachment| {
                    attachment.doc().view::<VolumeAttachment>().spec().node_name().get() == Some(node)
                })
            }
            "resourceslices" => {
                self.object("resource.k8s.io", "resourceslices", "", name).is_some_and(|slice| {
                    slice.doc().view::<ResourceSlice>().spec().node_name().get() == Some(node)
                })
            }
            _ => false,
        }
    }

    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let kind = self.objects.registry.preferred(group, plural)?;
        self.objects.cached(&kind, namespace, name).ok()
    }

    /// Whether a volume is bound to a claim that a pod of the node uses.
    fn volume_in_use(&self, direct: &impl Fn(Resource, &str, &str) -> bool, volume: &Object) -> bool {
        let doc = volume.doc();
        let claim = doc.view::<PersistentVolume>().spec().claim_ref();
        let (namespace, name) = (claim.namespace().text(), claim.name().text());
        let bound = self.object("", "persistentvolumeclaims", namespace, name);
        let bound = bound.is_some_and(|claim| {
            let doc = claim.doc();
            let bound_to = doc.view::<PersistentVolumeClaim>().spec().volume_name().get();
            bound_to == Some(volume.meta.name.as_str())
        });
        bound && direct("persistentvolumeclaims", namespace, name)
    }

    /// Whether a volume in use names the secret.
    fn secret_of_volume(
        &self,
        direct: &impl Fn(Resource, &str, &str) -> bool,
        namespace: &str,
        name: &str,
    ) -> bool {
        let volumes = self.objects.registry.preferred("", "persistentvolumes");
        let volumes = volumes.and_then(|kind| self.objects.cache(&kind).ok()).map(|cache| cache.list(None));
        volumes.into_iter().flatten().any(|volume| {
            let doc = volume.doc();
            let spec = doc.view::<PersistentVolume>().spec();
            let claim_namespace = spec.claim_ref().namespace().text();
            let mut found = false;
            visit_secret_refs(spec.erased(), &mut |reference| {
                let of = reference.namespace().or(claim_namespace);
                found |= of == namespace && reference.name().get() == Some(name);
            });
            found && self.volume_in_use(direct, &volume)
        })
    }

    fn catch_up(&self, state: &mut State) {
        loop {
            let batch = match &mut state.cursor {
                Some(cursor) => cursor.try_batch(),
                None => {
                    self.load(state);
                    continue;
                }
            };
            match batch {
                Ok(events) if events.is_empty() => return,
                Ok(events) => events.iter().for_each(|event| {
                    state.update_pod(&event.object, event.what == EventType::Deleted);
                }),
                // Too slow for the ring: begin anew.
                Err(_) => state.cursor = None,
            }
            if state.cursor.is_none() && self.objects.registry.preferred("", "pods").is_none() {
                return;
            }
        }
    }

    fn load(&self, state: &mut State) {
        let cache =
            self.objects.registry.preferred("", "pods").and_then(|kind| self.objects.cache(&kind).ok());
        let Some(cache) = cache else { return };
        let (pods, _, cursor) = cache.list_and_watch(None);
        *state = State { cursor: Some(cursor), ..State::default() };
        pods.iter().for_each(|pod| state.update_pod(pod, false));
    }
}

impl State {
    fn update_pod(&mut self, pod: &Object, gone: bool) {
        let key = format!("{}/{}", pod.meta.namespace, pod.meta.name);
        if gone {
            self.remove_pod(&key, &pod.meta.namespace);
            return;
        }
        // What a bound pod refers to does not change.
        if self
            .pods
            .get(&key)
            .is_some_and(|pod_references| pod_references.fixed && pod_references.uid == pod.meta.uid)
        {
            return;
        }
        self.remove_pod(&key, &pod.meta.namespace);
        let doc = pod.doc();
        let view = doc.view::<Pod>();
        let node = view.spec().node_name().text().to_owned();
        if node.is_empty() {
            return;
        }
        let ends = references(view);
        for (resource, name) in &ends {
            let vertex = (*resource, pod.meta.namespace.clone(), name.clone());
            *self.edges.entry(vertex).or_default().entry(node.clone()).or_default() += 1;
        }
        let devices = !view.spec().resource_claims().is_empty();
        let extended = view.status().extended_resource_claim_status().is_set();
        let pod_references =
            PodReferences { uid: pod.meta.uid.clone(), node, ends, fixed: !devices && !extended };
        self.pods.insert(key, pod_references);
    }

    fn remove_pod(&mut self, key: &str, namespace: &str) {
        let Some(pod_references) = self.pods.remove(key) else { return };
        for (resource, name) in pod_references.ends {
            let vertex = (resource, namespace.to_owned(), name);
            let Some(nodes) = self.edges.get_mut(&vertex) else { continue };
            if let Some(count) = nodes.get_mut(&pod_references.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod_references.node);
                }
            }
            if nodes.is_empty() {
                self.edges.remove(&vertex);
            }
        }
    }
}

/// Calls `found` with every `…SecretRef` or `secretRef` object of a volume that a node needs. Those that begin with
/// `controller` are for the storage system's controller, which acts with credentials that no node sees.
fn visit_secret_refs<'a>(volume: View<'a, Json>, found: &mut impl FnMut(View<'a, SecretReference>)) {
    for (name, value) in volume.entries() {
        if name == "secretRef" || name.ends_with("SecretRef") {
            if !name.starts_with("controller") {
                found(value.as_type());
            }
        } else {
            visit_secret_refs(value, found);
        }
    }
}

/// Everything in its namespace that a pod refers to. A mirror pod refers to nothing: a node makes it for itself.
pub fn references(pod: View<'_, Pod>) -> BTreeSet<(Resource, String)> {
    let mut ends = BTreeSet::new();
    if pod.metadata().annotations().has_key(MIRROR) {
        return ends;
    }
    let spec = pod.spec();
    let mut add = |resource: Resource, name: &str| {
        if !name.is_empty() {
            ends.insert((resource, name.to_owned()));
        }
    };
    add("serviceaccounts", spec.service_account_name().text());
    spec.image_pull_secrets().items().for_each(|secret| add("secrets", secret.name().text()));
    let containers = spec.init_containers().items().chain(spec.containers().items());
    let containers = containers.map(|container| (container.env_from(), container.env()));
    let ephemeral = spec.ephemeral_containers().items();
    let ephemeral = ephemeral.map(|container| (container.env_from(), container.env()));
    for (sources, variables) in containers.chain(ephemeral) {
        for source in sources.items() {
            add("configmaps", source.config_map_ref().name().text());
            add("secrets", source.secret_ref().name().text());
        }
        for variable in variables.items() {
            add("configmaps", variable.value_from().config_map_key_ref().name().text());
            add("secrets", variable.value_from().secret_key_ref().name().text());
        }
    }
    let pod_name = pod.metadata().name().text();
    for volume in spec.volumes().items() {
        add("configmaps", volume.config_map().name().text());
        add("secrets", volume.secret().secret_name().text());
        add("persistentvolumeclaims", volume.persistent_volume_claim().claim_name().text());
        if volume.ephemeral().is_object() {
            add("persistentvolumeclaims", &format!("{pod_name}-{}", volume.name().text()));
        }
        for source in volume.projected().sources().items() {
            add("configmaps", source.config_map().name().text());
            add("secrets", source.secret().name().text());
        }
        // Plugins of storage systems each have their own place for it.
        add("secrets", volume.azure_file().secret_name().text());
        visit_secret_refs(volume.erased(), &mut |reference| add("secrets", reference.name().text()));
    }
    let claims = spec.resource_claims().items();
    claims.for_each(|claim| add("resourceclaims", claim.resource_claim_name().text()));
    let status = pod.status();
    let made = status.resource_claim_statuses().items();
    made.for_each(|claim| add("resourceclaims", claim.resource_claim_name().text()));
    add("resourceclaims", status.extended_resource_claim_status().resource_claim_name().text());
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_fields::Schema as _;
    use coracle_fields::core::v1::Volume;
    use serde_json::{Value, json};

    #[test]
    fn a_node_needs_no_secrets_of_storage_controllers() {
        let names = ["nodePublish", "nodeStage", "nodeExpand", "controllerPublish", "controllerExpand"];
        let references = names.map(|name| (format!("{name}SecretRef"), json!({"name": name})));
        let csi: serde_json::Map<String, Value> = references.into_iter().collect();
        let volume = json!({"csi": csi, "iscsi": {"secretRef": {"name": "iscsi"}}});
        let mut found = BTreeSet::new();
        visit_secret_refs(Volume::of(&volume).erased(), &mut |reference| {
            found.insert(reference.name().text().to_owned());
        });
        assert_eq!(Vec::from_iter(found), ["iscsi", "nodeExpand", "nodePublish", "nodeStage"]);
    }

    #[test]
    fn a_pod_refers_to_what_it_uses() {
        let mut pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "serviceAccountName": "robot",
                "imagePullSecrets": [{"name": "registry"}],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
                "containers": [{"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}],
                    "envFrom": [{"configMapRef": {"name": "from"}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "vol"}},
                    {"name": "b", "projected": {"sources": [{"configMap": {"name": "proj"}}]}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "d", "ephemeral": {}},
                    {"name": "e", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
                ],
            },
        });
        let found: Vec<String> =
            references(Pod::of(&pod)).into_iter().map(|(r, n)| format!("{r}/{n}")).collect();
        assert_eq!(
            found.join(" "),
            "configmaps/from configmaps/proj persistentvolumeclaims/data persistentvolumeclaims/p-d \
             secrets/csi secrets/env secrets/init secrets/registry secrets/vol serviceaccounts/robot"
        );
        pod["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert!(references(Pod::of(&pod)).is_empty());
    }
}
