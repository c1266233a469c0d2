//! The volumes of all pods of the node.

use k8s_openapi::api::core::v1::Pod;
use std::path::Path;
use std::sync::Arc;

use super::csi::{CsiError, CsiVolumes};
use super::prepare::{PrepareError, Prepared, VolumePreparer};
use super::purpose::Purpose;
use super::token::Tokens;
use super::usage::VolumeUsage;
use super::{FileError, nfs, teardown};
use crate::config::NodeConfig;
use crate::objects::Objects;
use crate::pod::downward::Downward;
use crate::pod::node_facts::SharedFacts;

/// Why volumes of a pod are left; tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Its directories.
    #[error(transparent)]
    File(#[from] FileError),
    /// Volumes of storage drivers.
    #[error(transparent)]
    Csi(#[from] CsiError),
}

fn remove(tree: &Path) -> Result<(), FileError> {
    tokio::task::block_in_place(|| teardown::remove_tree(tree))
}

/// Makes and removes volumes of pods.
pub struct Volumes {
    config: Arc<NodeConfig>,
    client: kube::Client,
    objects: Arc<Objects>,
    tokens: Arc<Tokens>,
    csi: CsiVolumes,
    facts: SharedFacts,
    usage: VolumeUsage,
}

impl Volumes {
    /// Volumes in the directories of these settings.
    pub fn new(
        config: Arc<NodeConfig>,
        client: kube::Client,
        objects: Arc<Objects>,
        (tokens, csi): (Arc<Tokens>, CsiVolumes),
        (facts, usage): (SharedFacts, VolumeUsage),
    ) -> Self {
        Volumes { config, client, objects, tokens, csi, facts, usage }
    }

    /// Makes the volumes of a pod, or renews those of one that runs.
    pub async fn prepare(&self, pod: &Arc<Pod>, purpose: Purpose) -> Result<Prepared, PrepareError> {
        let (allocatable, labels) = {
            let facts = self.facts.read();
            (facts.allocatable.clone(), facts.labels.clone())
        };
        let preparer = VolumePreparer {
            config: &self.config,
            purpose,
            client: &self.client,
            objects: &self.objects,
            tokens: &self.tokens,
            csi: &self.csi,
            facts: Downward { pod_ips: &[], host_ips: &self.config.ips, allocatable: &allocatable },
            node_labels: &labels,
        };
        let prepared = preparer.prepare(pod).await?;
        self.usage.set(pod, prepared.measured.clone());
        Ok(prepared)
    }

    /// Removes the volumes of a pod that has ended, and forgets its objects and tokens. Can be repeated after an error. Mounts of
    /// parts of volumes go before the volumes.
    pub async fn release(&self, uid: &str) -> Result<(), ReleaseError> {
        let pod_dir = self.config.pod_dir(uid);
        self.usage.remove(uid);
        remove(&pod_dir.join("volume-subpaths"))?;
        tokio::task::block_in_place(|| nfs::unmount_below(&pod_dir.join("volumes/kubernetes.io~nfs")))?;
        let unmounted = self.csi.release(uid).await;
        for tree in [pod_dir.join("volumes"), self.config.memory_dir.join(uid)] {
            remove(&tree)?;
        }
        unmounted?;
        self.csi.metrics().remove(uid);
        self.objects.release(uid);
        self.tokens.release(uid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::super::csi::attachments::Attachments;
    use super::super::csi::drivers::Drivers;
    use super::super::csi::names::Paths;
    use super::super::csi::node_object::NodeObject;
    use super::super::csi::records::Records;
    use super::*;
    use coracle_cli::supervise::Supervisor;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn pod(label: &str) -> Arc<Pod> {
        let labels = json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}, "path": "a"});
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a": label}},
            "spec": {
                "securityContext": {"fsGroup": nix::unistd::getgid().as_raw()},
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "d", "downwardAPI": {"items": [labels]}}],
                "containers": [],
            },
        }));
        Arc::new(pod.unwrap())
    }

    fn volumes(dir: &std::path::Path) -> Volumes {
        let service = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
        });
        let client = kube::Client::new(service, "default");
        let objects = Objects::new(client.clone(), Arc::new(|_: &str| {}), &Supervisor::default());
        let config = Arc::new(NodeConfig::in_directory(dir));
        let tokens = Arc::new(Tokens::new(client.clone()));
        let paths = Paths::new(&config.kubelet_dir);
        let records = Records::load(paths.clone(), String::new());
        let attachments = Arc::new(Attachments::new(Arc::default()));
        let drivers = Drivers::default();
        let (events, _) = crate::events::recorder(client.clone(), "n".into());
        let object = NodeObject::new(client.clone(), "n");
        let csi = CsiVolumes::new(object, (paths, records), events, drivers, attachments, tokens.clone());
        Volumes::new(config, client, Arc::new(objects), (tokens, csi), Default::default())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_renewal_writes_what_the_api_says_and_leaves_what_belongs_to_containers() {
        let temp = tempfile::tempdir().unwrap();
        let made = volumes(temp.path()).prepare(&pod("1"), Purpose::Start).await.unwrap();
        let config = NodeConfig::in_directory(temp.path());
        let (own, told) =
            (config.volume_dir("u", "empty-dir", "e"), config.memory_volume_dir("u", "d").join("a"));
        assert_eq!(fs::read_to_string(&told).unwrap(), "1");
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o2777);
        // What a database does with its directory.
        fs::set_permissions(&own, PermissionsExt::from_mode(0o700)).unwrap();
        fs::write(own.join("key"), "").unwrap();
        fs::set_permissions(own.join("key"), PermissionsExt::from_mode(0o600)).unwrap();
        // An agent that was restarted knows nothing of them.
        let adopted = volumes(temp.path()).prepare(&pod("2"), Purpose::Renewal).await.unwrap();
        assert_eq!(adopted.sources, made.sources);
        assert_eq!(fs::read_to_string(&told).unwrap(), "2");
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(own.join("key")).unwrap().mode() & 0o777, 0o600);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_volume_that_fails_does_not_keep_others_from_being_renewed() {
        let temp = tempfile::tempdir().unwrap();
        let mut pod = pod("1");
        let broken = json!({"name": "n", "iscsi": {"targetPortal": "p", "iqn": "i", "lun": 0}});
        let broken = serde_json::from_value(broken).unwrap();
        Arc::make_mut(&mut pod).spec.as_mut().unwrap().volumes.as_mut().unwrap().insert(0, broken);
        let error = volumes(temp.path()).prepare(&pod, Purpose::Renewal).await.unwrap_err();
        assert_eq!(error.to_string(), "MountVolume.SetUp failed for volume \"n\" : no volume plugin matched");
        let told = NodeConfig::in_directory(temp.path()).memory_volume_dir("u", "d").join("a");
        assert_eq!(fs::read_to_string(told).unwrap(), "1");
    }
}
