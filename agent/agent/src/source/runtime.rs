//! News from the runtime, given to the workers of the pods they are about.

use coracle_proto::cri;
use futures::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::pod::observed::label;
use crate::pod::table::Message;
use coracle_engine::runtime::RuntimeError;

const RETRY: Duration = Duration::from_secs(1);
/// A runtime without events is asked this often, as the kubelet does.
const RELIST: Duration = Duration::from_secs(1);

/// Passes events on, for ever. A runtime that has none is listed instead.
pub async fn follow(context: Arc<Context>) {
    loop {
        match context.runtime.events().await {
            Ok(mut events) => {
                // What happened before the stream began was not told.
                nudge_all(&context);
                while let Some(event) = events.next().await {
                    if let Some(uid) = uid(&event) {
                        context.pods.send(&uid, Message::Observe);
                    }
                }
                tracing::info!("runtime's events ended, subscribing again");
            }
            Err(RuntimeError::Unimplemented(_)) => {
                tracing::info!("runtime has no events: listing containers every second");
                relist(&context).await;
            }
            Err(error) => tracing::warn!(%error, "runtime's events are not followed, will retry"),
        }
        tokio::time::sleep(RETRY).await;
        nudge_all(&context);
    }
}

fn nudge_all(context: &Context) {
    for uid in context.pods.uids() {
        context.pods.send(&uid, Message::Observe);
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
async fn relist(context: &Context) {
    let mut last: HashMap<String, (String, i32)> = HashMap::new();
    loop {
        let (Ok(containers), Ok(sandboxes)) =
            (context.runtime.list_containers(None).await, context.runtime.list_pod_sandboxes(None).await)
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
            context.pods.send(uid, Message::Observe);
        }
        last = now;
        tokio::time::sleep(RELIST).await;
    }
}
