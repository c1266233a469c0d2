//! The store in etcd v3, for more than one server.
//!
//! ```text
//! get, range, export ─► endpoints (one in use, the next takes over) ─► etcd
//! write ─► compare-and-swap, sent again when its answer is lost ─► endpoints
//! watch ─► one endpoint, until it is given up
//! ```

// What connections fail for, in words.
mod reason;
// Why none answers.
mod no_quorum;
// Errors.
mod error;
// Endpoints, certificates, user, prefix.
mod options;
// Keys and revisions, translated.
mod keyspace;
// Whether one that answers has to be searched.
mod search_state;
// Which endpoint is used, and failover.
mod endpoints;
// Finds one that answers.
mod search;
// Requests to it.
mod attempt;
// How far the watch is, for those who wait.
mod progress;
// Ends creations that may still be under way.
mod session;
// What requests and tasks share.
mod shared;
// Reads in pages.
mod pages;
// Compare-and-swap, also when an answer is lost.
mod write;
// Watches.
mod watch;
// Bookmarks, for readers that wait for revisions of others.
mod bookmark;
// Members, sizes, alarms.
mod status;
// Which members there are: for whoever runs them.
mod membership;
// Defragmentation, and space after an alarm.
mod defragment;
// Compaction and periodic checks.
mod maintenance;
// Fills an empty etcd.
mod load;
#[cfg(test)]
mod tests;

pub use error::EtcdError;
pub(crate) use load::{load, remove};
pub use membership::{ClusterMember, Membership};
pub use no_quorum::NoQuorum;
pub use options::EtcdOptions;

use super::{
    Durability, Export, HistoryStart, KeyValue, Revision, Store, StoreError, StoreStatus, Unhealthy, Watch,
    Write,
};
use crate::load::error::LoadError;
use async_trait::async_trait;
use coracle_cli::supervise::Supervisor;
use coracle_trace::{Stage, tracked};
use futures::{StreamExt, TryStreamExt, stream};
use keyspace::LOADING;
use pages::Pages;
use shared::Shared;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// How long a health check waits: less than those who ask for it, so that they learn the reason.
const HEALTH: Duration = Duration::from_millis(1800);

/// A client of etcd, which also compacts and defragments it; with several servers one of them does.
pub struct Etcd {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

impl Etcd {
    /// Connects. Fails when none of the endpoints answers, or when keys were loaded into it and not all of them. The
    /// supervisor keeps its tasks running.
    pub async fn connect(options: &EtcdOptions, supervisor: &Supervisor) -> Result<Self, StoreError> {
        let shared = Shared::open(options).await?;
        if shared.find(LOADING).await?.is_some() {
            return Err(LoadError::Unfinished(options.name()).into());
        }
        let shared = Arc::new(shared);
        let (maintained, kept_up) = (shared.clone(), shared.clone());
        let tasks = [
            supervisor.spawn("etcd maintenance", move || maintenance::maintain(maintained.clone())),
            supervisor.spawn("etcd progress", move || bookmark::keep_up(kept_up.clone())),
        ];
        Ok(Self { shared, tasks })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Store for Etcd {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        self.shared.get(key).await
    }

    async fn range(
        &self,
        prefix: &str,
        at: Option<Revision>,
    ) -> Result<(Vec<KeyValue>, Revision), StoreError> {
        let (mut pages, mut found) = (Pages::new(&self.shared, prefix, at), Vec::new());
        while let Some(page) = pages.next().await? {
            found.extend(page);
        }
        Ok((found, pages.at))
    }

    async fn export(&self, prefix: &str) -> Result<Export, StoreError> {
        let mut pages = Pages::new(&self.shared, prefix, None);
        let first = pages.next().await?.unwrap_or_default();
        let revision = pages.at;
        let rest = stream::try_unfold(pages, |mut pages| async move {
            Ok::<_, StoreError>(pages.next().await?.map(|page| (page, pages)))
        });
        let all = stream::once(std::future::ready(Ok(first))).chain(rest);
        let keys = all.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten().boxed();
        Ok(Export { revision, keys })
    }

    async fn write(&self, write: Write) -> Result<Revision, StoreError> {
        match write.durability {
            Durability::Sync => tracked(Stage::StoreSync, "etcd", Box::pin(self.shared.write(write))).await,
            // Leases and Events are not recorded, and a stage would keep their request.
            Durability::Lazy => self.shared.write(write).await,
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, StoreError> {
        watch::watch(&self.shared, prefix, after).await
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        let newest = self.shared.newest().await?;
        self.shared.progress.asked(newest);
        Ok(newest)
    }

    async fn history_start(&self, changes: u64) -> Result<HistoryStart, StoreError> {
        let newest = self.shared.newest().await?;
        let from = newest.saturating_sub(changes).max(self.shared.keys.offset + 1);
        Ok(HistoryStart { from, lost: 0 })
    }

    async fn compact(&self, upto: Revision) -> Result<(), StoreError> {
        self.shared.compact(upto, false).await
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn health(&self) -> Result<(), Unhealthy> {
        let newest = tokio::time::timeout(HEALTH, self.shared.newest()).await;
        if let Err(error) = newest.unwrap_or(Err(EtcdError::Timeout(HEALTH).into())) {
            let endpoints = self.shared.endpoints.avoided();
            let reasons: Vec<_> = endpoints.iter().map(|(url, why)| format!("{url}: {why}")).collect();
            let detail = if reasons.is_empty() { error.to_string() } else { reasons.join("; ") };
            return Err(Unhealthy::Unreachable { detail });
        }
        self.shared.alarm().map_or(Ok(()), Err)
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        self.shared.status().await
    }
}
