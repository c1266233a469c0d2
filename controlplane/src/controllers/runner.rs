//! The loop around a controller: take a key, reconcile, come back when it says or when it failed.

use super::informer::Name;
use super::queue::Queue;
use super::time;
use async_trait::async_trait;
use coracle_proto::status::ApiError;
use jiff::Timestamp;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Why a turn failed; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An object is not what its kind says.
    #[error("unreadable object")]
    Unreadable(#[from] serde_json::Error),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Whether someone else was faster: nothing to worry about.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(error) if error.is_conflict() || error.is_not_found())
    }
}

/// When to come back to a key although nothing changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Again {
    /// Never.
    #[default]
    No,
    /// At this time.
    At(Timestamp),
    /// Right away: there is more to do.
    Now,
}

impl From<Option<Timestamp>> for Again {
    fn from(at: Option<Timestamp>) -> Self {
        at.map_or(Self::No, Self::At)
    }
}

/// A control loop's body.
#[async_trait]
pub trait Controller: Send + Sync + 'static {
    /// Its name in logs.
    fn name(&self) -> &'static str;

    /// Brings one object closer to what is wanted. Never called for the same name twice at a time; may be called any
    /// time, also when nothing is to be done.
    async fn reconcile(&self, name: &Name, now: Timestamp) -> Result<Again, Failure>;
}

/// Starts workers for a controller.
pub fn start(
    controller: Arc<dyn Controller>,
    queue: &Arc<Queue<Name>>,
    workers: usize,
    tasks: &mut JoinSet<()>,
) {
    for _ in 0..workers {
        tasks.spawn(work(controller.clone(), queue.clone()));
    }
}

async fn work(controller: Arc<dyn Controller>, queue: Arc<Queue<Name>>) {
    loop {
        let name = queue.take().await;
        match controller.reconcile(&name, Timestamp::now()).await {
            Ok(again) => {
                queue.done(&name);
                match again {
                    Again::No => {}
                    Again::Now => queue.add(name),
                    Again::At(at) => queue.add_after(name, time::until(at, Timestamp::now())),
                }
            }
            Err(error) => {
                let delay = queue.failed(&name);
                let controller = controller.name();
                if error.is_conflict() {
                    tracing::debug!(controller, %name, %error, "someone was faster, trying again");
                } else {
                    tracing::warn!(controller, %name, error = &error as &dyn std::error::Error, ?delay, "trying again");
                }
            }
        }
    }
}
