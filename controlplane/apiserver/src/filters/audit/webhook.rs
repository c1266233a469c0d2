//! Sends audit events to a webhook, in batches, as `audit.k8s.io/v1` lists.

use super::sink::BACKLOG;
use crate::https_client::HttpsClient;
use coracle_cli::causes;
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How events are put into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Events that wait; more are lost.
    pub buffer: usize,
    /// Events of a batch.
    pub size: usize,
    /// How long the first of them waits for more.
    pub wait: Duration,
}

impl Default for Batches {
    fn default() -> Self {
        Self { buffer: BACKLOG, size: 400, wait: Duration::from_secs(1) }
    }
}

/// How often a batch is tried, the pause doubling from half a second.
const TRIES: u32 = 6;

/// Sends what comes until nobody sends any more. A batch that cannot be delivered is dropped with a line in the log: the
/// cluster does not stand still because its auditor does.
pub async fn run(remote: &HttpsClient, batches: Batches, events: &mut mpsc::Receiver<Arc<Value>>) {
    while let Some(batch) = next(batches, events).await {
        deliver(remote, &batch).await;
    }
}

/// The next batch; none when nobody sends any more.
async fn next(batches: Batches, events: &mut mpsc::Receiver<Arc<Value>>) -> Option<Vec<Arc<Value>>> {
    let mut batch = vec![events.recv().await?];
    let end = tokio::time::Instant::now() + batches.wait;
    while batch.len() < batches.size {
        match tokio::time::timeout_at(end, events.recv()).await {
            Ok(Some(event)) => batch.push(event),
            _ => break,
        }
    }
    Some(batch)
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_full_or_has_waited() {
        let batches = Batches { size: 2, wait: Duration::from_secs(30), ..Batches::default() };
        let (sender, mut events) = mpsc::channel(8);
        for number in 0..3 {
            sender.send(Arc::new(json!(number))).await.unwrap();
        }
        let begin = tokio::time::Instant::now();
        assert_eq!(next(batches, &mut events).await.unwrap().len(), 2);
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(next(batches, &mut events).await.unwrap().len(), 1);
        assert!(begin.elapsed() >= Duration::from_secs(30));
        drop(sender);
        assert!(next(batches, &mut events).await.is_none());
    }
}
