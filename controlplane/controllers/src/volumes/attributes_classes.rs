//! VolumeAttributesClasses: kept while a claim or a volume refers to them.

use super::finalizers::{add_finalizer, remove_finalizer};
use async_trait::async_trait;
use coracle_fields::core::v1;
use coracle_informer::informer::Name;
use coracle_informer::resource::Resource;
use coracle_informer::runner::{Controller, Failure, Requeue};
use coracle_informer::setup::Setup;
use coracle_kinds::object::Object;
use jiff::Timestamp;
use std::sync::Arc;

const NAME: &str = "volumeattributesclass-protection-controller";
const PROTECTION: &str = "kubernetes.io/vac-protection";

struct Classes {
    classes: Resource,
    claims: Resource,
    volumes: Resource,
}

/// Starts the controller.
pub(super) fn start(setup: &mut Setup<'_>) {
    let parts = Classes {
        classes: setup.resource(NAME, "storage.k8s.io", "volumeattributesclasses"),
        claims: setup.resource(NAME, "", "persistentvolumeclaims"),
        volumes: setup.resource(NAME, "", "persistentvolumes"),
    };
    let mut handlers = setup.enqueue_on_change(&parts.classes);
    // The end of a reference may let a class go.
    handlers.on_change(&parts.claims.kind, &parts.claims.cache, |change, add| {
        change.old.into_iter().flat_map(|old| of_claim(old)).for_each(|class| add(Name::new("", &class)));
    });
    handlers.on_change(&parts.volumes.kind, &parts.volumes.cache, |change, add| {
        change.old.into_iter().flat_map(|old| of_volume(old)).for_each(|class| add(Name::new("", &class)));
    });
    let queue = handlers.queue.clone();
    setup.run(parts, &queue, 1);
}

#[async_trait]
impl Controller for Classes {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, name: &Name, _: Timestamp) -> Result<Requeue, Failure> {
        let Some(class) = self.classes.get(name) else { return Ok(Requeue::No) };
        let is_protected = class.meta.finalizers.iter().any(|finalizer| finalizer == PROTECTION);
        let is_deleted = class.meta.deletion_timestamp.is_some();
        let mut body = class.value();
        match (is_deleted, is_protected) {
            (false, false) => add_finalizer(&mut body, PROTECTION),
            (true, true) if !self.is_used(&class) => remove_finalizer(&mut body, PROTECTION),
            _ => return Ok(Requeue::No),
        }
        self.classes.update(body).await?;
        Ok(Requeue::No)
    }
}

impl Classes {
    fn is_used(&self, class: &Object) -> bool {
        let name = &class.meta.name;
        let has = |of: fn(&Object) -> Vec<String>| {
            move |object: &Arc<Object>| of(object).iter().any(|used| used == name)
        };
        self.claims.all().iter().any(has(of_claim)) || self.volumes.all().iter().any(has(of_volume))
    }
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The class that a claim wants, the one it has, and the one it is about to have.
fn of_claim(claim: &Object) -> Vec<String> {
    let doc = claim.doc();
    let claim = doc.view::<v1::PersistentVolumeClaim>();
    names([
        claim.spec().volume_attributes_class_name().text(),
        claim.status().current_volume_attributes_class_name().text(),
        claim.status().modify_volume_status().target_volume_attributes_class_name().text(),
    ])
}

fn of_volume(volume: &Object) -> Vec<String> {
    let doc = volume.doc();
    names([doc.view::<v1::PersistentVolume>().spec().volume_attributes_class_name().text()])
}

#[cfg(test)]
mod tests {
    use super::PROTECTION;
    use crate::test_cluster::Cluster;
    use coracle_informer::informer::Name;
    use serde_json::json;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_class_stays_while_a_claim_wants_it() {
        const CLASSES: &str = "storage.k8s.io/volumeattributesclasses";
        let cluster = Cluster::without_nodes().await;
        let class =
            json!({"metadata": {"name": "gold"}, "driverName": "disk.example", "parameters": {"iops": "1"}});
        cluster.create("storage.k8s.io", "volumeattributesclasses", "", class).await;
        let gold = Name::new("", "gold");
        let is_kept = |c: &Cluster| c.get(CLASSES, &gold)["metadata"]["finalizers"] == json!([PROTECTION]);
        cluster.until("protected", is_kept).await;
        let claim = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeAttributesClassName": "gold",
            "resources": {"requests": {"storage": "1Gi"}}}});
        cluster.create("", "persistentvolumeclaims", "default", claim).await;
        cluster.delete(CLASSES, &gold, "Background").await;
        cluster.until("marked", |c| !c.get(CLASSES, &gold)["metadata"]["deletionTimestamp"].is_null()).await;
        assert!(is_kept(&cluster));
        cluster.delete("persistentvolumeclaims", &Name::new("default", "data"), "Background").await;
        cluster.until("gone", |c| c.get(CLASSES, &gold).is_null()).await;
    }
}
