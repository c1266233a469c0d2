//! What nodes keep of volumes that go: a volume of the built-in provisioner is held back until its node has removed its
//! directory. A node that is gone for good holds nothing back. Whoever dies in between, the node is asked again, and what is
//! gone already is no error.

use super::finalizers::{VOLUME_PROTECTION, remove_finalizer};
use super::parts::BINDER;
use crate::nodes::health;
use async_trait::async_trait;
use coracle_client::node_volumes::NodeVolumes;
use coracle_fields::core::v1::{Node, PersistentVolume};
use coracle_fields::{Schema as _, View};
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use coracle_proto::local_path::DIRECTORIES;
use jiff::Timestamp;
use std::path::Path;
use std::sync::Arc;

/// Holds a volume until its directory is gone.
pub(super) const FINALIZER: &str = "coracle.dev/local-path";
/// The annotation of a volume with its node.
pub(super) const NODE: &str = "coracle.dev/node";
/// Nodes that are asked at the same time.
const WORKERS: usize = 4;

struct Directories {
    volumes: Resource,
    nodes: Resource,
    node_volumes: Option<Arc<dyn NodeVolumes>>,
}

/// Starts the controller.
pub(super) fn start(setup: &mut Setup<'_>, node_volumes: Option<Arc<dyn NodeVolumes>>) {
    let volumes = setup.resource(BINDER, "", "persistentvolumes");
    let nodes = setup.resource(BINDER, "", "nodes");
    let all = volumes.cache.clone();
    let mut handlers = setup.enqueue_on_change(&volumes);
    handlers.on_change(&nodes.kind, &nodes.cache, move |change, add| {
        let Some(node) = change.object() else { return };
        if change.old.map(|old| is_ready(old)) != change.new.map(|new| is_ready(new)) {
            let all = all.list(None);
            let on_node = |volume: &Object| {
                let doc = volume.doc();
                doc.view::<PersistentVolume>().metadata().annotations().key(NODE) == node.meta.name
            };
            let its = all.iter().filter(|v| is_going(v) && on_node(v));
            its.for_each(|volume| add(Name::of(volume)));
        }
    });
    let queue = handlers.queue.clone();
    setup.run(Directories { volumes, nodes, node_volumes }, &queue, WORKERS);
}

/// The directories that a node keeps volumes in, as its agent says.
pub(super) fn announced(node: &Object) -> Vec<String> {
    let doc = node.doc();
    let list = doc.view::<Node>().metadata().annotations().key(DIRECTORIES).get();
    list.and_then(|list| serde_json::from_str(list).ok()).unwrap_or_default()
}

fn is_ready(node: &Object) -> bool {
    node.typed::<health::Node>().is_ok_and(|node| node.readiness() == "True")
}

/// Whether nothing holds the volume any more but its directory.
fn is_going(volume: &Object) -> bool {
    let has = |finalizer: &str| volume.meta.finalizers.iter().any(|f| f == finalizer);
    volume.meta.deletion_timestamp.is_some() && has(FINALIZER) && !has(VOLUME_PROTECTION)
}

/// What becomes of a volume's directory.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its node removes it.
    Removed,
    /// It stays where it is.
    Kept,
    /// It cannot be removed; an Event is recorded.
    Lost(String),
    /// Its node is not there to remove it now.
    Waits(String),
}

fn plan(volume: View<'_, PersistentVolume>, node: Option<&Object>) -> Fate {
    if volume.spec().persistent_volume_reclaim_policy() != "Delete" {
        return Fate::Kept;
    }
    let path = volume.spec().host_path().path().text();
    let name = volume.metadata().annotations().key(NODE).text();
    let Some(node) = node else {
        return Fate::Lost(format!("node {name:?} is gone, {path} may be left on it"));
    };
    if !is_ready(node) {
        return Fate::Waits(format!("node {name:?} is not ready"));
    }
    let parent = Path::new(path).parent();
    if !announced(node).iter().any(|dir| parent == Some(Path::new(dir))) {
        return Fate::Lost(format!("node {name:?} keeps volumes elsewhere now, {path} is left on it"));
    }
    Fate::Removed
}

#[async_trait]
impl Controller for Directories {
    fn name(&self) -> &'static str {
        "local-path-directories"
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(volume) = self.volumes.get(name).filter(|volume| is_going(volume)) else {
            return Ok(Requeue::No);
        };
        let mut value = volume.value();
        let read = PersistentVolume::of(&value);
        let node = read.metadata().annotations().key(NODE).text().to_owned();
        let failed = |why: &str| self.volumes.warn(&volume, "VolumeFailedDelete", why);
        match (plan(read, self.nodes.get(&Name::new("", &node)).as_deref()), &self.node_volumes) {
            (Fate::Removed, Some(node_volumes)) => {
                if let Err(error) = node_volumes.remove(&node, &name.name).await {
                    failed(&error.to_string());
                    return Err(Failure::of(error));
                }
            }
            (Fate::Waits(why), _) => {
                failed(&why);
                return Ok(Requeue::No);
            }
            (Fate::Lost(why), _) => failed(&why),
            (Fate::Kept | Fate::Removed, _) => {}
        }
        remove_finalizer(&mut value, FINALIZER);
        self.volumes.update(value).await?;
        Ok(Requeue::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::object::testing::object;
    use serde_json::json;

    #[test]
    fn a_directory_goes_when_its_node_can_remove_it() {
        let node = |ready: &str, dirs: &str| {
            object(json!({"metadata": {"name": "n", "annotations": {DIRECTORIES: dirs}},
                "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
        };
        let volume = |policy: &str| {
            json!({"metadata": {"name": "v", "annotations": {NODE: "n"}},
                "spec": {"persistentVolumeReclaimPolicy": policy, "hostPath": {"path": "/a/v_d_c"}}})
        };
        let (there, away, moved) =
            (node("True", r#"["/a"]"#), node("Unknown", r#"["/a"]"#), node("True", r#"["/b"]"#));
        let gone = Fate::Lost("node \"n\" is gone, /a/v_d_c may be left on it".into());
        let elsewhere = Fate::Lost("node \"n\" keeps volumes elsewhere now, /a/v_d_c is left on it".into());
        for (policy, node, fate) in [
            ("Delete", Some(&there), Fate::Removed),
            ("Retain", Some(&there), Fate::Kept),
            ("Delete", Some(&away), Fate::Waits("node \"n\" is not ready".into())),
            ("Retain", Some(&away), Fate::Kept),
            ("Delete", Some(&moved), elsewhere),
            ("Delete", None, gone),
        ] {
            let volume = volume(policy);
            let volume = PersistentVolume::of(&volume);
            assert_eq!(plan(volume, node.map(|n| &**n)), fate, "{policy}");
        }
    }

    #[test]
    fn only_what_nothing_else_holds() {
        for (finalizers, deleted, going) in [
            (json!([FINALIZER]), true, true),
            (json!([FINALIZER]), false, false),
            (json!([FINALIZER, VOLUME_PROTECTION]), true, false),
            (json!([]), true, false),
        ] {
            let mut volume = json!({"metadata": {"name": "v", "finalizers": finalizers}});
            if deleted {
                volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            assert_eq!(is_going(&object(volume)), going, "{finalizers} {deleted}");
        }
    }
}
