//! Tasks of a worker: the job, refreshes of volumes, stops of containers. They report by message.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lifecycle::hooks::RunningHooks;
use crate::lifecycle::table::Message;

/// How long to wait for tasks of a failed worker.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The tasks that run for one pod.
pub(super) struct Tasks {
    /// Where they report to.
    pub(super) mailbox: UnboundedSender<Message>,
    /// The containers that the running job starts; `None` while no job runs.
    pub(super) job: Option<BTreeSet<String>>,
    /// Objects of the volumes that the job prepares have changed since it began.
    pub(super) refresh_after_job: bool,
    /// The postStart hooks that the job runs.
    pub(super) hooks: RunningHooks,
    /// Cancels the job.
    pub(super) cancel: CancellationToken,
    /// Containers that are being stopped, by id.
    pub(super) stopping: HashMap<String, AbortHandle>,
    /// Names of the containers of a terminating pod that are alive.
    pub(super) alive: watch::Sender<BTreeSet<String>>,
    /// Another worker of the pod must not start before these have ended.
    pub(super) tracker: TaskTracker,
}

impl Tasks {
    pub(super) fn new(mailbox: UnboundedSender<Message>) -> Self {
        let ended = mailbox.clone();
        let hooks = RunningHooks::new(move || {
            let _ = ended.send(Message::Verdicts);
        });
        Tasks {
            mailbox,
            job: None,
            refresh_after_job: false,
            hooks,
            cancel: CancellationToken::new(),
            stopping: HashMap::new(),
            alive: watch::Sender::default(),
            tracker: TaskTracker::new(),
        }
    }

    /// Ids of containers that are being stopped.
    pub(super) fn stopping_ids(&self) -> BTreeSet<String> {
        self.stopping.keys().cloned().collect()
    }

    /// Ends the waits of all stops; containers are stopped anew.
    pub(super) fn abort_stops(&mut self) {
        for (_, task) in self.stopping.drain() {
            task.abort();
        }
    }

    /// Ends all tasks, and waits for those that cannot be aborted.
    pub(super) async fn end(&mut self) {
        self.cancel.cancel();
        self.abort_stops();
        self.tracker.close();
        let _ = tokio::time::timeout(TIMEOUT, self.tracker.wait()).await;
    }
}
