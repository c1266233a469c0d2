//! Runs work outside of the calling task. What it records stays below the caller's span.

use coracle_trace::{carried, carry};

use crate::error::internal;
use crate::runtime::Result;

/// Runs blocking work on the blocking thread pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(carry(work)).await.map_err(internal("engine"))?
}

/// Runs an operation in a task of its own, so that it completes even if the caller is cancelled.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    operation: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(carried(Box::pin(operation))).await.map_err(internal("engine"))?
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use coracle_trace::{Recorder, Scope, Stage, Uid, point, within};

    #[tokio::test]
    async fn what_runs_elsewhere_is_recorded_below_the_caller() {
        let recorder = Recorder::for_tests();
        let scope = Scope::of_pod(recorder, Uid(7), 1);
        let record = |name: &'static str| {
            point(Stage::Exit, name, 0);
            Ok(())
        };
        let work = async {
            blocking(move || record("thread")).await?;
            run_to_completion(async move { blocking(move || record("task")).await }).await
        };
        within(scope, work).await.unwrap();
        blocking(move || record("outside")).await.unwrap();
        let mut found = Vec::new();
        let read = recorder.read(&mut |record, _, text| found.push((record.parent, text.to_owned())));
        recorder.release(read);
        assert_eq!(found, [(scope.span, "thread".to_owned()), (scope.span, "task".to_owned())]);
    }
}
