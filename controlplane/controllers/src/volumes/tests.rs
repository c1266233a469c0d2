//! Claims, volumes and directories, on the real pipeline.

#![allow(clippy::unwrap_used)]
use super::directories::FINALIZER;
use crate::Options;
use crate::test_cluster::Cluster;
use async_trait::async_trait;
use coracle_client::node_volumes::{NodeVolumeError, NodeVolumes};
use coracle_informer::informer::Name;
use coracle_proto::local_path::DIRECTORIES;
use coracle_proto::status::ApiError;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// Nodes that note what they remove, and fail as often as told.
#[derive(Default)]
struct Noted {
    removed: Mutex<Vec<(String, String)>>,
    failures: Mutex<usize>,
}

#[async_trait]
impl NodeVolumes for Noted {
    async fn remove(&self, node: &str, volume: &str) -> Result<(), NodeVolumeError> {
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            return Err(ApiError::new(500, "InternalError", "disk is on fire").into());
        }
        self.removed.lock().push((node.into(), volume.into()));
        Ok(())
    }
}

struct Fixture {
    cluster: Cluster,
    disks: Arc<Noted>,
}

impl Fixture {
    async fn start() -> Self {
        let disks = Arc::new(Noted::default());
        let options = Options { node_volumes: Some(disks.clone()), ..Options::default() };
        let cluster = Cluster::start_with(options).await;
        cluster.node("node-1", json!({"kubernetes.io/hostname": "host-1"})).await;
        let dirs = json!({"metadata": {"annotations": {DIRECTORIES: r#"["/storage"]"#}}});
        cluster.patch("nodes", &Name::new("", "node-1"), dirs).await;
        Self { cluster, disks }
    }

    /// A claim that got a volume on `node-1`.
    async fn bound(&self, name: &str) -> (Name, Name) {
        let body = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        self.cluster.create("", "persistentvolumeclaims", "default", body).await;
        let claim = Name::new("default", name);
        let get = |c: &Cluster| c.get("persistentvolumeclaims", &claim);
        self.cluster.until("the default class", |c| get(c)["spec"]["storageClassName"] == "local-path").await;
        assert!(get(&self.cluster)["spec"]["volumeName"].is_null());
        let node = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node-1"}}});
        self.cluster.patch("persistentvolumeclaims", &claim, node).await;
        let told = |c: &Cluster| {
            get(c)["status"]["phase"] == "Bound" && get(c)["status"]["capacity"]["storage"] == "1Gi"
        };
        self.cluster.until("bound", told).await;
        let volume = Name::new("", get(&self.cluster)["spec"]["volumeName"].as_str().unwrap());
        self.cluster.until("bound, too", |c| volume_of(c, &volume)["status"]["phase"] == "Bound").await;
        (claim, volume)
    }

    async fn end(&self, claim: &Name) {
        self.cluster.delete("persistentvolumeclaims", claim, "Background").await;
    }

    fn removed(&self) -> Vec<(String, String)> {
        self.disks.removed.lock().clone()
    }
}

fn volume_of(cluster: &Cluster, name: &Name) -> Value {
    cluster.get("persistentvolumes", name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_a_volume_on_the_node_of_its_first_pod_and_both_go_with_the_directory() {
    let f = Fixture::start().await;
    let (claim, volume) = f.bound("data").await;
    let path = volume_of(&f.cluster, &volume)["spec"]["hostPath"]["path"].clone();
    assert_eq!(path, format!("/storage/{}_default_data", volume.name));

    let mut pod = json!({"metadata": {"name": "user", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "v1"}]}});
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    f.cluster.create("", "pods", "default", pod).await;
    f.end(&claim).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!f.cluster.get("persistentvolumeclaims", &claim).is_null(), "a pod uses it");
    assert_eq!(f.removed(), []);

    // A node that fails is asked again, and until then the volume is there.
    *f.disks.failures.lock() = 3;
    f.cluster.delete("pods", &Name::new("default", "user"), "Background").await;
    f.cluster.until("gone", |c| volume_of(c, &volume).is_null()).await;
    assert!(f.cluster.get("persistentvolumeclaims", &claim).is_null());
    assert_eq!(f.removed(), [("node-1".to_owned(), volume.name.clone())]);
    let failed = |c: &Cluster| {
        c.list("events", "default").iter().any(|e| {
            e["reason"] == "VolumeFailedDelete"
                && e["message"] == "disk is on fire"
                && e["involvedObject"]["name"] == volume.name
        })
    };
    f.cluster.until("told", failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_retained_stays_and_what_is_bound_waits() {
    let f = Fixture::start().await;
    let (claim, volume) = f.bound("kept").await;
    let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    f.cluster.patch("persistentvolumes", &volume, retain).await;
    // Deleted while bound: it goes after its claim.
    f.cluster.delete("persistentvolumes", &volume, "Background").await;
    f.end(&claim).await;
    f.cluster.until("gone", |c| volume_of(c, &volume).is_null()).await;
    assert_eq!(f.removed(), [], "the directory was to be retained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_waits_for_its_node_and_not_for_one_that_is_gone() {
    let f = Fixture::start().await;
    let node = Name::new("", "node-1");
    let kind = f.cluster.client.kind("", "nodes");
    let say = |ready: &'static str| {
        move |node: &mut Value| node["status"]["conditions"][0]["status"] = json!(ready)
    };
    let (one, first) = f.bound("one").await;
    let (two, second) = f.bound("two").await;
    f.cluster.client.modify(&kind, "", "node-1", "status", say("False")).await.unwrap();
    f.end(&one).await;
    f.cluster.until("held", |c| volume_of(c, &first)["metadata"]["finalizers"] == json!([FINALIZER])).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!volume_of(&f.cluster, &first).is_null(), "its node is away");
    f.cluster.client.modify(&kind, "", "node-1", "status", say("True")).await.unwrap();
    f.cluster.until("gone", |c| volume_of(c, &first).is_null()).await;
    assert_eq!(f.removed(), [("node-1".to_owned(), first.name)]);

    f.cluster.client.modify(&kind, "", "node-1", "status", say("Unknown")).await.unwrap();
    f.end(&two).await;
    f.cluster.until("held", |c| volume_of(c, &second)["metadata"]["finalizers"] == json!([FINALIZER])).await;
    f.cluster.delete("nodes", &node, "Background").await;
    f.cluster.until("gone with its node", |c| volume_of(c, &second).is_null()).await;
    assert_eq!(f.removed().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chosen_node_that_is_gone_is_chosen_no_more() {
    let f = Fixture::start().await;
    let body = json!({"metadata": {"name": "data", "namespace": "default",
        "annotations": {"volume.kubernetes.io/selected-node": "gone"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    f.cluster.create("", "persistentvolumeclaims", "default", body).await;
    let claim = Name::new("default", "data");
    f.cluster
        .until("another is to be chosen", |c| {
            let claim = c.get("persistentvolumeclaims", &claim);
            claim["metadata"]["finalizers"].is_array()
                && claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_null()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_names_its_volume_is_bound_only_to_one_that_satisfies_it() {
    let f = Fixture::start().await;
    let body = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {"volumeName": "disk", "storageClassName": "",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    f.cluster.create("", "persistentvolumeclaims", "default", body).await;
    let volume = json!({"metadata": {"name": "disk"}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/disk"}}});
    f.cluster.create("", "persistentvolumes", "", volume).await;
    let refused = |c: &Cluster| {
        c.list("events", "default").iter().any(|e| {
            e["reason"] == "VolumeMismatch"
                && e["message"] == "Cannot bind to requested volume \"disk\": requested PV is too small"
        })
    };
    f.cluster.until("refused", refused).await;
    let disk = Name::new("", "disk");
    assert!(volume_of(&f.cluster, &disk)["spec"]["claimRef"].is_null());
    f.cluster.patch("persistentvolumes", &disk, json!({"spec": {"capacity": {"storage": "2Gi"}}})).await;
    let claim = Name::new("default", "data");
    let bound = |c: &Cluster| c.get("persistentvolumeclaims", &claim)["status"]["phase"] == "Bound";
    f.cluster.until("bound", bound).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_without_class_gets_the_newest_default_class_later() {
    let f = Fixture::start().await;
    let local = Name::new("", "local-path");
    f.cluster.until("a class", |c| !c.get("storage.k8s.io/storageclasses", &local).is_null()).await;
    f.cluster.delete("storage.k8s.io/storageclasses", &local, "Background").await;
    let body = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}});
    f.cluster.create("", "persistentvolumeclaims", "default", body).await;
    let claim = Name::new("default", "data");
    let told = |c: &Cluster| c.list("events", "default").iter().any(|e| e["reason"] == "FailedBinding");
    f.cluster.until("no class", told).await;
    let class = json!({"metadata": {"name": "new", "annotations": {"storageclass.beta.kubernetes.io/is-default-class": "true"}},
        "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"});
    f.cluster.create("storage.k8s.io", "storageclasses", "", class).await;
    let set = |c: &Cluster| c.get("persistentvolumeclaims", &claim)["spec"]["storageClassName"] == "new";
    f.cluster.until("the default class", set).await;
}

#[test]
fn of_several_default_classes_the_newest_is_the_default() {
    let class = |name: &str, created: &str, default: bool| {
        coracle_kinds::object::testing::object(
            json!({"metadata": {"name": name, "creationTimestamp": created,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default.to_string()}}}),
        )
    };
    let classes = [
        class("a", "2026-01-01T00:00:00Z", true),
        class("c", "2026-01-02T00:00:00Z", true),
        class("b", "2026-01-02T00:00:00Z", true),
        class("d", "2026-01-03T00:00:00Z", false),
    ];
    assert_eq!(super::claims::newest_default(&classes).as_deref(), Some("b"));
    assert_eq!(super::claims::newest_default(&classes[3..]), None);
}
