//! Pods that the API server gives to this node.

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::oneshot;

use super::mirror;
use crate::context::Context;
use crate::pod::table::Message;
use crate::pod::{spec, worker};
use crate::watching;

/// Who waits for the first complete list; told once, however often the task is started.
pub type Listed = Mutex<Option<oneshot::Sender<()>>>;

/// Follows the pods of this node, for ever; `listed` is told when all of them are known for the first time.
pub async fn follow(context: Arc<Context>, listed: Arc<Listed>) {
    let api: Api<Pod> = Api::all(context.client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={}", context.config.name));
    let mut stream = watching::watch(api, config);
    let mut initial = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => initial.clear(),
            Ok(watcher::Event::InitApply(pod)) => initial.push(pod),
            Ok(watcher::Event::InitDone) => {
                reset(&context, std::mem::take(&mut initial));
                if let Some(listed) = listed.lock().take() {
                    let _ = listed.send(());
                }
            }
            Ok(watcher::Event::Apply(pod)) => deliver(&context, pod),
            Ok(watcher::Event::Delete(pod)) => {
                let pod = slim(pod);
                if spec::is_mirror(&pod) {
                    mirror::deleted(&context, &pod);
                    continue;
                }
                let uid = spec::uid(&pod).to_owned();
                context.pods.send(&uid, Message::Gone(Some(Arc::new(pod))));
            }
            Err(error) => {
                tracing::warn!(node = context.config.name, %error, "pods are not followed, will retry")
            }
        }
    }
}

/// A full list: what is not on it is gone. Older pods first, as they have the older claim on the node.
fn reset(context: &Arc<Context>, mut pods: Vec<Pod>) {
    let wanted: HashSet<String> = pods.iter().map(|pod| spec::uid(pod).to_owned()).collect();
    for uid in context.pods.uids() {
        let from_api = context.pods.get(&uid).is_some_and(|entry| !spec::is_static(&entry.pod));
        if from_api && !wanted.contains(&uid) {
            context.pods.send(&uid, Message::Gone(None));
        }
    }
    pods.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    for pod in pods {
        deliver(context, pod);
    }
}

fn deliver(context: &Arc<Context>, pod: Pod) {
    let pod = Arc::new(slim(pod));
    if spec::is_mirror(&pod) {
        mirror::seen(context, &pod);
        return;
    }
    context.reporter.seen(&pod);
    if !context.pods.send(spec::uid(&pod), Message::Pod(pod.clone())) {
        worker::spawn(context, pod, false);
    }
}

/// Without what the node never looks at.
fn slim(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    pod
}
