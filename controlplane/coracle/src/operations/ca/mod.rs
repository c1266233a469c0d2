//! Rotation of the cluster CA under a running server. A step changes the shared files; on a shared store the sealed keys are written
//! first, and the other servers follow them. Everything that uses the CA follows [`Pki::authorities`].

// Who uses which CA.
mod users;

pub use users::NodeCa;

use crate::join::keys::KEYS;
use coracle_apiserver::objects::{Objects, store_failed};
use coracle_cli::causes;
use coracle_pki::cluster_keys::{
    ClusterKeys, ClusterKeysError, RotationError, SealedError, SealingKey, Stage, TrustedCa,
};
use coracle_pki::{Pki, PkiError};
use coracle_proto::status::ApiError;
use coracle_store::{Durability, Store, StoreError, WatchItem, Write};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Between two attempts to follow the sealed keys.
const RETRY: Duration = Duration::from_secs(1);
/// Nodes that a refusal names.
const NAMED: usize = 20;

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A new CA is made and trusted.
    Prepare,
    /// The new one signs.
    Switch,
    /// The old one is not trusted any more.
    Finish,
    /// The new one is not trusted any more, before it has signed.
    Cancel,
}

/// Why a step is not made.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// It is not the next one, or keys cannot be made or written.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// Files.
    #[error(transparent)]
    Keys(#[from] ClusterKeysError),
    /// Files.
    #[error(transparent)]
    Pki(#[from] PkiError),
    /// Certificates of the old CA are in use.
    #[error("the old CA is still in use: {0}")]
    InUse(String),
    /// The server cannot write the sealed keys.
    #[error(
        "this server does not have the sealing key of the cluster: use a server that has pki/sealing.key"
    )]
    NoSealingKey,
    /// The store has no sealed keys.
    #[error("{KEYS} is not in the store")]
    NotStored,
    /// Another server has changed them at the same time.
    #[error("the keys of the cluster are being changed by another server: look at the status and try again")]
    Changed,
    /// The sealed keys.
    #[error(transparent)]
    Sealed(#[from] SealedError),
    /// The store.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// The thread that reads or writes files has panicked.
    #[error(transparent)]
    Thread(#[from] tokio::task::JoinError),
}

impl From<StoreError> for CaError {
    fn from(error: StoreError) -> Self {
        Self::Store(Box::new(error))
    }
}

impl From<CaError> for ApiError {
    fn from(error: CaError) -> Self {
        match error {
            CaError::Rotation(RotationError::Stage(_))
            | CaError::InUse(_)
            | CaError::NoSealingKey
            | CaError::Changed => Self::new(409, "Conflict", error.to_string()),
            CaError::Store(error) => store_failed(*error),
            error => Self::internal(causes::chain(&error)),
        }
    }
}

/// How far a rotation is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CaStatus {
    /// `CaStatus`.
    pub kind: String,
    /// `coracle/v1`.
    pub api_version: String,
    /// The stage.
    pub stage: Stage,
    /// The CAs that this server trusts; the one that signs is the first.
    pub authorities: Vec<TrustedCa>,
    /// The CAs that nodes trust and use.
    pub nodes: Vec<NodeCa>,
    /// Why the rotation cannot be finished yet.
    pub waiting_for: Vec<String>,
}

/// The body of a request for a step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepRequest {
    /// Whether to finish although nodes use the old CA.
    pub force: bool,
}

/// Rotates the CA of this server and of its cluster.
pub struct CaRotation {
    /// The keys of this server.
    pub pki: Arc<Pki>,
    /// Nodes.
    pub objects: Arc<Objects>,
    /// The store of the sealed keys, if several servers share it, and what opens them.
    pub shared: Option<(Arc<dyn Store>, Option<SealingKey>)>,
    /// One step at a time.
    pub running: tokio::sync::Mutex<()>,
}

impl CaRotation {
    /// How far the rotation is on this server.
    pub async fn status(&self) -> Result<CaStatus, CaError> {
        let keys = self.collect().await?;
        let (stage, authorities) = (keys.stage(), keys.trusted_cas());
        let nodes = users::nodes(&self.objects);
        let waiting_for = match (stage, authorities.first()) {
            (Stage::Switched, Some(signer)) => users::old(&nodes, &signer.hash),
            _ => Vec::new(),
        };
        let (kind, api_version) = ("CaStatus".to_owned(), "coracle/v1".to_owned());
        Ok(CaStatus { kind, api_version, stage, authorities, nodes, waiting_for })
    }

