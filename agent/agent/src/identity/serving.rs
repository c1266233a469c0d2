//! Serving certificate of the node API: self-signed until the cluster has signed one; renewed before it expires, without
//! a new listener.

use super::files::{renewal, validity, write_private};
use super::{IdentityError, request};
use arc_swap::ArcSwap;
use coracle_cli::causes::chain;
use coracle_proto::node_identity::inner_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a signed certificate.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(120);
/// Between attempts that failed: twice as long every time, because what is refused once mostly stays refused. The node serves
/// a certificate of its own meanwhile.
const RETRY: Duration = Duration::from_secs(10);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);

/// The current certificate.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    node: String,
    names: Vec<String>,
    current: ArcSwap<CertifiedKey>,
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn certified(pem: &[u8], what: &Path) -> Result<Arc<CertifiedKey>, IdentityError> {
    let bad = |why: String| IdentityError::Pem { what: what.display().to_string(), why };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| bad(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| bad(error.to_string()))?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| bad(error.to_string()))?;
    Ok(Arc::new(CertifiedKey::new(certificates, key)))
}

impl Serving {
    /// Loads the certificate in `dir`, or creates a self-signed one.
    pub fn open(dir: &Path, node: &str, addresses: &[String]) -> Result<Arc<Self>, IdentityError> {
        let path = dir.join("serving.pem");
        let mut names = vec![node.to_owned()];
        names.extend(addresses.iter().cloned());
        let known = std::fs::read(&path)
            .ok()
            .filter(|pem| still_good(pem))
            .and_then(|pem| certified(&pem, &path).ok());
        let current = match known {
            Some(current) => current,
            None => {
                let made = rcgen::generate_simple_self_signed(names.clone())?;
                let pem = format!("{}\n{}", made.cert.pem(), made.signing_key.serialize_pem());
                certified(pem.as_bytes(), &path)?
            }
        };
        Ok(Arc::new(Self { path, node: node.into(), names, current: ArcSwap::from(current) }))
    }

    /// Requests and renews the certificate until the process ends.
    pub async fn run(self: Arc<Self>, client: kube::Client) {
        let mut pause = RETRY;
        loop {
            let due = std::fs::read(&self.path).ok().and_then(|pem| validity(&pem));
            let due = due.map_or(0, |(from, until, _)| renewal((from, until), 0.5));
            let wait = due - jiff::Timestamp::now().as_second();
            if wait > 0 {
                tokio::time::sleep(Duration::from_secs(wait.min(86_400) as u64)).await;
                continue;
            }
            if let Err(error) = self.renew(&client).await {
                tracing::warn!(
                    error = %chain(&error),
                    "serving certificate not signed by the cluster, will retry"
                );
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_RETRY_DELAY);
            } else {
                pause = RETRY;
            }
        }
    }

    /// The file of the certificate.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn renew(&self, client: &kube::Client) -> Result<(), IdentityError> {
        let pem =
            match request::obtain(client, request::SERVING, &self.node, &self.names, SIGNING_TIMEOUT).await {
                // A name or an address that is the API server's, too, is certified to nobody else; the node needs none
                // of them.
                Err(IdentityError::Refused { name, why }) => {
                    tracing::info!(
                        request = name,
                        why,
                        "requesting a certificate without names of the API server"
                    );
                    let inner = [inner_name(&self.node)];
                    request::obtain(client, request::SERVING, &self.node, &inner, SIGNING_TIMEOUT).await?
                }
                other => other?,
            };
        let fresh = certified(pem.as_bytes(), &self.path)?;
        if let Some(dir) = self.path.parent() {
            let made = coracle_cli::private_files::directory(dir);
            made.map_err(|source| IdentityError::File { path: dir.into(), source })?;
        }
        write_private(&self.path, pem.as_bytes())?;
        self.current.store(fresh);
        tracing::info!(node = self.node, "serving certificate signed by the cluster");
        Ok(())
    }
}

fn still_good(pem: &[u8]) -> bool {
    validity(pem).is_some_and(|(_, until, _)| until > jiff::Timestamp::now().as_second())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_node_without_a_certificate_serves_its_own_until_it_has_one() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["192.0.2.1".to_owned()];
        let first = Serving::open(dir.path(), "n", &names).unwrap().current.load_full();
        let second = Serving::open(dir.path(), "n", &names).unwrap().current.load_full();
        assert_ne!(first.cert, second.cert, "nothing is kept of it");
        let mut params = rcgen::CertificateParams::new(vec!["n".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n");
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = format!("{}{}", params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        write_private(&dir.path().join("serving.pem"), pem.as_bytes()).unwrap();
        let third = Serving::open(dir.path(), "n", &names).unwrap().current.load_full();
        let fourth = Serving::open(dir.path(), "n", &names).unwrap().current.load_full();
        assert_eq!(third.cert, fourth.cert);
    }
}
