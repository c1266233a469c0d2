//! Pods that are bound to this node.

use coracle_cli::causes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

use super::mirror::Mirrors;
use crate::api_watch;
use crate::lifecycle::table::Message;
use crate::lifecycle::worker::Workers;
use crate::pod::spec::{self, SOURCE_ANNOTATION};

/// Notified once, after the first complete list.
pub type Listed = Mutex<Option<oneshot::Sender<()>>>;

/// Follows the pods of this node, for ever; `listed` is told when all of them are known for the first time.
pub async fn follow(workers: Workers, mirrors: Mirrors, listed: Arc<Listed>) {
    let api: Api<Pod> = Api::all(mirrors.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", mirrors.node));
    let mut stream = api_watch::watch(api, config);
    let mut initial = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => initial.clear(),
            Ok(watcher::Event::InitApply(pod)) => initial.push((received(pod), Instant::now())),
            Ok(watcher::Event::InitDone) => {
                reset(&workers, &mirrors, std::mem::take(&mut initial));
                if let Some(listed) = listed.lock().take() {
                    let _ = listed.send(());
                }
            }
            Ok(watcher::Event::Apply(pod)) => deliver(&workers, &mirrors, received(pod), Instant::now()),
            Ok(watcher::Event::Delete(pod)) => {
                let pod = received(pod);
                if spec::is_mirror(&pod) {
                    mirrors.deleted(&pod);
                    continue;
                }
                let uid = spec::uid(&pod).to_owned();
                workers.pods().send(&uid, Message::Gone(Some(Arc::new(pod))));
            }
            Err(error) => {
                tracing::warn!(node = mirrors.node, error = %causes::chain(&error), "Pod watch failed, will retry")
            }
        }
    }
}

/// Handles a full list: pods that are not in it are deleted. Older pods are admitted first.
fn reset(workers: &Workers, mirrors: &Mirrors, mut pods: Vec<(Pod, Instant)>) {
    let table = workers.pods();
    let wanted: HashSet<String> = pods.iter().map(|(pod, _)| spec::uid(pod).to_owned()).collect();
    for uid in table.uids() {
        let from_api = table.get(&uid).is_some_and(|entry| !spec::is_static(&entry.pod));
        if from_api && !wanted.contains(&uid) {
            table.send(&uid, Message::Gone(None));
        }
    }
    pods.sort_by(|(a, _), (b, _)| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    for (pod, at) in pods {
        deliver(workers, mirrors, pod, at);
    }
}

fn deliver(workers: &Workers, mirrors: &Mirrors, pod: Pod, received: Instant) {
    let pod = Arc::new(pod);
    if spec::is_mirror(&pod) {
        mirrors.seen(&pod);
    } else {
        workers.deliver(pod, received);
    }
}

/// A pod as the node uses it: marked as one from the API, without the fields that the node never reads.
fn received(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    // The pod's author can set the annotation as well. Only manifests of this node make static pods.
    pod.metadata.annotations.get_or_insert_default().insert(SOURCE_ANNOTATION.into(), "api".into());
    pod
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_api_pod_cannot_say_that_it_is_static() {
        for source in [json!({}), json!({"kubernetes.io/config.source": "file"})] {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"name": "p", "annotations": source}})).unwrap();
            let pod = received(pod);
            assert_eq!(spec::annotation(&pod, SOURCE_ANNOTATION), Some("api"), "{source}");
            assert!(!spec::is_static(&pod) && !spec::is_critical(&pod), "{source}");
        }
        let annotations = json!({"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "u"});
        let mirror: Pod =
            serde_json::from_value(json!({"metadata": {"name": "m", "annotations": annotations}})).unwrap();
        assert!(spec::is_mirror(&received(mirror)), "mirror pods are still recognized");
    }
}
