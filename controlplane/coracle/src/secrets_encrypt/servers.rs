//! Whether all servers of a cluster have the same keys.

use super::status;
use crate::operations::encryption::EncryptionStatus;
use crate::other_servers;
use anyhow::{Context as _, bail};
use coracle_apiserver::https_client::HttpsClient;
use std::time::{Duration, Instant};

/// How long all servers may take to have a configuration.
const DEADLINE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

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
            let why = other.problem.map_or_else(String::new, |problem| format!(" ({problem})"));
            bail!("server {address} {wanted}{why}");
        }
    }
    Ok(())
}

/// The same, with time: servers get a configuration that another one has published within moments.
pub(super) async fn eventually(
    remote: &HttpsClient,
    wanted: &str,
    holds: impl Fn(&EncryptionStatus) -> bool,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match all(remote, wanted, &holds).await {
            Err(error) if begun.elapsed() >= DEADLINE => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(()) => return Ok(()),
        }
    }
}
