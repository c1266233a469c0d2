//! The volumes of all pods of the node.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;

use super::prepare::{PrepareError, Prepared, VolumePreparer};
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

    /// Makes or refreshes the volumes of a pod.
    pub async fn prepare(&self, pod: &Pod) -> Result<Prepared, PrepareError> {
        let (allocatable, labels) = {
            let facts = self.facts.read();
            (facts.allocatable.clone(), facts.labels.clone())
        };
        let preparer = VolumePreparer {
            config: &self.config,
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
