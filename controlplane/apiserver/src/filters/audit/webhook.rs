//! Sends audit events to a webhook, in batches, as `audit.k8s.io/v1` lists.

use crate::https_client::HttpsClient;
use coracle_cli::causes;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Events of a batch, and how long the first of them waits for more.
const BATCH: usize = 400;
const WAIT: Duration = Duration::from_secs(1);
/// How often a batch is tried, the pause doubling from half a second.
const TRIES: u32 = 6;

/// Sends what comes until nobody sends any more. A batch that cannot be delivered is dropped with a line in the log: the
/// cluster does not stand still because its auditor does.
pub async fn run(remote: &HttpsClient, events: &mut mpsc::Receiver<Arc<Value>>) {
    loop {
        let Some(first) = events.recv().await else { return };
        let mut batch = vec![first];
        let end = tokio::time::Instant::now() + WAIT;
        while batch.len() < BATCH {
            match tokio::time::timeout_at(end, events.recv()).await {
                Ok(Some(event)) => batch.push(event),
                _ => break,
            }
        }
        deliver(remote, &batch).await;
    }
}

async fn deliver(remote: &HttpsClient, batch: &[Arc<Value>]) {
    let items: Vec<&Value> = batch.iter().map(AsRef::as_ref).collect();
    let body = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
    for attempt in 0..TRIES {
        match remote.send(Method::POST, "", Some(&body)).await {
            Ok((200..300, _)) => return,
            Ok((code, _)) => tracing::warn!(code, "audit webhook"),
            Err(error) => tracing::warn!(error = %causes::chain(&error), "audit webhook"),
        }
        tokio::time::sleep(Duration::from_millis(500 << attempt)).await;
    }
    tracing::error!(events = batch.len(), "audit events lost: the webhook does not take them");
}
