//! Mirror pods: API objects of static pods. Deleting a mirror pod does not affect the static pod.

use coracle_cli::causes;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use std::sync::Arc;
use std::time::Duration;

use crate::lifecycle::table::{Message, PodTable};
use crate::pod::spec::{self, MIRROR_ANNOTATION};
use crate::status::report::Reporter;

const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The uid of the static pod that a mirror shows.
fn shown(mirror: &Pod) -> String {
    spec::annotation(mirror, MIRROR_ANNOTATION).unwrap_or_default().to_owned()
}

/// Whether a mirror is the one of a pod. Everybody who may create pods can write the uid of any pod into the annotation, so
/// the pod must be static and have the namespace and the name of the mirror.
fn shows(mirror: &Pod, pod: &Pod) -> bool {
    spec::is_static(pod)
        && shown(mirror) == spec::uid(pod)
        && spec::namespace(mirror) == spec::namespace(pod)
        && spec::name(mirror) == spec::name(pod)
}

/// Mirror pods of this node.
#[derive(Clone)]
pub struct Mirrors {
    /// The API.
    pub client: kube::Client,
    /// The Node object's name.
    pub node: String,
    /// The node's pods, static ones too.
    pub pods: PodTable,
    /// Reports the statuses of static pods on their mirrors.
    pub reporter: Reporter,
}

impl Mirrors {
    /// The static pod of this node that a mirror shows.
    fn original(&self, mirror: &Pod) -> Option<Arc<Pod>> {
        self.pods.get(&shown(mirror)).map(|entry| entry.pod).filter(|pod| shows(mirror, pod))
    }

    /// A mirror pod was seen in the API.
    pub fn seen(&self, mirror: &Arc<Pod>) {
        if self.original(mirror).is_some() && mirror.metadata.deletion_timestamp.is_none() {
            let uid = shown(mirror);
            self.reporter.seen_as(&uid, mirror);
            self.pods.send(&uid, Message::Report);
            return;
        }
        // Its static pod is gone, or the mirror is being deleted: completes the deletion; it is created again if needed.
        let (mirrors, mirror) = (self.clone(), mirror.clone());
        tokio::spawn(async move {
            if let Err(error) = mirrors.delete(&mirror).await {
                tracing::warn!(pod = spec::name(&mirror), error = %causes::chain(&error), "mirror pod not deleted");
            }
        });
    }

    /// A mirror pod is gone from the API: it is made again while its static pod is there.
    pub fn deleted(&self, mirror: &Pod) {
        if let Some(pod) = self.original(mirror) {
            tokio::spawn(self.clone().ensure(pod));
        }
    }

    /// Makes the mirror of a static pod, in place of one that shows an older pod of the same name. Tries until it is
    /// there or the static pod is gone.
    pub async fn ensure(self, pod: Arc<Pod>) {
        let mut pause = Duration::from_millis(200);
        while self.pods.get(spec::uid(&pod)).is_some() {
            match self.try_ensure(&pod).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(pod = spec::name(&pod), error = %causes::chain(&error), "mirror pod not created, will retry");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(MAX_RETRY_DELAY);
                }
            }
        }
    }

    async fn try_ensure(&self, pod: &Pod) -> Result<(), kube::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), spec::namespace(pod));
        if let Some(old) = api.get_opt(spec::name(pod)).await? {
            if shown(&old) == spec::uid(pod) && old.metadata.deletion_timestamp.is_none() {
                return Ok(());
            }
            self.delete(&old).await?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.get(&self.node).await?;
        let mut mirror = pod.clone();
        mirror.metadata.uid = None;
        mirror.metadata.generation = None;
        mirror
            .metadata
            .annotations
            .get_or_insert_default()
            .insert(MIRROR_ANNOTATION.into(), spec::uid(pod).to_owned());
        mirror.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: self.node.clone(),
            uid: node.metadata.uid.unwrap_or_default(),
            controller: Some(true),
            ..OwnerReference::default()
        }]);
        api.create(&PostParams::default(), &mirror).await.map(|_| ())
    }

    /// Deletes the mirror of a static pod whose manifest is gone.
    pub fn remove(&self, pod: Arc<Pod>) {
        let mirrors = self.clone();
        tokio::spawn(async move {
            mirrors.pods.wait_gone(&[spec::uid(&pod).to_owned()]).await;
            let api: Api<Pod> = Api::namespaced(mirrors.client.clone(), spec::namespace(&pod));
            if let Ok(Some(mirror)) = api.get_opt(spec::name(&pod)).await
                && let Err(error) = mirrors.delete(&mirror).await
            {
                tracing::warn!(pod = spec::name(&pod), error = %causes::chain(&error), "mirror pod not deleted");
            }
        });
    }

    async fn delete(&self, mirror: &Pod) -> Result<(), kube::Error> {
        if !spec::is_mirror(mirror) {
            return Ok(());
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), spec::namespace(mirror));
        let preconditions = Preconditions { uid: mirror.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::default().grace_period(0).preconditions(preconditions);
        match api.delete(spec::name(mirror), &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mirror_cannot_take_over_another_pod() {
        let pod = |namespace: &str, name: &str, source: &str| -> Pod {
            let metadata = json!({"namespace": namespace, "name": name, "uid": "u",
                "annotations": {"kubernetes.io/config.source": source}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        let metadata = json!({"namespace": "ns", "name": "p", "uid": "of-the-mirror",
            "annotations": {"kubernetes.io/config.mirror": "u"}});
        let mirror: Pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert!(shows(&mirror, &pod("ns", "p", "file")));
        assert!(!shows(&mirror, &pod("ns", "p", "api")), "not a static pod");
        assert!(!shows(&mirror, &pod("other", "p", "file")), "of another namespace");
        assert!(!shows(&mirror, &pod("ns", "other", "file")), "of another name");
    }
}
