//! Work on large bodies and lists, apart from everybody else's: it computes for long stretches, and a thread of the runtime
//! that computes lets the requests behind it wait.

use futures::future::Either;
use std::future::Future;
use tokio::runtime::{Handle, RuntimeFlavor};

/// From this size on. Usual objects are smaller; one of this size may consist of thousands of others.
const LARGE: usize = 16 * 1024;

/// Runs the work. When it is about so many bytes that it may take long, the other tasks of this thread move to another one.
/// Not an `async fn`: that would hold the work twice, once as its argument and once as what it awaits.
pub fn apart<T>(bytes: usize, work: impl Future<Output = T>) -> impl Future<Output = T> {
    if bytes < LARGE {
        return Either::Left(work);
    }
    let runtime = Handle::current();
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return Either::Left(work);
    }
    Either::Right(async move { tokio::task::block_in_place(|| runtime.block_on(work)) })
}

/// Runs work that waits for nothing and takes long, such as what the body of an answer computes when it is polled.
pub fn apart_now<T>(work: impl FnOnce() -> T) -> T {
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

    /// With one thread: whoever computes keeps the others waiting, unless it does so apart.
    #[test]
    fn large_work_leaves_the_thread_to_others() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let (said, heard) = std::sync::mpsc::channel();
            let work = tokio::spawn(apart(LARGE, async move {
                tokio::spawn(async move { said.send(()).unwrap() });
                // No await: the other task runs only if this thread is not the only one for tasks.
                heard.recv_timeout(Duration::from_secs(60))
            }));
            work.await.unwrap().unwrap();
        });
    }

    #[tokio::test]
    async fn small_work_and_small_runtimes_go_on_as_they_are() {
        assert_eq!(apart(0, async { 1 }).await, 1);
        assert_eq!(apart(LARGE, async { 2 }).await, 2);
        assert_eq!(apart_now(|| 3), 3);
    }
}
