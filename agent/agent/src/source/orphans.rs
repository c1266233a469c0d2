//! What an agent finds when it starts. Orphaned pods: sandboxes, directories and logs of pods that were deleted while the agent
//! was not running. A worker terminates each of them. Containers that run without a link to their log get it.

use coracle_cli::causes;
use coracle_proto::cri;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::NodeConfig;
use crate::lifecycle::log_links;
use crate::lifecycle::table::PodTable;
use crate::lifecycle::worker::{Desired, Workers};
use crate::pod::container_config;
use crate::pod::observed::label;
use crate::volume::teardown;
use coracle_engine::runtime::Runtime;
use coracle_host_dir::HostDir;

/// Terminates all orphaned pods. Call it after all desired pods are known.
pub async fn terminate(workers: &Workers, runtime: &dyn Runtime, config: &NodeConfig) {
    link_logs(workers.pods(), runtime, config).await;
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
    if let Some(links) = &config.log_link_dir {
        log_links::sweep(links, &config.log_dir, |uid| workers.pods().get(uid).is_some());
    }
}

/// Makes the links to the logs of running containers of known pods: whoever started them may have made none.
async fn link_logs(pods: &PodTable, runtime: &dyn Runtime, config: &NodeConfig) {
    let Some(links) = &config.log_link_dir else { return };
    let running = cri::ContainerStateValue { state: cri::ContainerState::ContainerRunning.into() };
    let filter = cri::ContainerFilter { state: Some(running), ..cri::ContainerFilter::default() };
    let containers = match runtime.list_containers(Some(filter)).await {
        Ok(containers) => containers,
        Err(error) => {
            tracing::warn!(error = %causes::chain(&error), "running containers not listed, links to their logs not made");
            return;
        }
    };
    for container in containers {
        let is_known = container.labels.get(label::POD_UID).is_some_and(|uid| pods.get(uid).is_some());
        if let Some((link, log)) = log_link(&container, config).filter(|_| is_known) {
            log_links::create(links, &link, &log);
        }
    }
}

/// The name of a container's link and its log; nothing for containers of other programs.
fn log_link(container: &cri::Container, config: &NodeConfig) -> Option<(String, PathBuf)> {
    let uid = container.labels.get(label::POD_UID)?;
    let namespace = container.labels.get(label::POD_NAMESPACE)?;
    let name = container.labels.get(label::POD_NAME)?;
    let metadata = container.metadata.as_ref()?;
    let logs = config.pod_log_dir(namespace, name, uid);
    let log = logs.join(container_config::log_path(&metadata.name, metadata.attempt));
    let pod = placeholder_pod(uid, namespace, name, &[]);
    Some((log_links::name(&pod, &metadata.name, &container.id), log))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn links_of_running_containers_are_those_that_a_start_makes() {
        let config = NodeConfig::in_directory(Path::new("/x"));
        let labels = [(label::POD_UID, "u"), (label::POD_NAMESPACE, "ns"), (label::POD_NAME, "web")];
        let container = cri::Container {
            id: "0a1b".into(),
            metadata: Some(cri::ContainerMetadata { name: "c".into(), attempt: 2 }),
            labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            ..cri::Container::default()
        };
        let want = ("web_ns_c-0a1b.log".to_owned(), PathBuf::from("/x/logs/ns_web_u/c/2.log"));
        assert_eq!(log_link(&container, &config), Some(want));
        let of_others = cri::Container { labels: Default::default(), ..container };
        assert_eq!(log_link(&of_others, &config), None);
    }
}
