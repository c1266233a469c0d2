//! Rotates the client certificate before it expires.

use super::client::Identity;
use super::files::{renewal, validity, write_private};
use super::{IdentityError, request};
use coracle_cli::causes::chain;
use rand::RngExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a renewal may take before it is tried again.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(60);
/// Between attempts that failed.
const RETRY: Duration = Duration::from_secs(10);

/// Renews the certificate until the process ends. Returns if the certificate is not in a file of its own: it is then managed
/// externally.
pub async fn run(identity: Arc<Identity>) {
    let Some(path) = identity.renewable() else {
        tracing::info!("client certificate is not in a file of its own and is not rotated");
        return;
    };
    let dice: f64 = rand::rng().random_range(0.0..1.0);
    loop {
        let known = std::fs::read(&path).ok().and_then(|pem| validity(&pem));
        let Some((from, until, name)) = known else {
            tracing::error!(path = %path.display(), "client certificate cannot be read");
            return;
        };
        let wait = renewal((from, until), dice) - jiff::Timestamp::now().as_second();
        // At least once a day, because the clock may be changed.
        tokio::time::sleep(Duration::from_secs(wait.clamp(0, 86_400) as u64)).await;
        if renewal((from, until), dice) > jiff::Timestamp::now().as_second() {
            continue;
        }
        let node = name.strip_prefix("system:node:").unwrap_or(&name);
        let short = Duration::from_secs(((until - from) / 20).max(1) as u64);
        match renew(&identity, &path, node).await {
            Ok(()) => tracing::info!(node, "client certificate renewed"),
            Err(error) => {
                tracing::warn!(node, error = %chain(&error), "client certificate not renewed, will retry");
                tokio::time::sleep(RETRY.min(short)).await;
            }
        }
    }
}

pub(super) async fn renew(identity: &Identity, path: &Path, node: &str) -> Result<(), IdentityError> {
    let pem = request::obtain(&identity.client(), request::CLIENT, node, &[], RENEWAL_TIMEOUT).await?;
    write_private(path, pem.as_bytes())?;
    identity.renew().await
}
