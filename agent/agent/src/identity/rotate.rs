//! Renewal of the client certificate: the node asks for a new one with the old one, in time.

use super::client::Identity;
use super::files::{renewal, validity, write_private};
use super::{IdentityError, request};
use coracle_proto::causes::chain;
use rand::RngExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a renewal may take before it is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between attempts that failed.
const RETRY: Duration = Duration::from_secs(10);

/// Renews for ever; a node whose kubeconfig holds its certificate elsewhere is renewed by whoever put it there.
pub async fn keep(identity: Arc<Identity>) {
    let Some(path) = identity.renewable() else {
        tracing::info!("the client certificate is not in a file of its own: somebody else renews it");
        return;
    };
    let dice: f64 = rand::rng().random_range(0.0..1.0);
    loop {
        let known = std::fs::read(&path).ok().and_then(|pem| validity(&pem));
        let Some((from, until, name)) = known else {
            tracing::error!(path = %path.display(), "the client certificate cannot be read");
            return;
        };
        let wait = renewal((from, until), dice) - jiff::Timestamp::now().as_second();
        // Looked at once a day at least: clocks are set.
        tokio::time::sleep(Duration::from_secs(wait.clamp(0, 86_400) as u64)).await;
        if renewal((from, until), dice) > jiff::Timestamp::now().as_second() {
            continue;
        }
        let node = name.strip_prefix("system:node:").unwrap_or(&name);
        let short = Duration::from_secs(((until - from) / 20).max(1) as u64);
        match renew(&identity, &path, node).await {
            Ok(()) => tracing::info!(node, "client certificate renewed"),
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(node, error, "client certificate not renewed, will retry");
                tokio::time::sleep(RETRY.min(short)).await;
            }
        }
    }
}

async fn renew(identity: &Identity, path: &Path, node: &str) -> Result<(), IdentityError> {
    let pem = request::obtain(&identity.client(), request::CLIENT, node, &[], PATIENCE).await?;
    write_private(path, pem.as_bytes())?;
    identity.renew().await
}
