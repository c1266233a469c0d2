//! What earlier lives of this agent left of pods that are desired no more: sandboxes, directories, logs. Each gets a
//! worker that knows only how to end it.

use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::Context;
use crate::pod::observed::label;
use crate::pod::worker;
use crate::volume::teardown;
use coracle_host_dir::HostDir;

/// Ends everything that is on the node and not desired; to be called when all desired pods are known.
pub async fn end(context: &Arc<Context>) {
    match context.runtime.list_pod_sandboxes(None).await {
        Ok(sandboxes) => end_sandboxes(context, sandboxes).await,
        Err(error) => tracing::warn!(%error, "leftover sandboxes not listed"),
    }
    for uid in context.config.uids_on_disk() {
        if context.pods.get(&uid).is_none() {
            tracing::info!(uid, "ending what is left of a pod on disk");
            worker::spawn(context, Arc::new(remnant(&uid, "", "", &[])), true);
        }
    }
    remove_logs(context);
}

async fn end_sandboxes(context: &Arc<Context>, sandboxes: Vec<cri::PodSandbox>) {
    let mut found: BTreeMap<String, (String, String)> = BTreeMap::new();
    for sandbox in sandboxes {
        // Sandboxes without our labels are somebody else's.
        if let Some(uid) = sandbox.labels.get(label::POD_UID) {
            let metadata = sandbox.metadata.clone().unwrap_or_default();
            found.insert(uid.clone(), (metadata.namespace, metadata.name));
        }
    }
    for (uid, (namespace, name)) in found {
        if context.pods.get(&uid).is_some() {
            continue;
        }
        let filter = cri::ContainerFilter {
            label_selector: [(label::POD_UID.to_owned(), uid.clone())].into(),
            ..cri::ContainerFilter::default()
        };
        let containers = context.runtime.list_containers(Some(filter)).await.unwrap_or_default();
        let names: Vec<String> =
            containers.into_iter().filter_map(|c| c.metadata.map(|metadata| metadata.name)).collect();
        tracing::info!(uid, pod = name, namespace, "ending a pod that is desired no more");
        worker::spawn(context, Arc::new(remnant(&uid, &namespace, &name, &names)), true);
    }
}

/// As much of a pod as is known.
fn remnant(uid: &str, namespace: &str, name: &str, containers: &[String]) -> Pod {
    let containers = containers.iter().map(|name| Container { name: name.clone(), ..Container::default() });
    Pod {
        metadata: ObjectMeta {
            uid: Some(uid.to_owned()),
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec { containers: containers.collect(), ..PodSpec::default() }),
        status: None,
    }
}

/// Log directories of pods nobody knows: `namespace_name_uid`.
fn remove_logs(context: &Context) {
    let dir = &context.config.log_dir;
    let names = HostDir::open(dir).and_then(|dir| dir.names());
    for name in names.into_iter().flatten().flatten() {
        let name = name.to_string_lossy().into_owned();
        let Some(uid) = name.split('_').nth(2) else { continue };
        if context.pods.get(uid).is_none()
            && let Err(error) = teardown::remove_tree(&dir.join(&name))
        {
            tracing::warn!(%error, "leftover logs not removed");
        }
    }
}
