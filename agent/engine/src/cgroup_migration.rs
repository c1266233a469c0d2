//! Hides the latency of moving a process into a cgroup.
//!
//! Moving a process into a cgroup waits for an RCU grace period, 5 to 20 ms, unless another process was moved shortly
//! before. The OCI runtime moves one for every container. Any move starts the grace period, so `pause` is written to its
//! own cgroup again as soon as it runs and when the OCI runtime is started: the grace period then passes while the pod's
//! network is set up.

use std::sync::atomic::Ordering;

use super::{Engine, Sandbox};
use coracle_keeper::pidfd;
use coracle_proto::causes;

impl Engine {
    /// Starts the grace period that the next migration needs. Returns at once; errors only cost time.
    pub(super) fn prepare_migration(&self, sandbox: &Sandbox) {
        let (pid, cgroup) = {
            let record = sandbox.record.lock();
            (record.pid, record.cgroup.clone())
        };
        let pidfd = sandbox.held.lock().pidfd.clone();
        let (Some(pidfd), Ok(cgroup)) = (pidfd, self.inner.hierarchy.cgroup(&cgroup)) else { return };
        // A migration that is in progress serves all callers.
        if self.inner.moving.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        tokio::task::spawn_blocking(move || {
            // `pause` is alive, so the pid is not reused.
            if pidfd::kill(&pidfd, 0).is_ok()
                && let Err(error) = cgroup.admit(pid)
            {
                tracing::debug!(pid, error = causes::chain(&error), "cgroup migration not prepared");
            }
            engine.inner.moving.store(false, Ordering::Release);
        });
    }
}
