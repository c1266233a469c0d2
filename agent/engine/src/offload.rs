//! Runs work outside of the calling task.

use crate::error::internal;
use crate::runtime::Result;

/// Runs blocking work on the blocking thread pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(internal("engine"))?
}

/// Runs an operation in a task of its own, so that it completes even if the caller is cancelled.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    operation: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(operation).await.map_err(internal("engine"))?
}
