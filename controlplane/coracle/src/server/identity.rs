//! The keys of this server and those of the cluster: on a shared store they have to be the same.

use crate::access_control;
use crate::config::Config;
use crate::join::claim::{ClaimError, Claimer};
use crate::operations::encryption::Encryption;
use crate::security::Security;
use anyhow::Context as _;
use coracle_pki::cluster_keys::{ENCRYPTION, SealingKey};
use coracle_store::Store;
use coracle_store::encryption;
use std::path::Path;
use std::sync::Arc;

/// Fails if this server has no keys yet and the store has those of a cluster.
pub(super) async fn check_new(store: &dyn Store, dir: &Path) -> Result<(), ClaimError> {
    Claimer { store, dir, encryption: None }.check_new().await
}

/// What the server works on once its keys are those of the cluster.
pub(super) struct Established {
    pub(super) store: Arc<dyn Store>,
    /// Encryption at rest, if there is one.
    pub(super) encryption: Option<Arc<Encryption>>,
    /// Seals the keys of the cluster in a shared store.
    pub(super) sealing: Option<SealingKey>,
}

/// Wraps the store in its encryption. A shared store gets the keys of the cluster, sealed, or is refused if it has those of
/// another one. A server that joined has the configuration of the encryption beside its keys.
pub(super) async fn establish(
    config: &Config,
    store: Arc<dyn Store>,
    dir: &Path,
) -> anyhow::Result<Established> {
    let mut security = config.security.clone();
    if !config.datastore.is_shared() {
        let (store, encryption) = encrypted(&security, store).await?;
        return Ok(Established { store, encryption, sealing: None });
    }
    let encryption = security.encryption_provider_config.as_deref().map(keys_of).transpose()?;
    let claimer = Claimer { store: &*store, dir, encryption };
    claimer.check().await?;
    let beside = dir.join(ENCRYPTION);
    if security.encryption_provider_config.is_none() && beside.exists() {
        security.encryption_provider_config = Some(beside);
    }
    // What cannot be decrypted here is not to spread to servers that join.
    let (encrypted, encryption) = encrypted(&security, store.clone()).await?;
    Ok(Established { store: encrypted, encryption, sealing: claimer.publish().await? })
}

async fn encrypted(
    security: &Security,
    store: Arc<dyn Store>,
) -> anyhow::Result<(Arc<dyn Store>, Option<Arc<Encryption>>)> {
    Ok(match access_control::encrypted_store(security, store.clone()).await? {
        Some((encrypted, encryption)) => (encrypted, Some(encryption)),
        None => (store, None),
    })
}

/// The contents of a configuration of encryption, if it has keys.
fn keys_of(path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let config = encryption::config::Config::read(path).context("--encryption-provider-config")?;
    if !config.has_keys() {
        return Ok(None);
    }
    Ok(Some(std::fs::read(path).with_context(|| path.display().to_string())?))
}
