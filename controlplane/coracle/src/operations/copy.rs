//! Copies the store of a running server to another one. Reads go on throughout; writes are paused for the last corrections, and
//! stay paused when the copy is complete, until the server is restarted on the new store or told to take writes again.

use crate::datastore_args::DatastoreArgs;
use coracle_apiserver::objects::Objects;
use coracle_cli::causes;
use coracle_cli::supervise::Supervisor;
use coracle_controllers::servers::lease::{self, HOLDS, Identity};
use coracle_fields::coordination::v1::Lease;
use coracle_kinds::object::Object;
use coracle_store::pause::PausableStore;
use coracle_store::{Datastore, DatastoreError, Opening, Revision, StoreError, copy};
use coracle_trace::Recorder;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often differences are looked for while writes are paused; nothing changes then.
const ROUNDS: u32 = 3;
/// Another server whose Lease was renewed within this time is running.
const RUNNING: Duration = Duration::from_secs(60);

/// The store that is copied to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Target {
    /// The data directory of an embedded store.
    pub data_dir: Option<PathBuf>,
    /// The store, as options of the server name it.
    pub store: DatastoreArgs,
}

/// Why a store cannot be a target.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The options do not name a store.
    #[error(transparent)]
    Datastore(#[from] DatastoreError),
    /// No directory for an embedded store.
    #[error("an embedded store needs a directory: embedded:DIR")]
    NoDirectory,
    /// Another server has to run it.
    #[error("--datastore etcd is run by a server: start one, and name its endpoints, https://host:port")]
    Managed,
}

impl Target {
    /// The store, and the directory of an embedded one.
    pub fn resolve(&self) -> Result<(Datastore, PathBuf), TargetError> {
        let datastore = self.store.clone().resolve()?;
        match (&datastore, &self.data_dir) {
            (Datastore::Embedded, None) => Err(TargetError::NoDirectory),
            (Datastore::ManagedEtcd, _) => Err(TargetError::Managed),
            (_, dir) => Ok((datastore, dir.clone().unwrap_or_default())),
        }
    }
}

/// Why a copy is not begun.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is one.
    #[error("the store is being copied")]
    Running,
    /// The target cannot be one.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Others write to the store.
    #[error("{0} also writes to this store, and its writes cannot be paused from here: stop it first")]
    OtherServer(String),
}

/// Why a copy failed.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("writes that have begun did not end in time, so that writes could not be paused")]
    Busy,
    #[error("the stores still differ after {ROUNDS} comparisons: something else writes to the target")]
    Different,
    #[error("{0} revisions were written during the copy, more than the new store has skipped: copy again")]
    TooManyRevisions(u64),
    #[error("{0} also writes to this store, and its writes cannot be paused from here: stop it first")]
    OtherServer(String),
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// None was begun.
    #[default]
    None,
    /// Keys are copied, and writes go on.
    Copying,
    /// Writes are paused for the last corrections.
    Paused,
    /// The new store is complete, and writes stay paused.
    Complete,
    /// It failed, and writes go on.
    Failed,
}

/// The state of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CopyState {
    /// How far it is.
    pub phase: Phase,
    /// The store that is copied to.
    pub target: String,
    /// Keys of the new store.
    pub keys: u64,
    /// Keys that changed during the copy.
    pub corrected: u64,
    /// The last revision of the old store.
    pub revision: u64,
    /// How long writes were paused until the new store was complete, in milliseconds.
    pub paused_milliseconds: u64,
    /// Why it failed.
    pub error: Option<String>,
}

/// Copies the store.
pub struct CopyJob {
    store: Arc<PausableStore>,
    objects: Arc<Objects>,
    own: String,
    state: Mutex<CopyState>,
}

impl CopyJob {
    /// Of a server by the name of its identity Lease.
    pub fn new(store: Arc<PausableStore>, objects: Arc<Objects>, own: String) -> Self {
        Self { store, objects, own, state: Mutex::default() }
    }

    /// The state of the last copy.
    pub fn state(&self) -> CopyState {
        self.state.lock().clone()
    }

