//! Hides the latency of moving a process into a cgroup.
//!
//! Moving a process into a cgroup waits for an RCU grace period, 5 to 20 ms, unless another process was moved shortly
//! before. The OCI runtime moves one for every container. Any move starts the grace period, so `pause` is written to its
//! own cgroup again as soon as it runs and when the OCI runtime is started: the grace period then passes while the pod's
//! network is set up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::cgroup::Hierarchy;
use super::objects::Sandbox;
use coracle_cli::causes;
use coracle_keeper::pidfd;

/// Prepares migrations into cgroups.
pub(crate) struct Migration {
    hierarchy: Arc<Hierarchy>,
    /// A migration by `prepare` is in progress.
    moving: AtomicBool,
}

impl Migration {
    pub(crate) fn new(hierarchy: Arc<Hierarchy>) -> Self {
        Self { hierarchy, moving: AtomicBool::new(false) }
    }

    /// Starts the grace period that the next migration needs. Returns at once; errors only cost time.
    pub(crate) fn prepare(self: &Arc<Self>, sandbox: &Sandbox) {
        let (pid, cgroup) = {
            let record = sandbox.record.lock();
            (record.pid, record.cgroup.clone())
        };
        let pidfd = sandbox.held.lock().pidfd.clone();
        let (Some(pidfd), Ok(cgroup)) = (pidfd, self.hierarchy.cgroup(&cgroup)) else { return };
        // A migration that is in progress serves all callers.
        if self.moving.swap(true, Ordering::AcqRel) {
            return;
        }
        let migration = self.clone();
        tokio::task::spawn_blocking(move || {
            // `pause` is alive, so the pid is not reused.
            if pidfd::kill(&pidfd, 0).is_ok()
                && let Err(error) = cgroup.admit(pid)
            {
                tracing::debug!(pid, error = %causes::chain(&error), "cgroup migration not prepared");
            }
            migration.moving.store(false, Ordering::Release);
        });
    }
}
