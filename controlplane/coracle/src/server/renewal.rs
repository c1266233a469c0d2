//! Renews the certificates of server and administrator before they end, uses those that somebody else renewed, and follows rotations
//! of the cluster CA. The next handshake shows and trusts what is new; open connections stay.

use super::publish::{Delegation, publish_authorities};
use coracle_apiserver::nodes::agent::Nodes;
use coracle_apiserver::tls::{ServingCertificate, Tls};
use coracle_cli::causes;
use coracle_client::Client;
use coracle_pki::{Pki, kubeconfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often files of certificates are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What uses the certificates.
#[derive(Clone)]
pub(super) struct Renewal {
    pub(super) pki: Arc<Pki>,
    pub(super) serving: Arc<ServingCertificate>,
    /// The path of the administrator's kubeconfig.
    pub(super) kubeconfig: PathBuf,
    /// Where clients reach the server.
    pub(super) url: String,
    pub(super) tls: Tls,
    pub(super) nodes: Arc<Nodes>,
    pub(super) client: Client,
    pub(super) delegation: Delegation,
}

/// When certificate files were changed. Their keys are written before them.
fn changed(dir: &Path) -> [Option<(SystemTime, u64)>; 2] {
    ["apiserver.crt", "admin.crt"].map(|file| {
        let meta = std::fs::metadata(dir.join(file)).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    })
}

impl Renewal {
    /// Does not return.
    pub(super) async fn run(self) {
        let pki = &self.pki;
        let mut authorities = pki.authorities();
        let (mut known, mut looked) = (changed(&pki.dir), Instant::now());
        // After a failure everything is done again.
        let mut rotated = false;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pki.renewal_period().min(LOOK)) => {}
                Ok(()) = authorities.changed() => rotated = true,
            }
            let now = changed(&pki.dir);
            if !rotated && now == known && looked.elapsed() < pki.renewal_period() {
                continue;
            }
            looked = Instant::now();
            let renewed = match rotated {
                true => self.rotate().await,
                false => self.renew(),
            };
            match renewed {
                Ok(()) => {
                    let after = changed(&pki.dir);
                    if after != known {
                        tracing::info!("certificates renewed");
                    }
                    (known, rotated) = (after, false);
                }
                Err(error) => tracing::error!(error = %causes::chain(&*error), "cannot renew certificates"),
            }
        }
    }

    /// Uses the CA as it is now: first for who is trusted, then for the own certificates, then for what is published.
    async fn rotate(&self) -> anyhow::Result<()> {
        self.tls.reload(&self.pki)?;
        self.renew()?;
        self.nodes.reload_authority(&self.pki)?;
        publish_authorities(&self.client, &self.delegation, &self.tls, &self.pki, &self.url).await?;
        tracing::info!(ca = self.pki.authority().hash(), "the rotated CA is in use");
        Ok(())
    }

    fn renew(&self) -> anyhow::Result<()> {
        let (server, admin) = self.pki.renewed()?;
        let authority = self.pki.authority();
        self.serving.replace(&server, &authority)?;
        Ok(kubeconfig::write(&self.kubeconfig, &self.url, &authority.certificate, "admin", &admin)?)
    }
}
