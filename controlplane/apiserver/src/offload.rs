//! Runs CPU-bound work on large bodies and lists with `block_in_place`, so that it does not block other requests on the
//! same runtime thread.

use futures::future::Either;
use std::future::Future;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Minimum size in bytes of work that is offloaded. Typical objects are smaller.
const LARGE: usize = 16 * 1024;

/// Runs `work`, with `block_in_place` if it handles at least `LARGE` bytes. Not an `async fn`, which would store the
/// future twice: as its argument and as what it awaits.
pub fn offload<T>(bytes: usize, work: impl Future<Output = T>) -> impl Future<Output = T> {
    if bytes < LARGE {
        return Either::Left(work);
    }
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Either::Left(work);
    }
    Either::Right(async move { tokio::task::block_in_place(|| runtime.block_on(work)) })
}

/// Runs CPU-bound work that does not await, such as rendering in `poll_frame`.
pub fn offload_blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    /// With one worker thread, CPU-bound work blocks other tasks unless it is offloaded.
    #[test]
    fn large_work_leaves_the_thread_to_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (said, heard) = std::sync::mpsc::channel();
            let work = tokio::spawn(offload(LARGE, async move {
                tokio::spawn(async move { said.send(()).unwrap() });
                // No await: the other task runs only if this thread is not the only one for tasks.
                heard.recv_timeout(Duration::from_secs(60))
            }));
            work.await.unwrap().unwrap();
        });
    }

    #[tokio::test]
    async fn small_work_and_small_runtimes_go_on_as_they_are() {
        assert_eq!(offload(0, async { 1 }).await, 1);
        assert_eq!(offload(LARGE, async { 2 }).await, 2);
        assert_eq!(offload_blocking(|| 3), 3);
    }
}
