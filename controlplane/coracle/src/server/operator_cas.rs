//! Follows the files of the operator's certificate authorities (`--client-ca-file`, `--requestheader-client-ca-file`) with
//! inotify. A file that cannot be used changes nothing.

use super::file_changes::FileChanges;
use super::publish::{Delegation, publish_authentication};
use coracle_apiserver::authn::ca_files::OperatorCas;
use coracle_apiserver::tls::Tls;
use coracle_cli::causes;
use coracle_client::Client;
use coracle_pki::Pki;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// When to try again after a failure that no change of a file ends.
const RETRY: Duration = Duration::from_secs(10);

/// The files, and what uses them.
#[derive(Clone)]
pub(super) struct OperatorCaFiles {
    pub(super) clients: Option<PathBuf>,
    pub(super) proxies: Option<PathBuf>,
    pub(super) pki: Arc<Pki>,
    pub(super) tls: Tls,
    pub(super) client: Client,
    pub(super) delegation: Delegation,
}

impl OperatorCaFiles {
    /// Does not return.
    pub(super) async fn follow(self) {
        let mut unpublished = false;
        loop {
            // Watched before they are read: no change in between is missed.
            let changes = FileChanges::watch([&self.clients, &self.proxies].into_iter().flatten());
            if let Err(error) = self.reload(&mut unpublished).await {
                tracing::error!(
                    error = %causes::chain(&*error),
                    unpublished,
                    "cannot use the changed certificate authorities of the operator"
                );
            }
            match changes {
                Ok(changes) => changes.wait(unpublished.then_some(RETRY)).await,
                Err(error) => {
                    tracing::warn!(
                        error = %causes::chain(&error),
                        "cannot watch the files of certificate authorities, will retry"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Uses what the files say; `unpublished` stays set until aggregated API servers can see it, too.
    async fn reload(&self, unpublished: &mut bool) -> anyhow::Result<()> {
        let cas = OperatorCas::read(self.clients.as_deref(), self.proxies.as_deref())?;
        if self.tls.replace_operator_cas(&self.pki, cas)? {
            tracing::info!("the certificate authorities of the operator were replaced");
            *unpublished = true;
        }
        if *unpublished {
            publish_authentication(&self.client, &self.delegation, &self.tls, &self.pki).await?;
            *unpublished = false;
        }
        Ok(())
    }
}
