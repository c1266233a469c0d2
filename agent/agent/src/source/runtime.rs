//! Forwards events of the runtime to pod workers.

use coracle_cli::causes;
use coracle_proto::cri;
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::lifecycle::table::{Message, PodTable};
use crate::pod::observed::label;
use coracle_engine::runtime::{Runtime, RuntimeError};

const RETRY: Duration = Duration::from_secs(1);
/// Relist interval for runtimes without events, as in the kubelet.
const RELIST: Duration = Duration::from_secs(1);

/// Forwards events until the process ends; relists runtimes without events.
pub async fn follow(runtime: Arc<dyn Runtime>, pods: PodTable) {
    loop {
        match runtime.events().await {
            Ok(mut events) => {
                // Events before the subscription were missed.
                notify_all(&pods);
                while let Some(event) = events.next().await {
                    if let Some(uid) = uid(&event) {
                        pods.send(&uid, Message::Observe);
                    }
                }
                tracing::info!("runtime's events ended, subscribing again");
            }
            Err(RuntimeError::Unimplemented(_)) => {
                tracing::info!("runtime has no events: listing containers every second");
                relist(&*runtime, &pods).await;
            }
            Err(error) => {
                tracing::warn!(error = %causes::chain(&error), "subscription to runtime events failed, will retry")
            }
        }
        tokio::time::sleep(RETRY).await;
        notify_all(&pods);
    }
}

fn notify_all(pods: &PodTable) {
    for uid in pods.uids() {
        pods.send(&uid, Message::Observe);
    }
}

fn uid(event: &cri::ContainerEventResponse) -> Option<String> {
    let sandbox = event.pod_sandbox_status.as_ref();
    let from_sandbox =
        sandbox.and_then(|sandbox| sandbox.metadata.as_ref()).map(|metadata| metadata.uid.clone());
    let from_labels =
        || event.containers_statuses.iter().find_map(|status| status.labels.get(label::POD_UID).cloned());
    from_sandbox.filter(|uid| !uid.is_empty()).or_else(from_labels)
}

/// Compares states every second; returns when the runtime goes away.
async fn relist(runtime: &dyn Runtime, pods: &PodTable) {
    let mut last: HashMap<String, (String, i32)> = HashMap::new();
    loop {
        let (Ok(containers), Ok(sandboxes)) =
            (runtime.list_containers(None).await, runtime.list_pod_sandboxes(None).await)
        else {
            return;
        };
        let uid = |labels: &HashMap<String, String>| labels.get(label::POD_UID).cloned().unwrap_or_default();
        let now: HashMap<String, (String, i32)> = containers
            .iter()
            .map(|container| (container.id.clone(), (uid(&container.labels), container.state)))
            .chain(
                sandboxes.iter().map(|sandbox| (sandbox.id.clone(), (uid(&sandbox.labels), sandbox.state))),
            )
            .collect();
        let changed = now.iter().filter(|(id, state)| last.get(*id) != Some(*state));
        let vanished = last.iter().filter(|(id, _)| !now.contains_key(*id));
        for (_, (uid, _)) in changed.chain(vanished) {
            pods.send(uid, Message::Observe);
        }
        last = now;
        tokio::time::sleep(RELIST).await;
    }
}
