//! Moves of processes between cgroups, made ready for beforehand.
//!
//! The kernel lets a move into a cgroup sleep through a grace period of RCU, 5 to 20 ms, unless another move was made a
//! moment ago. The OCI runtime makes one for every container, in the middle of its work. Which process moves does not
//! matter: so `pause` is sent to the cgroup that it is in, as soon as it runs and again when the runtime is started, and
//! the grace period passes beside the pod's network and the runtime's own beginning.

use std::sync::atomic::Ordering;

use super::{Engine, Sandbox};
use coracle_keeper::pidfd;

impl Engine {
    /// Begins the grace period that the next move needs. Returns at once; a failure costs time and nothing else.
    pub(super) fn hasten_moves(&self, sandbox: &Sandbox) {
        let (pid, cgroup) = {
            let record = sandbox.record.lock();
            (record.pid, record.cgroup.clone())
        };
        let pidfd = sandbox.held.lock().pidfd.clone();
        let (Some(pidfd), Ok(cgroup)) = (pidfd, self.inner.hierarchy.cgroup(&cgroup)) else { return };
        // One that is under way does it for everybody.
        if self.inner.moving.swap(true, Ordering::AcqRel) {
            return;
        }
        let engine = self.clone();
        tokio::task::spawn_blocking(move || {
            // Lives, so the number is its own.
            if pidfd::kill(&pidfd, 0).is_ok()
                && let Err(error) = cgroup.admit(pid)
            {
                tracing::debug!(pid, %error, "the next container starts later");
            }
            engine.inner.moving.store(false, Ordering::Release);
        });
    }
}
