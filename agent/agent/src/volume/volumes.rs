//! The volumes of all pods of the node.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use super::prepare::{PrepareError, Prepared, Purpose, VolumePreparer};
use super::teardown;
use super::token::Tokens;
use crate::config::NodeConfig;
use crate::objects::Objects;
use crate::pod::downward::Downward;
use crate::pod::node_facts::SharedFacts;

/// Makes and removes volumes of pods.
pub struct Volumes {
    config: Arc<NodeConfig>,
    client: kube::Client,
    objects: Arc<Objects>,
    tokens: Tokens,
    facts: SharedFacts,
}

impl Volumes {
    /// Volumes in the directories of these settings.
    pub fn new(
        config: Arc<NodeConfig>,
        client: kube::Client,
        objects: Arc<Objects>,
        facts: SharedFacts,
    ) -> Self {
        let tokens = Tokens::new(client.clone());
        Volumes { config, client, objects, tokens, facts }
    }

    /// Makes the volumes of a pod, or renews those of one that runs.
    pub async fn prepare(&self, pod: &Pod, purpose: Purpose) -> Result<Prepared, PrepareError> {
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
            facts: Downward { pod_ips: &[], host_ips: &self.config.ips, allocatable: &allocatable },
            node_labels: &labels,
        };
        preparer.prepare(pod).await
    }

    /// Removes the volumes of a pod that has ended, and forgets its objects and tokens; `false` if some are left.
    pub fn release(&self, uid: &str) -> bool {
        let pod_dir = self.config.pod_dir(uid);
        let trees =
            [pod_dir.join("volume-subpaths"), pod_dir.join("volumes"), self.config.memory_dir.join(uid)];
        let mut clean = true;
        for tree in trees {
            if let Err(error) = tokio::task::block_in_place(|| teardown::remove_tree(&tree)) {
                tracing::warn!(uid, error = %causes::chain(&error), "volume not removed, will retry");
                clean = false;
            }
        }
        if clean {
            self.objects.release(uid);
            self.tokens.release(uid);
        }
        clean
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::disallowed_methods, reason = "a test's own files")]
    use super::*;
    use coracle_cli::supervise::Supervisor;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn pod(label: &str) -> Pod {
        let labels = json!({"fieldRef": {"fieldPath": "metadata.labels['a']"}, "path": "a"});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"a": label}},
            "spec": {
                "securityContext": {"fsGroup": nix::unistd::getgid().as_raw()},
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "d", "downwardAPI": {"items": [labels]}}],
                "containers": [],
            },
        }))
        .unwrap()
    }

    fn volumes(dir: &std::path::Path) -> Volumes {
        let service = tower::service_fn(|_: Request<Body>| async {
            std::future::pending::<Result<Response<Body>, std::convert::Infallible>>().await
        });
        let client = kube::Client::new(service, "default");
        let objects = Objects::new(client.clone(), Arc::new(|_: &str| {}), &Supervisor::default());
        let config = Arc::new(NodeConfig::in_directory(dir));
        Volumes::new(config, client, Arc::new(objects), SharedFacts::default())
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
        let broken =
            serde_json::from_value(json!({"name": "n", "nfs": {"server": "s", "path": "/"}})).unwrap();
        pod.spec.as_mut().unwrap().volumes.as_mut().unwrap().insert(0, broken);
        let error = volumes(temp.path()).prepare(&pod, Purpose::Renewal).await.unwrap_err();
        assert_eq!(error.to_string(), "MountVolume.SetUp failed for volume \"n\" : no volume plugin matched");
        let told = NodeConfig::in_directory(temp.path()).memory_volume_dir("u", "d").join("a");
        assert_eq!(fs::read_to_string(told).unwrap(), "1");
    }
}