    /// Makes a step, for all servers.
    pub async fn step(&self, step: Step, request: &StepRequest) -> Result<CaStatus, CaError> {
        let _one = self.running.lock().await;
        let own = self.collect().await?;
        let (base, stored) = match &self.shared {
            None => (own, None),
            Some((store, sealing)) => {
                let sealing = sealing.as_ref().ok_or(CaError::NoSealingKey)?;
                let stored = store.get(KEYS).await?.ok_or(CaError::NotStored)?;
                let found = sealing.open(&stored.value)?;
                if (found.stage(), found.ca_hashes()) != (own.stage(), own.ca_hashes()) {
                    return Err(CaError::Changed);
                }
                (found, Some((store, sealing, stored.modified)))
            }
        };
        let next = match step {
            Step::Prepare => base.prepare(&format!("coracle-ca-{}", jiff::Timestamp::now().as_second())),
            Step::Switch => base.switch(),
            Step::Finish => base.finish(),
            Step::Cancel => base.cancel(),
        }?;
        if step == Step::Finish && !request.force {
            let old = users::old(&users::nodes(&self.objects), &next.ca_hash());
            if !old.is_empty() {
                let more = old.len().saturating_sub(NAMED);
                let named = old.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
                let named = if more == 0 { named } else { format!("{named}; and {more} more") };
                return Err(CaError::InUse(named));
            }
        }
        if let Some((store, sealing, expect)) = stored {
            let value = Some(sealing.seal(&next)?.into());
            let (key, durability) = (KEYS.to_owned(), Durability::Sync);
            match store.write(Write { key, expect, value, durability, fence: None }).await {
                Err(StoreError::Conflict(_)) => return Err(CaError::Changed),
                written => written?,
            };
        }
        tracing::info!(?step, cas = ?next.ca_hashes(), "the CA of the cluster is rotated");
        self.adopt(next).await?;
        self.status().await
    }

    /// Follows the sealed keys in a shared store: a CA that another server has rotated is taken over. Does not return.
    pub async fn follow(self: Arc<Self>) {
        let Some((store, Some(sealing))) = &self.shared else { return std::future::pending().await };
        loop {
            if let Err(error) = self.watch(&**store, sealing).await {
                tracing::warn!(error = %causes::chain(&error), "the sealed keys are not followed, will retry");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Takes over what is stored, and every change of it until the watch ends.
    async fn watch(&self, store: &dyn Store, sealing: &SealingKey) -> Result<(), CaError> {
        // Not from the revision of the keys: they are old, and it may be compacted.
        let after = store.revision().await?;
        if let Some(stored) = store.get(KEYS).await? {
            self.take_over(&sealing.open(&stored.value)?).await?;
        }
        let mut changes = store.watch(KEYS, after).await?;
        while let Some(change) = changes.next().await {
            if let WatchItem::Change(change) = change?
                && change.key == KEYS
                && let Some(value) = change.value
            {
                self.take_over(&sealing.open(&value)?).await?;
            }
        }
        Ok(())
    }

    async fn take_over(&self, found: &ClusterKeys) -> Result<(), CaError> {
        let _one = self.running.lock().await;
        if found.has_later_ca(&self.collect().await?) {
            tracing::info!(cas = ?found.ca_hashes(), "the CA of the cluster was rotated by another server");
            self.adopt(found.clone()).await?;
        }
        Ok(())
    }

    /// Writes the files, and lets everybody in this process know.
    async fn adopt(&self, keys: ClusterKeys) -> Result<(), CaError> {
        let pki = self.pki.clone();
        let written = tokio::task::spawn_blocking(move || {
            keys.write_ca(&pki.dir)?;
            Ok::<_, CaError>(pki.reload_authority()?)
        });
        written.await?.map(drop)
    }

    async fn collect(&self) -> Result<ClusterKeys, CaError> {
        let dir = self.pki.dir.clone();
        Ok(tokio::task::spawn_blocking(move || ClusterKeys::collect(&dir)).await??)
    }
}
