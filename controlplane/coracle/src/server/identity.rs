//! The keys of this server and those of the cluster: on a shared store they have to be the same.

use super::encryption::{Starting, of_file};
use crate::config::Config;
use crate::join::claim::{ClaimError, Claimer};
use crate::operations::encryption::Encryption;
use coracle_pki::cluster_keys::SealingKey;
use coracle_store::Store;
use std::path::Path;
use std::sync::Arc;

/// Fails if this server has no keys yet and the store has those of a cluster.
pub(super) async fn check_new(store: &dyn Store, dir: &Path) -> Result<(), ClaimError> {
    Claimer { store, dir, encryption: None }.check_new().await
}

/// What the server works on once its keys are those of the cluster.
pub(super) struct Established {
    pub(super) store: Arc<dyn Store>,
    /// Encryption at rest, if there is one; always on a shared store, where it can begin at any time.
    pub(super) encryption: Option<Arc<Encryption>>,
    /// Seals the keys of the cluster in a shared store.
    pub(super) sealing: Option<SealingKey>,
}

/// Wraps the store in its encryption. A shared store gets the keys of the cluster, sealed, or is refused if it has those of
/// another one. `name` is that of this server's identity Lease.
pub(super) async fn establish(
    config: &Config,
    store: Arc<dyn Store>,
    dir: &Path,
    name: &str,
) -> anyhow::Result<Established> {
    let flag = config.security.encryption_provider_config.clone();
    if !config.datastore.is_shared() {
        let (store, encryption) = of_file(flag.as_deref(), store).await?;
        return Ok(Established { store, encryption, sealing: None });
    }
    let ((store, encryption), sealing) = Starting { store, dir, flag, name }.establish().await?;
    Ok(Established { store, encryption, sealing })
}