    /// Begins a copy.
    pub fn start(self: &Arc<Self>, target: Target) -> Result<(), StartError> {
        let (datastore, data_dir) = target.resolve()?;
        if let Some(other) = self.other_server() {
            return Err(StartError::OtherServer(other));
        }
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Copying | Phase::Paused | Phase::Complete) {
            return Err(StartError::Running);
        }
        let name = match &datastore {
            Datastore::Embedded => format!("embedded:{}", data_dir.display()),
            other => other.to_string(),
        };
        *state = CopyState { phase: Phase::Copying, target: name, ..CopyState::default() };
        let job = self.clone();
        tokio::spawn(async move {
            if let Err(error) = job.run(&datastore, data_dir).await {
                job.store.resume().await;
                let error = causes::chain(&error);
                tracing::error!(error, "the store was not copied");
                let mut state = job.state.lock();
                state.phase = Phase::Failed;
                state.error = Some(error);
            }
        });
        Ok(())
    }

    /// Takes writes again. False while a copy is not complete.
    pub async fn resume(&self) -> bool {
        {
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Copying | Phase::Paused) {
                return false;
            }
            state.phase = Phase::None;
        }
        self.store.resume().await;
        tracing::info!("writes to the store go on");
        true
    }

    async fn run(&self, datastore: &Datastore, data_dir: PathBuf) -> Result<(), CopyError> {
        let supervisor = Supervisor::default();
        let opening =
            Opening { datastore, data_dir: &data_dir, supervisor: &supervisor, recorder: Recorder::OFF };
        tracing::info!(target = %self.state().target, "copying the store");
        let others = Others { before: revisions(&self.others()), looked: Instant::now() };
        let begun = copy::load(&**self.store.inner(), &opening, true).await?;
        let finished = self.finish(&opening, &begun, &others).await;
        if finished.is_err()
            && let Err(error) = copy::remove(&opening).await
        {
            let target = self.state().target;
            tracing::error!(error = %causes::chain(&error), "an outdated copy is left in {target}: remove it");
        }
        finished
    }

    /// Brings what was loaded up to date, and pauses writes.
    async fn finish(
        &self,
        opening: &Opening<'_>,
        begun: &copy::Begun,
        others: &Others,
    ) -> Result<(), CopyError> {
        let (source, target) = (self.store.inner().clone(), opening.open().await?);
        // Most of what changed meanwhile, so that the pause is short.
        let first = copy::correct(&*source, &*target).await?;
        self.check_others(others).await?;
        if !self.store.pause().await {
            return Err(CopyError::Busy);
        }
        let paused = Instant::now();
        self.state.lock().phase = Phase::Paused;
        let mut corrected = first.corrected;
        let mut same = None;
        for _ in 0..ROUNDS {
            let compared = copy::correct(&*source, &*target).await?;
            corrected += compared.corrected;
            if compared.corrected == 0 {
                same = Some(compared);
                break;
            }
        }
        let compared = same.ok_or(CopyError::Different)?;
        let revision = source.revision().await?;
        if revision > begun.limit {
            return Err(CopyError::TooManyRevisions(revision - begun.revision));
        }
        target.flush().await?;
        let mut state = self.state.lock();
        state.phase = Phase::Complete;
        state.keys = compared.keys;
        state.corrected = corrected;
        state.revision = revision;
        state.paused_milliseconds = paused.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        tracing::info!(keys = state.keys, corrected, revision, "the store is copied, and writes are paused");
        Ok(())
    }

    /// The Leases of the other servers, running or not.
    fn others(&self) -> Vec<Arc<Object>> {
        let kind = self.objects.registry.resource("coordination.k8s.io", "v1", "leases");
        let leases = kind.and_then(|kind| self.objects.cache(&kind).ok());
        let mut others = leases.map(|leases| lease::all(&leases)).unwrap_or_default();
        others.retain(|lease| lease.meta.name != self.own);
        others
    }

    /// Fails if a Lease was renewed since the first look, whatever time it says: the clocks of the servers may differ.
    async fn check_others(&self, others: &Others) -> Result<(), CopyError> {
        if !others.before.is_empty() {
            tokio::time::sleep(HOLDS.saturating_sub(others.looked.elapsed())).await;
        }
        match renewed(&others.before, &revisions(&self.others())) {
            Some(other) => Err(CopyError::OtherServer(other)),
            None => Ok(()),
        }
    }

    /// Another server that runs by the time in its Lease, by name.
    fn other_server(&self) -> Option<String> {
        let (others, now) = (self.others(), jiff::Timestamp::now());
        let mut running = others.iter().filter(|lease| {
            let doc = lease.doc();
            let spec = doc.view::<Lease>().spec();
            let renewed = spec.renew_time().text().parse::<jiff::Timestamp>();
            renewed.is_ok_and(|renewed| now.duration_since(renewed).unsigned_abs() < RUNNING)
        });
        let other = Identity::read(running.next()?)?;
        Some(match other.peer_address.is_empty() {
            true => other.name,
            false => other.peer_address,
        })
    }
}

/// The Leases of the other servers when the copy began.
struct Others {
    before: Vec<(String, Revision)>,
    looked: Instant,
}

/// Names and revisions of Leases.
fn revisions(leases: &[Arc<Object>]) -> Vec<(String, Revision)> {
    leases.iter().map(|lease| (lease.meta.name.clone(), lease.revision)).collect()
}

/// A Lease that has changed or come since. One that is gone is of a server that was stopped.
fn renewed(before: &[(String, Revision)], now: &[(String, Revision)]) -> Option<String> {
    now.iter().find(|lease| !before.contains(lease)).map(|(name, _)| name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_runs_whose_lease_changes() {
        let leases = |all: &[(&str, Revision)]| -> Vec<(String, Revision)> {
            all.iter().map(|(name, revision)| ((*name).to_owned(), *revision)).collect()
        };
        let before = leases(&[("a", 5), ("b", 6)]);
        for (now, running) in [
            (leases(&[("a", 5), ("b", 6)]), None),
            (leases(&[("a", 5)]), None),
            (leases(&[("a", 5), ("b", 9)]), Some("b")),
            (leases(&[("a", 5), ("b", 6), ("c", 7)]), Some("c")),
        ] {
            assert_eq!(renewed(&before, &now).as_deref(), running, "{now:?}");
        }
    }
}
