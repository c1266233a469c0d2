//! Orphaned pods: sandboxes, directories and logs of pods that were deleted while the agent was not running. A worker
//! terminates each of them.

use coracle_cli::causes;
use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::NodeConfig;
use crate::lifecycle::log_links;
use crate::lifecycle::table::PodTable;
use crate::lifecycle::worker::{Desired, Workers};
use crate::pod::observed::label;
use crate::volume::teardown;
use coracle_engine::runtime::Runtime;
use coracle_host_dir::HostDir;

/// Terminates all orphaned pods. Call it after all desired pods are known.
pub async fn terminate(workers: &Workers, runtime: &dyn Runtime, config: &NodeConfig) {
    match runtime.list_pod_sandboxes(None).await {
        Ok(sandboxes) => end_sandboxes(workers, runtime, sandboxes).await,
        Err(error) => tracing::warn!(error = %causes::chain(&error), "orphaned sandboxes not listed"),
    }
    for uid in config.uids_on_disk() {
        if workers.pods().get(&uid).is_none() {
            tracing::info!(uid, "removing data of an orphaned pod");
            workers.spawn(Desired::Gone(Arc::new(placeholder_pod(&uid, "", "", &[]))));
        }
    }
    remove_logs(workers.pods(), config);
    log_links::sweep(&config.log_link_dir, &config.log_dir, |uid| workers.pods().get(uid).is_some());
}

async fn end_sandboxes(workers: &Workers, runtime: &dyn Runtime, sandboxes: Vec<cri::PodSandbox>) {
    let mut found: BTreeMap<String, (String, String)> = BTreeMap::new();
    for sandbox in sandboxes {
        // Sandboxes without our labels belong to other programs.
        if let Some(uid) = sandbox.labels.get(label::POD_UID) {
            let metadata = sandbox.metadata.clone().unwrap_or_default();
            found.insert(uid.clone(), (metadata.namespace, metadata.name));
        }
    }
    for (uid, (namespace, name)) in found {
        if workers.pods().get(&uid).is_some() {
            continue;
        }
        let filter = cri::ContainerFilter {
            label_selector: [(label::POD_UID.to_owned(), uid.clone())].into(),
            ..cri::ContainerFilter::default()
        };
        let containers = runtime.list_containers(Some(filter)).await.unwrap_or_default();
        let names: Vec<String> =
            containers.into_iter().filter_map(|c| c.metadata.map(|metadata| metadata.name)).collect();
        tracing::info!(uid, pod = name, namespace, "terminating an orphaned pod");
        workers.spawn(Desired::Gone(Arc::new(placeholder_pod(&uid, &namespace, &name, &names))));
    }
}

/// A Pod object with the known fields of an orphaned pod.
fn placeholder_pod(uid: &str, namespace: &str, name: &str, containers: &[String]) -> Pod {
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

/// Removes log directories (`namespace_name_uid`) of unknown pods.
fn remove_logs(pods: &PodTable, config: &NodeConfig) {
    let dir = &config.log_dir;
    let names = HostDir::open(dir).and_then(|dir| dir.names());
    for name in names.into_iter().flatten().flatten() {
        let name = name.to_string_lossy().into_owned();
        let Some(uid) = name.split('_').nth(2) else { continue };
        if pods.get(uid).is_none()
            && let Err(error) = teardown::remove_tree(&dir.join(&name))
        {
            tracing::warn!(error = %causes::chain(&error), "logs of an orphaned pod not removed");
        }
    }
}
