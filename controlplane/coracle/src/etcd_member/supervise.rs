//! What goes on while a member runs: a process that dies is started again, new members are noted, certificates are renewed.

use super::certificates::Certificates;
use super::command::Launch;
use super::process::{Process, Spawner};
use super::state::State;
use super::{MemberConfig, MemberError, space};
use coracle_cli::causes;
use coracle_cli::supervise::RestartBackoff;
use coracle_store::etcd::Membership;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const BACKOFF: RestartBackoff = RestartBackoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(10),
    healthy: Duration::from_secs(60),
    most: 5,
};
/// How often members and certificates are looked at.
const UPKEEP: Duration = Duration::from_secs(20);
/// How often a process that was started again is asked.
const ASK: Duration = Duration::from_millis(500);
/// The first time is soon: a member may have joined just before.
const FIRST_UPKEEP: Duration = Duration::from_secs(2);

/// Why the process does not run, for health checks. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Option<Arc<MemberError>>>>);

impl Health {
    /// Fails with why the process does not run.
    pub fn check(&self) -> Result<(), Arc<MemberError>> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }

    fn set(&self, problem: Option<Arc<MemberError>>) {
        *self.0.lock() = problem;
    }
}

/// What restarts and upkeep need.
pub(super) struct Parts {
    config: MemberConfig,
    state: Mutex<State>,
    launch: Launch,
    spawner: Spawner,
    health: Health,
}

impl Parts {
    pub(super) fn new(
        config: MemberConfig,
        state: State,
        launch: Launch,
        spawner: Spawner,
        health: Health,
    ) -> Self {
        Self { config, state: Mutex::new(state), launch, spawner, health }
    }

    /// Whether the other members do not know this one any more.
    async fn is_removed(&self) -> bool {
        let (id, others) = {
            let state = self.state.lock();
            (state.id, state.others(&Certificates::of(&self.config.pki_dir)))
        };
        match (id, others) {
            (Some(id), Ok(Some(others))) => is_removed(&others, id).await,
            _ => false,
        }
    }

    /// Renews certificates, and notes who the other members are.
    async fn upkeep(&self) -> Result<(), MemberError> {
        let certificates = Certificates::ensure(&self.config)?;
        let options = self.state.lock().options(&certificates);
        let all = Membership::new(&options)?.list().await?;
        let changed = {
            let mut state = self.state.lock();
            let known = state.clone();
            // One that was removed remembers where the cluster is.
            let is_member = all.iter().any(|member| Some(member.id) == state.id);
            (is_member && state.learn(&all) && known != *state).then(|| state.clone())
        };
        changed.map_or(Ok(()), |state| state.save(&self.config.data_dir))
    }

    /// Starts the process again after failures, until it runs. `None` when the member was removed.
    async fn restart(&self, failures: &mut u32) -> Option<Process> {
        loop {
            tokio::time::sleep(BACKOFF.delay(*failures)).await;
            if self.is_removed().await {
                let error = MemberError::removed(&self.state.lock().name, &self.config.data_dir);
                tracing::error!(error = %causes::chain(&error), "etcd is not started again");
                self.health.set(Some(Arc::new(error)));
                return None;
            }
            let started = match space::check(&self.config.data_dir.join("etcd")) {
                Ok(()) => Process::spawn(&self.spawner, self.launch.command()).await,
                Err(full) => Err(full),
            };
            match started {
                Ok(process) => return Some(process),
                Err(error) => {
                    *failures += 1;
                    tracing::error!(error = %causes::chain(&error), failures, "etcd cannot be started, will retry");
                    self.health.set(Some(Arc::new(error)));
                }
            }
        }
    }

    /// Reports a process that was started again as well when it answers. Never returns.
    async fn follow_recovery(&self) {
        while self.health.check().is_err() {
            let (url, options) = {
                let state = self.state.lock();
                (state.client_url.clone(), state.options(&Certificates::of(&self.config.pki_dir)))
            };
            if let Ok(cluster) = Membership::new(&options)
                && cluster.status(&url).await.problem.is_none()
            {
                tracing::info!(url, "etcd answers again");
                self.health.set(None);
                break;
            }
            tokio::time::sleep(ASK).await;
        }
        std::future::pending().await
    }

    /// Keeps the process running until `stop`, then ends it.
    async fn keep(&self, mut process: Process, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = tokio::select! {
                error = process.wait() => error,
                () = stop.cancelled() => return process.stop().await,
                () = self.follow_recovery() => return,
            };
            failures = if begun.elapsed() >= BACKOFF.healthy { 1 } else { failures + 1 };
            tracing::error!(error = %causes::chain(&error), failures, "etcd has ended, will restart");
            self.health.set(Some(Arc::new(error)));
            let restarted = tokio::select! {
                restarted = self.restart(&mut failures) => restarted,
                () = stop.cancelled() => return,
            };
            match restarted {
                Some(next) => process = next,
                None => return stop.cancelled().await,
            }
        }
    }
}

/// Whether the members that answer do not know the one with this identifier.
pub(super) async fn is_removed(others: &Membership, id: u64) -> bool {
    others.list().await.is_ok_and(|all| all.iter().all(|member| member.id != id))
}

/// The tasks of a running member; they end, and the process with them, when this is dropped.
pub(super) struct Supervision {
    stop: CancellationToken,
    keeping: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

impl Supervision {
    pub(super) fn start(process: Process, parts: Arc<Parts>) -> Self {
        let stop = CancellationToken::new();
        let upkeep = tokio::spawn({
            let parts = parts.clone();
            async move {
                let mut pause = FIRST_UPKEEP;
                loop {
                    tokio::time::sleep(pause).await;
                    pause = UPKEEP;
                    if let Err(error) = parts.upkeep().await {
                        tracing::debug!(error = %causes::chain(&error), "upkeep of the etcd member failed, will retry");
                    }
                }
            }
        });
        let stopped = stop.clone();
        let keeping = tokio::spawn(async move { parts.keep(process, stopped).await });
        Self { stop, keeping, upkeep }
    }

    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        self.upkeep.abort();
        let _ = (&mut self.keeping).await;
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        self.keeping.abort();
        self.upkeep.abort();
    }
}
