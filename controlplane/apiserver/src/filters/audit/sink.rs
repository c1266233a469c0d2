//! Where audit events go: queues, which the log and the webhook empty.

use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Events that wait to be written to a sink, unless options say so.
pub(super) const BACKLOG: usize = 4096;

/// A queue of events.
#[derive(Clone)]
pub(super) struct Sink {
    sender: mpsc::Sender<Arc<Value>>,
    /// Whether requests wait while the queue is full; events are lost otherwise.
    waits: bool,
    lost: Arc<AtomicU64>,
}

impl Sink {
    /// A sink for so many events that wait, and the end that is emptied.
    pub(super) fn new(waits: bool, backlog: usize) -> (Self, mpsc::Receiver<Arc<Value>>) {
        let (sender, receiver) = mpsc::channel(backlog);
        (Self { sender, waits, lost: Arc::default() }, receiver)
    }

    /// Takes an event, and waits if it must not be lost.
    pub(super) async fn take(&self, event: Arc<Value>) {
        match self.waits {
            true => drop(self.sender.send(event).await),
            false => self.take_now(event),
        }
    }

    /// Takes an event, or loses it.
    pub(super) fn take_now(&self, event: Arc<Value>) {
        let Err(TrySendError::Full(event)) = self.sender.try_send(event) else { return };
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // A line for each would fill the disk.
        if lost.is_power_of_two() {
            tracing::error!(lost, uri = %event["requestURI"], "audit events lost: a sink is behind");
        }
    }

    /// Takes an event if there is room, and gives it back if it has to wait.
    pub(super) fn try_take(&self, event: Arc<Value>) -> Result<(), Arc<Value>> {
        if !self.waits {
            self.take_now(event);
            return Ok(());
        }
        match self.sender.try_send(event) {
            Err(TrySendError::Full(event)) => Err(event),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_behind_loses_events_or_makes_requests_wait() {
        let event = || Arc::new(serde_json::json!({"requestURI": "/"}));
        for waits in [true, false] {
            let (sink, mut written) = Sink::new(waits, BACKLOG);
            for _ in 0..BACKLOG {
                sink.take(event()).await;
            }
            assert_eq!(sink.try_take(event()).is_err(), waits);
            let mut next = std::pin::pin!(sink.take(event()));
            let late = tokio::time::timeout(Duration::from_secs(60), &mut next).await.is_err();
            assert_eq!(late, waits);
            if waits {
                written.recv().await.unwrap();
                next.await;
            }
            let lost = sink.lost.load(Ordering::Relaxed);
            assert_eq!(lost, if waits { 0 } else { 2 });
        }
    }
}
