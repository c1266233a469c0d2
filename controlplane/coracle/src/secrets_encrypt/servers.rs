//! Whether all servers of a cluster have the same keys.

use super::status;
use crate::operations::encryption::EncryptionStatus;
use crate::other_servers;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;

/// Fails unless every other server that runs fulfils a condition; says which one does not.
pub(super) async fn all(
    remote: &HttpsClient,
    wanted: &str,
    holds: impl Fn(&EncryptionStatus) -> bool,
) -> anyhow::Result<()> {
    for address in other_servers::addresses(remote).await? {
        let other = status(&remote.at(&format!("https://{address}"))).await;
        let other = other.with_context(|| format!("server {address} cannot be asked"))?;
        if !holds(&other) {
            bail!("server {address} {wanted}: copy the file to it; it is read again within seconds");
        }
    }
    Ok(())
}
